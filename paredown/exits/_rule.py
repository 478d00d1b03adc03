"""What every exit rule shares: one knob with its limits, the head's own answer, no memory, a short text."""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from typing import Any, ClassVar

import torch
from torch import Tensor

from paredown.errors import BadPlan, BadSetting
from paredown.evidence import Evidence, Memory
from paredown.kinds import Kind

PerLayer = float | tuple[float, ...]  # one value, or one for each count of layers run: the first after one layer


class Rule(ABC):
    """Base of the exit rules: a frozen dataclass of plain numbers whose `knob` trades caution for speed."""

    name: ClassVar[str]
    knob: ClassVar[str] = "threshold"
    limits: ClassVar[tuple[float, float]] = (0.0, 1.0)  # of the knob; whole limits ask for a whole number
    per_layer: ClassVar[bool] = True  # whether the knob may have one value for each count of layers run

    def __post_init__(self) -> None:
        if not self.knob:
            return
        value = getattr(self, self.knob)
        if not (self.per_layer and isinstance(value, (list, tuple))):
            object.__setattr__(self, self.knob, self._checked(value))
        elif value:
            object.__setattr__(self, self.knob, tuple(self._checked(item) for item in value))
        else:
            raise BadSetting(f"{self.name}.{self.knob} must be one value or one for each layer, not an empty list")

    def _checked(self, value: Any) -> float:
        low, high = self.limits
        whole = isinstance(low, int)
        number = isinstance(value, int if whole else (int, float)) and not isinstance(value, bool)
        if not (number and math.isfinite(value) and low <= value <= high):
            span = f"from {low} to {high}" if math.isfinite(high) else f"of {low} or more"
            what = "a whole number" if whole else "a number"
            raise BadSetting(f"{self.name}.{self.knob} must be {what} {span}, not {value!r}")
        return int(value) if whole else float(value)  # plain, so that it can be printed and written as JSON

    def start(self, rows: int, device: torch.device) -> Memory:
        return {}

    @abstractmethod
    def leave(self, evidence: Evidence, memory: Memory) -> tuple[Tensor, Memory]:
        """[rows] True where a row leaves now, and the memory for the next head."""

    def answer(self, evidence: Evidence, memory: Memory) -> Tensor:
        return evidence.logits

    def check(self, kind: Kind, asked: tuple[int, ...], has_doubt: bool) -> None:
        value = getattr(self, self.knob, None)
        if isinstance(value, tuple) and len(value) < max(asked):
            raise BadPlan(
                f"{self.name}.{self.knob} has {len(value)} values, but it is asked after up to {max(asked)} layers; "
                "give one value, or one for each count of layers run"
            )

    def at_speed(self, speed: float) -> Any:
        """The same rule at another speed: 0 nobody leaves early, 1 as early as it goes. Never later as it grows.

        Values per layer give way to one value for all.
        """
        if not 0 <= speed <= 1:
            raise BadSetting(f"speed must lie between 0 (nobody leaves early) and 1, not {speed!r}")
        knob = {self.knob: self._value_at(float(speed))} if self.knob else {}
        return dataclasses.replace(self, **knob)  # type: ignore[type-var]

    def _value_at(self, speed: float) -> float:
        """The knob's value at a speed; as it stands, for a score in 0..1 that must fall below the threshold."""
        return speed

    def _at(self, layer: int) -> float:
        """The knob's value after so many layers run."""
        value = getattr(self, self.knob)
        return value[layer - 1] if isinstance(value, tuple) else value

    def __str__(self) -> str:
        """Short text that `exits.parse` reads back: the knob, and every other setting that is not at its default."""
        parts: list[str] = []
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            text = str(value).replace(" ", "")
            if field.name == self.knob:
                parts.insert(0, text)
            elif value != field.default:
                parts.append(f"{field.name}={text}")
        return ":".join([self.name, ",".join(parts)] if parts else [self.name])


class ProbabilityRule(Rule):
    """Base of the rules that read probabilities, so that they refuse answers that have none."""

    def check(self, kind: Kind, asked: tuple[int, ...], has_doubt: bool) -> None:
        super().check(kind, asked, has_doubt)
        kind.log_probs(torch.zeros(1, 1, 2))  # regression raises, and says what to use instead


def count_at(speed: float) -> int:
    """A count for a speed: 1 at speed 1, 2 at a half, 4 at a quarter; at 0 a million, which no encoder reaches."""
    return math.ceil(1 / max(speed, 1e-6))
