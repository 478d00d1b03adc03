"""What every exit rule shares: a knob, the head's own answer, no memory."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor

from paredown.errors import BadPlan
from paredown.kinds import Kind
from paredown.registry import Knob
from paredown.state import Evidence, Memory

PerLayer = float | tuple[float, ...]  # one value, or one for each count of layers run: the first after one layer


class Rule(Knob, ABC):
    """Base of the exit rules: a frozen dataclass of plain numbers whose `knob` trades caution for speed."""

    per_layer = True

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

    def _at(self, layer: int) -> float:
        """The knob's value after so many layers run."""
        value = getattr(self, self.knob)
        return value[layer - 1] if isinstance(value, tuple) else value


class ProbabilityRule(Rule):
    """Base of the rules that read probabilities, so that they refuse answers that have none."""

    def check(self, kind: Kind, asked: tuple[int, ...], has_doubt: bool) -> None:
        super().check(kind, asked, has_doubt)
        kind.log_probs(torch.zeros(1, 1, 2))  # regression raises, and says what to use instead


def count_at(speed: float) -> int:
    """A count for a speed: 1 at speed 1, 2 at a half, 4 at a quarter; at 0 a million, which no encoder reaches."""
    return math.ceil(1 / max(speed, 1e-6))
