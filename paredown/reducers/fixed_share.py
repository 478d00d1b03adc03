"""Keep a fixed share of every row's tokens, the best by the selectors or by attention (after PoWER-BERT)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from paredown.reducers._reducer import ChosenTokens
from paredown.registry import reducers
from paredown.state import State


@reducers.register("fixed_share")
@dataclass(frozen=True)
class FixedShare(ChosenTokens):
    share: float = 0.5  # of the tokens a row still has, each time it is asked; rounded up
    score: Literal["selector", "attention"] = "selector"  # what ranks the tokens
    layers: tuple[int, ...] | None = None  # before which it chooses; None: as selectors sit, else second and middle

    knob = "share"

    def keep(self, state: State, scores: Tensor) -> Tensor:
        # Tokens that must stay come first and take their part of the share.
        return state.rank(scores) < state.spread(self.kept_of(state.lengths()))

    def kept_of(self, tokens: Tensor) -> Tensor:
        """How many of so many tokens stay."""
        return torch.ceil(tokens * self.share - 1e-6)  # 0.1 of 30 is 3, whatever binary fractions say

    def _value_at(self, speed: float) -> float:
        return 1 - speed
