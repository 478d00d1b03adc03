"""Keep the tokens that the model's selectors find worth keeping (TR-BERT)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from paredown.reducers._reducer import ChosenTokens
from paredown.registry import reducers
from paredown.state import State


@reducers.register("selector")
@dataclass(frozen=True)
class SelectorThreshold(ChosenTokens):
    threshold: float = 0.5  # keep where the probability of keeping is at least this; 0 all, 1 hardly any

    def keep(self, state: State, scores: Tensor) -> Tensor:
        return scores.sigmoid() >= self.threshold
