"""A linear map of the pooled hidden state after every layer: the cheapest head."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from paredown.heads._head import Head, HeadSpec, plain
from paredown.network import HeadShape
from paredown.registry import heads
from paredown.state import Pool, Tokens


@heads.register("linear")
@dataclass(frozen=True)
class Linear(HeadSpec):
    def heads(self, shape: HeadShape) -> list[Head]:
        return [LinearHead(shape, self.pool) for _ in shape.layers]


class LinearHead(Head):
    def __init__(self, shape: HeadShape, pool: Pool):
        super().__init__()
        self.pool, self.per_token, self.size = pool, shape.per_token, shape.width
        self.reads_first = pool == "first" and not shape.per_token
        self.dropout = nn.Dropout(shape.dropout)
        self.out = plain(nn.Linear(shape.width, shape.labels))

    def feature(self, tokens: Tokens) -> Tensor:
        return tokens.each() if self.per_token else tokens.pooled(self.pool)

    def score(self, feature: Tensor) -> Tensor:
        return self.out(self.dropout(feature))
