"""Leave when the likeliest class is likely enough."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from paredown.exits._rule import ROUNDED, PerLayer, ProbabilityRule
from paredown.registry import exits
from paredown.state import Evidence, Memory


@exits.register("confidence")
@dataclass(frozen=True)
class Confidence(ProbabilityRule):
    threshold: PerLayer = 0.9  # leave when the largest probability is strictly above; 1 never, 0 at once

    def certainty(self, evidence: Evidence, memory: Memory) -> tuple[Tensor, Memory]:
        return evidence.least(evidence.log_probs.amax(-1).exp()), memory

    def stretched(self, certainty: Tensor) -> Tensor:
        return certainty.logit(ROUNDED)

    def _value_at(self, speed: float) -> float:
        return round(1 - speed, 12)
