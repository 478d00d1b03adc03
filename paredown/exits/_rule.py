"""What every exit rule shares: no memory, the head's own answer, thresholds for one or for every layer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from paredown.errors import BadPlan, BadSetting
from paredown.evidence import Evidence, Memory
from paredown.kinds import Kind

PerLayer = float | tuple[float, ...]  # one value, or one for each count of layers run: the first after one layer


class Rule:
    """Base of the exit rules: a frozen dataclass of plain numbers whose `knob` trades caution for speed."""

    name: ClassVar[str]
    knob: ClassVar[str] = "threshold"

    def start(self, rows: int, device: torch.device) -> Memory:
        return {}

    def leave(self, evidence: Evidence, memory: Memory) -> tuple[Tensor, Memory]:
        raise NotImplementedError

    def answer(self, evidence: Evidence, memory: Memory) -> Tensor:
        return evidence.logits

    def check(self, kind: Kind, asked: tuple[int, ...], has_doubt: bool) -> None:
        value = getattr(self, self.knob, None)
        if isinstance(value, tuple) and len(value) < max(asked):
            raise BadPlan(f"{self.name} has {len(value)} thresholds, but it is asked after {max(asked)} layers")

    def at_speed(self, speed: float) -> Any:
        """The same rule at another speed: 0 nobody leaves early, 1 as early as it goes. Never later as it grows."""
        raise NotImplementedError

    def _with(self, value: Any) -> Any:
        return replace(self, **{self.knob: value})  # type: ignore[type-var]

    def _at(self, layer: int) -> float:
        """The knob's value after so many layers run."""
        value = getattr(self, self.knob)
        return value[layer - 1] if isinstance(value, tuple) else value

    def __str__(self) -> str:
        return f"{self.name}:{getattr(self, self.knob, '')}".rstrip(":")


def check_speed(speed: float) -> float:
    if not 0 <= speed <= 1:
        raise BadSetting(f"speed must lie between 0 (nobody leaves early) and 1, not {speed!r}")
    return float(speed)
