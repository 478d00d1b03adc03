"""A model's answer to one input, in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Prediction:
    label: Any  # a name; several names; a number; one name per word, None for those cut off; an option; a text
    score: float  # how sure: of the label, of the least sure label or word; the number itself for regression
    scores: Any  # by label; one such dict per word where every token is answered
    layers: int = 0  # layers run, summed over the windows of a long text
    tokens: int = 0  # token-layers run, likewise
    windows: int = 1  # rows that the encoder read of a long text

    def after(self, layers: int, tokens: int, windows: int) -> Prediction:
        """The same with the work done for it. Millions are made; `dataclasses.replace` would take ten times as long."""
        fresh = object.__new__(type(self))
        fresh.__dict__.update(self.__dict__, layers=layers, tokens=tokens, windows=windows)
        return fresh
