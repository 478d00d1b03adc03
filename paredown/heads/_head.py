"""What every head shares: tokens in, a feature, and scores of the feature."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from paredown.errors import BadSetting
from paredown.network import HeadShape

Pool = Literal["first", "mean", "max"]


class Head(nn.Module, ABC):
    """A head after one layer. `feature` is what the learned exit rule reads too; `size` is its width."""

    size: int

    @abstractmethod
    def feature(self, hidden: Tensor, mask: Tensor) -> Tensor:
        """[rows, size], or [rows, tokens, size] where every token is answered."""

    @abstractmethod
    def score(self, feature: Tensor) -> Tensor:
        """[…, labels]"""

    def forward(self, hidden: Tensor, mask: Tensor) -> Tensor:
        return self.score(self.feature(hidden, mask))


@dataclass(frozen=True)
class HeadSpec(ABC):
    """Base of the head specs: what a head is made of, as plain values."""

    pool: Pool = "first"  # which tokens are pooled: the first alone, their mean, their maximum

    name: ClassVar[str]

    def build(self, shape: HeadShape) -> dict[int, Head]:
        """One head for every layer asked for."""
        if shape.per_token and self.pool != "first":
            raise BadSetting(f"every token is answered here, so there is nothing to pool; got pool={self.pool!r}")
        return dict(zip(shape.layers, self.heads(shape), strict=True))

    @abstractmethod
    def heads(self, shape: HeadShape) -> list[Head]:
        """As many heads as layers."""


def pooled(hidden: Tensor, mask: Tensor, pool: Pool) -> Tensor:
    """[rows, width] from the real tokens of each row alone."""
    if pool == "first":
        return hidden[:, 0]
    real = mask.unsqueeze(-1)
    if pool == "max":
        return hidden.masked_fill(~real, float("-inf")).amax(1)
    # Summed in 32 bits or more: half precision overflows or forgets small terms in long texts.
    wide = torch.promote_types(hidden.dtype, torch.float32)
    total = hidden.masked_fill(~real, 0.0).sum(1, dtype=wide)
    return (total / real.sum(1).clamp(min=1)).to(hidden.dtype)


def plain(linear: nn.Linear) -> nn.Linear:
    """A linear map with BERT's initial weights: normal with deviation 0.02, no bias."""
    nn.init.normal_(linear.weight, std=0.02)
    nn.init.zeros_(linear.bias)
    return linear


def copied(linear: nn.Linear) -> nn.Linear:
    """A linear map that starts where another one stands and goes its own way."""
    twin = nn.Linear(linear.in_features, linear.out_features, bias=linear.bias is not None)
    twin.load_state_dict(linear.state_dict())
    return twin
