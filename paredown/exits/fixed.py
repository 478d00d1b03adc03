"""Leave at the same layer whatever the answer: never, or after a number of layers. Yardsticks for the other rules."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from paredown.exits._rule import Rule, count_at
from paredown.registry import exits
from paredown.state import Evidence, Memory


@exits.register("never")
@dataclass(frozen=True)
class Never(Rule):
    knob = ""  # so every speed is the same to it
    per_layer = False

    def certainty(self, evidence: Evidence, memory: Memory) -> tuple[Tensor, Memory]:
        return _everywhere(evidence, 0), memory

    def bounds(self, steps: Sequence[int]) -> tuple[float, ...]:
        return (math.inf,) * len(steps)


@exits.register("at_layer")
@dataclass(frozen=True)
class AtLayer(Rule):
    layer: int = 6  # leave at the first head once so many layers have run; from 1

    knob = "layer"
    limits = (1, math.inf)
    per_layer = False

    def certainty(self, evidence: Evidence, memory: Memory) -> tuple[Tensor, Memory]:
        return _everywhere(evidence, evidence.step), memory

    def _bound(self, value: float) -> float:
        return value - 1

    def _value_at(self, speed: float) -> float:
        return count_at(speed)


def _everywhere(evidence: Evidence, certainty: float) -> Tensor:
    return torch.full((len(evidence.logits),), float(certainty), device=evidence.logits.device)
