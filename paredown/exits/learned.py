"""Leave when the model has learned that its answer is seldom wrong here (BERxiT: Xin et al. 2021)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from paredown.answers import Kind
from paredown.errors import BadPlan
from paredown.exits._rule import PerLayer, UncertaintyRule
from paredown.registry import exits
from paredown.state import Evidence, Memory


@exits.register("learned")
@dataclass(frozen=True)
class Learned(UncertaintyRule):
    threshold: PerLayer = 0.1  # leave when the error probability is strictly below; 0 never, 1 nearly at once

    def certainty(self, evidence: Evidence, memory: Memory) -> tuple[Tensor, Memory]:
        if evidence.error_probability is None:
            raise BadPlan(NO_ERROR_PROBABILITY)
        return evidence.least(-evidence.error_probability.float()), memory

    def check(self, kind: Kind, asked: tuple[int, ...], has_error_probability: bool) -> None:
        super().check(kind, asked, has_error_probability)
        if not has_error_probability:
            raise BadPlan(NO_ERROR_PROBABILITY)


NO_ERROR_PROBABILITY = (
    "the learned rule needs a model that estimates its error probability: train one for it, or use another exit rule"
)
