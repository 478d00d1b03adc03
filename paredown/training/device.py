"""What suits the device that trains. A CPU computes as many products a second as it can; a GPU must not wait for the
host."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from paredown.system.machine import computes_bfloat16
from paredown.training.settings import Settings

WIDE = 128  # of narrower encoders a CPU saves less in products than it spends on casts


@dataclass(frozen=True)
class Ways:
    """How steps run, and how dev rows are judged."""

    precision: str  # no, bf16, fp16
    width_multiple: int = 1  # of which batch widths are: few shapes, and such as kernels like
    read_every: int = 1  # steps between two looks at their losses
    graphs: bool = False
    dev_batch: int = 64  # rows at once

    @classmethod
    def on(cls, device: torch.device, settings: Settings, width: int) -> Ways:
        """For an encoder of this width."""
        half = "bf16" if computes_bfloat16(device) and (device.type == "cuda" or width >= WIDE) else "no"
        precision = half if settings.precision == "auto" else settings.precision
        if device.type != "cuda":
            return cls(precision, 16 if settings.compile else 1)
        return cls(precision, width_multiple=16, read_every=16, graphs=True, dev_batch=512)
