"""What makes a run what it is: its numbers, and its methods as JSON."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import torch

from paredown.encoders.dtype import dtype_named
from paredown.errors import BadSetting
from paredown.training.learner import DTYPES


@dataclasses.dataclass(frozen=True)
class Settings:
    seed: int = 42
    batch_size: int | None = None  # rows per step, over all processes; None: as each stage says
    micro_batch: int | None = None  # rows at once per process; None: as many as memory allows
    precision: str = "auto"  # no, bf16, fp16; auto: bf16 on a device that has instructions for it
    evaluate_every: int | None = None  # steps; None: every epoch
    checkpoint_every: int | None = None  # steps; None: every epoch
    compile: bool = False  # layers; on a GPU, where steps are replayed as graphs, it hardly pays
    keep_checkpoints: bool = False  # the model at every checkpoint stays, as a bundle in output/kept
    save_dtype: str | torch.dtype | None = None  # of the weights in the bundle; None: float32

    def __post_init__(self) -> None:
        for name in ("batch_size", "micro_batch", "evaluate_every", "checkpoint_every"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise BadSetting(f"{name} must be at least 1, not {value}")
        if self.seed < 0:
            raise BadSetting(f"seed must not be negative, got {self.seed}")
        dtype_named(self.save_dtype, "save_dtype")
        if self.precision not in (known := ("auto", *DTYPES)):
            raise BadSetting(f"precision must be one of {', '.join(known)}, not {self.precision!r}")


def described(method: Any) -> Any:
    """A method as JSON; the round trip makes tuples lists, as they come back from a checkpoint."""
    settings = dataclasses.asdict(method) if dataclasses.is_dataclass(method) else {}  # type: ignore[arg-type]
    name = getattr(method, "name", type(method).__name__)
    return json.loads(json.dumps({"name": name, **settings}, default=lambda value: getattr(value, "__qualname__", "")))
