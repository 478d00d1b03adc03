"""Leave when the likeliest class is far ahead of the second."""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from paredown.exits._rule import ROUNDED, PerLayer, ProbabilityRule
from paredown.registry import exits
from paredown.state import Evidence, Memory


@exits.register("margin")
@dataclass(frozen=True)
class Margin(ProbabilityRule):
    threshold: PerLayer = 0.8  # leave when the largest two probabilities differ by strictly more; 1 never, 0 if no tie

    def certainty(self, evidence: Evidence, memory: Memory) -> tuple[Tensor, Memory]:
        probs = F.pad(evidence.log_probs.exp(), (0, 1))  # one class alone is ahead of a class of probability 0
        first, second = probs.topk(2).values.unbind(-1)
        return evidence.least(first - second), memory

    def stretched(self, certainty: Tensor) -> Tensor:
        return ((1 + certainty) / 2).logit(ROUNDED)

    def _value_at(self, speed: float) -> float:
        return round(1 - speed, 12)
