"""A pooler and a linear map after every layer (DeeBERT, ElasticBERT); or one pooler shared by all layers (PABEE)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from paredown.growing import HeadShape
from paredown.heads._head import Head, HeadSpec, Pool, copied, plain, pooled
from paredown.registry import heads


@heads.register("pooler")
@dataclass(frozen=True)
class Pooler(HeadSpec):
    def heads(self, shape: HeadShape) -> list[Head]:
        return [PoolerHead(shape, own_pooler(shape), self.pool) for _ in shape.layers]


@heads.register("shared_pooler")
@dataclass(frozen=True)
class SharedPooler(HeadSpec):
    def heads(self, shape: HeadShape) -> list[Head]:
        dense = shape.pooler if shape.pooler is not None else own_pooler(shape)
        return [PoolerHead(shape, dense, self.pool) for _ in shape.layers]


class PoolerHead(Head):
    def __init__(self, shape: HeadShape, dense: nn.Linear, pool: Pool):
        super().__init__()
        self.pool, self.per_token, self.size = pool, shape.per_token, shape.width
        self.dense = dense
        self.dropout = nn.Dropout(shape.dropout)
        self.out = plain(nn.Linear(shape.width, shape.labels))

    def feature(self, hidden: Tensor, mask: Tensor) -> Tensor:
        return self.dense(hidden if self.per_token else pooled(hidden, mask, self.pool)).tanh()

    def score(self, feature: Tensor) -> Tensor:
        return self.out(self.dropout(feature))


def own_pooler(shape: HeadShape) -> nn.Linear:
    """The encoder's own pooler to start from, where it has one."""
    return plain(nn.Linear(shape.width, shape.width)) if shape.pooler is None else copied(shape.pooler)
