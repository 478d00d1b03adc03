"""A pooler with its classifier, and a view on the words: what ElasticBERT pre-trains after every layer."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from paredown.heads._head import Head, HeadSpec, plain
from paredown.heads.pooler import PoolerHead, own_pooler
from paredown.network import HeadShape
from paredown.registry import heads
from paredown.state import Pool


@heads.register("pretraining")
@dataclass(frozen=True)
class Pretraining(HeadSpec):
    def heads(self, shape: HeadShape) -> list[Head]:
        vocabulary, size = shape.words or (0, shape.width)
        bias = nn.Parameter(torch.zeros(vocabulary))  # one for all layers, as the word embeddings are
        return [PretrainingHead(shape, own_pooler(shape, layer), self.pool, size, bias) for layer in shape.layers]


class PretrainingHead(PoolerHead):
    def __init__(self, shape: HeadShape, dense: nn.Linear, pool: Pool, size: int, bias: nn.Parameter):
        super().__init__(shape, dense, pool)
        self.transform = plain(nn.Linear(shape.width, size))
        self.norm = nn.LayerNorm(size, eps=1e-12)
        self.bias = bias

    def words(self, hidden: Tensor, embeddings: Tensor) -> Tensor:
        """[…, vocabulary]: which word stands at a position, as logits; `embeddings` are the encoder's own."""
        return F.linear(self.norm(F.gelu(self.transform(hidden))), embeddings, self.bias)
