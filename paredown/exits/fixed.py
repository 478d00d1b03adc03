"""Leave at the same place whatever the answer: never, or after a number of layers. Yardsticks for the other rules."""

from __future__ import annotations

import math
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

    def leave(self, evidence: Evidence, memory: Memory) -> tuple[Tensor, Memory]:
        return _everyone(evidence, False), memory


@exits.register("at_layer")
@dataclass(frozen=True)
class AtLayer(Rule):
    layer: int = 6  # leave at the first head once so many layers have run; from 1

    knob = "layer"
    limits = (1, math.inf)
    per_layer = False

    def leave(self, evidence: Evidence, memory: Memory) -> tuple[Tensor, Memory]:
        return _everyone(evidence, evidence.layer >= self.layer), memory

    def _value_at(self, speed: float) -> float:
        return count_at(speed)


def _everyone(evidence: Evidence, leave: bool) -> Tensor:
    return torch.full((len(evidence.logits),), leave, device=evidence.logits.device)
