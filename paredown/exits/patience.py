"""Leave when several heads in a row predict the same (PABEE: Zhou et al. 2020, "BERT Loses Patience")."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from paredown.answers import Kind
from paredown.errors import BadPlan, BadSetting
from paredown.exits._rule import Rule, count_at
from paredown.registry import exits
from paredown.state import Evidence, Memory


@exits.register("patience")
@dataclass(frozen=True)
class Patience(Rule):
    patience: int | tuple[int, ...] = 4  # leave when at least so many heads in a row agreed with the one before; from 1
    tolerance: float | None = None  # for numbers: two agree when they differ by strictly less; above 0

    knob = "patience"
    limits = (1, math.inf)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.tolerance is None:
            return
        if not isinstance(self.tolerance, (int, float)) or not 0 < self.tolerance < math.inf:
            raise BadSetting(f"patience.tolerance must be a number above 0, or none, not {self.tolerance!r}")
        object.__setattr__(self, "tolerance", float(self.tolerance))

    def certainty(self, evidence: Evidence, memory: Memory) -> tuple[Tensor, Memory]:
        predicted = evidence.predicted  # [rows, items]
        agreed = torch.zeros_like(predicted, dtype=torch.long)
        if memory:  # the first head has none before it to agree with
            before = memory["predicted"]
            same = predicted == before if self.tolerance is None else (predicted - before).abs() < self.tolerance
            agreed = (memory["agreed"] + 1) * same
        return evidence.least(agreed.float()), {"predicted": predicted, "agreed": agreed}

    def check(self, kind: Kind, asked: tuple[int, ...], has_error_probability: bool) -> None:
        super().check(kind, asked, has_error_probability)
        if kind.numeric and self.tolerance is None:
            raise BadPlan("numbers are hardly ever equal: give patience a tolerance, as in patience:4,tolerance=0.1")
        if not kind.numeric and self.tolerance is not None:
            raise BadPlan(f"patience.tolerance is for numbers; {kind.name} answers are compared exactly, leave it out")

    def _bound(self, value: float) -> float:
        return value - 1

    def _value_of(self, bound: float) -> int:
        return int(bound) + 1

    def _value_at(self, speed: float) -> float:
        return count_at(speed)
