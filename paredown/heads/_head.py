"""What every head shares: tokens in, a feature, and scores of the feature."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from paredown.errors import BadSetting
from paredown.network import HeadShape
from paredown.state import Pool, Tokens
from paredown.system.products import LinearMap


class Head(nn.Module, ABC):
    """A head after one layer. `feature` is what the learned exit rule reads too; `size` is its width."""

    size: int
    reads_first: bool = False  # whether an answer depends on the first token of each row alone

    @abstractmethod
    def feature(self, tokens: Tokens) -> Tensor:
        """[rows, size], or [rows, tokens, size] where every token is answered."""

    @abstractmethod
    def score(self, feature: Tensor) -> Tensor:
        """[…, labels]"""

    def forward(self, tokens: Tokens) -> Tensor:
        return self.score(self.feature(tokens))


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


def plain(linear: nn.Linear) -> nn.Linear:
    """A linear map with BERT's initial weights: normal with deviation 0.02, no bias."""
    nn.init.normal_(linear.weight, std=0.02)
    nn.init.zeros_(linear.bias)
    return linear


def copied(linear: nn.Linear) -> nn.Linear:
    """A linear map that starts where another one stands and goes its own way."""
    twin = LinearMap(linear.in_features, linear.out_features, bias=linear.bias is not None)
    twin.load_state_dict(linear.state_dict())
    return twin
