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
    threshold: PerLayer = 0.1  # leave when the learned doubt, 0..1, is strictly below; 0 never, 1 nearly at once

    def certainty(self, evidence: Evidence, memory: Memory) -> tuple[Tensor, Memory]:
        if evidence.doubt is None:
            raise BadPlan(NO_DOUBT)
        return evidence.least(-evidence.doubt.float()), memory

    def check(self, kind: Kind, asked: tuple[int, ...], has_doubt: bool) -> None:
        super().check(kind, asked, has_doubt)
        if not has_doubt:
            raise BadPlan(NO_DOUBT)


NO_DOUBT = "the learned rule needs a model that has learned to doubt: train one for it, or use another exit rule"
