"""What suits the device that trains. A CPU is used as plainly as can be; a GPU must not wait for the host."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from paredown.training.settings import Settings


@dataclass(frozen=True)
class Ways:
    """How steps run, and how dev rows are judged."""

    precision: str  # no, bf16, fp16
    width_multiple: int = 1  # of which batch widths are: few shapes, and such as kernels like
    read_every: int = 1  # steps between two looks at their losses
    graphs: bool = False
    dev_batch: int = 64  # rows at once

    @classmethod
    def on(cls, device: torch.device, settings: Settings) -> Ways:
        if device.type != "cuda":
            return cls("no" if settings.precision == "auto" else settings.precision, 16 if settings.compile else 1)
        half = "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "no"
        precision = half if settings.precision == "auto" else settings.precision
        return cls(precision, width_multiple=16, read_every=16, graphs=True, dev_batch=512)
