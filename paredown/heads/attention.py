"""A small self-attention over all tokens after every layer (FastBERT)."""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

from paredown.errors import BadSetting
from paredown.heads._head import Head, HeadSpec, Pool, pooled
from paredown.network import HeadShape
from paredown.registry import heads


@heads.register("attention")
@dataclass(frozen=True)
class Attention(HeadSpec):
    size: int = 128  # width inside the head
    attention_heads: int = 2  # heads of its self-attention; they share the width

    def __post_init__(self) -> None:
        if self.size < 1 or self.attention_heads < 1 or self.size % self.attention_heads:
            raise BadSetting(f"attention: {self.attention_heads} attention heads cannot share a width of {self.size}")

    def heads(self, shape: HeadShape) -> list[Head]:
        return [AttentionHead(shape, self.size, self.attention_heads, self.pool) for _ in shape.layers]


class AttentionHead(Head):
    """Linear maps keep PyTorch's own initial weights, as in the published code."""

    def __init__(self, shape: HeadShape, size: int, attention_heads: int, pool: Pool):
        super().__init__()
        self.pool, self.per_token, self.size = pool, shape.per_token, size
        self.dense_in = nn.Linear(shape.width, size)
        self.attention = SelfAttention(size, attention_heads, shape.dropout)
        self.dense_out = nn.Linear(size, size)
        self.out = nn.Linear(size, shape.labels)

    def feature(self, hidden: Tensor, mask: Tensor) -> Tensor:
        first = self.pool == "first" and not self.per_token  # only its answer is read: the others need not ask
        mixed = self.attention(self.dense_in(hidden).tanh(), mask, 1 if first else hidden.shape[1])
        return self.dense_out(mixed if self.per_token else pooled(mixed, mask, self.pool)).tanh()

    def score(self, feature: Tensor) -> Tensor:
        return self.out(feature)


class SelfAttention(nn.Module):
    """Self-attention alone: no residual, no norm, no feed-forward."""

    def __init__(self, size: int, attention_heads: int, dropout: float):
        super().__init__()
        self.attention_heads, self.dropout = attention_heads, dropout
        self.query, self.key, self.value, self.output = (nn.Linear(size, size) for _ in range(4))

    def forward(self, hidden: Tensor, mask: Tensor, asking: int) -> Tensor:
        """[rows, asking, size]: what the first so many tokens find among all."""
        # A weight of 0 does not silence NaN or infinity, which padding may hold.
        hidden = hidden.masked_fill(~mask.unsqueeze(-1), 0.0)
        query, key, value = (
            linear(seen).unflatten(-1, (self.attention_heads, -1)).transpose(1, 2)
            for linear, seen in ((self.query, hidden[:, :asking]), (self.key, hidden), (self.value, hidden))
        )  # [rows, attention heads, tokens, size / attention heads]
        dropout = self.dropout if self.training else 0.0
        mixed = F.scaled_dot_product_attention(query, key, value, mask[:, None, None, :], dropout)
        return self.output(mixed.transpose(1, 2).flatten(2))
