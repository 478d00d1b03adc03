"""Keep the tokens that the others attend to, without training (after LTP and PoWER-BERT)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from paredown.reducers._reducer import ChosenTokens
from paredown.registry import reducers
from paredown.state import State


@reducers.register("attention")
@dataclass(frozen=True)
class AttentionThreshold(ChosenTokens):
    threshold: float = 0.5  # keep where the attention received in the layer before is at least this; 1 is average
    layers: tuple[int, ...] | None = None  # before which it chooses; None: as fixed_share does

    limits = (0.0, math.inf)
    score = "attention"

    def keep(self, state: State, scores: Tensor) -> Tensor:
        return scores >= self.threshold

    def _value_at(self, speed: float) -> float:
        return speed / max(1 - speed, 1e-6)  # a half: the average
