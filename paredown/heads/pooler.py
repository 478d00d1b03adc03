"""A pooler and a linear map after every layer (DeeBERT, ElasticBERT); or one pooler shared by all layers (PABEE)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from paredown.heads._head import Head, HeadSpec, copied, plain
from paredown.network import HeadShape
from paredown.registry import heads
from paredown.state import Pool, Tokens
from paredown.system.products import LinearMap


@heads.register("pooler")
@dataclass(frozen=True)
class Pooler(HeadSpec):
    def heads(self, shape: HeadShape) -> list[Head]:
        return [PoolerHead(shape, own_pooler(shape, layer), self.pool) for layer in shape.layers]


@heads.register("shared_pooler")
@dataclass(frozen=True)
class SharedPooler(HeadSpec):
    def heads(self, shape: HeadShape) -> list[Head]:
        dense = shape.pooler if shape.pooler is not None else own_pooler(shape, shape.layers[-1])
        return [PoolerHead(shape, dense, self.pool) for _ in shape.layers]


class PoolerHead(Head):
    def __init__(self, shape: HeadShape, dense: nn.Linear, pool: Pool):
        super().__init__()
        self.pool, self.per_token, self.size = pool, shape.per_token, shape.width
        self.reads_first = pool == "first" and not shape.per_token
        self.dense = dense
        self.dropout = nn.Dropout(shape.dropout)
        self.out = plain(nn.Linear(shape.width, shape.labels))

    def feature(self, tokens: Tokens) -> Tensor:
        return self.dense(tokens.each() if self.per_token else tokens.pooled(self.pool)).tanh()

    def score(self, feature: Tensor) -> Tensor:
        return self.out(self.dropout(feature))


def own_pooler(shape: HeadShape, layer: int) -> nn.Linear:
    """A pooler that starts as the one pre-trained for this layer, else as the encoder's own, where there is one."""
    known = shape.poolers.get(layer, shape.pooler)
    return plain(LinearMap(shape.width, shape.width)) if known is None else copied(known)
