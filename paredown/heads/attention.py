"""A small self-attention over all tokens after every layer (FastBERT)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from paredown.errors import BadSetting
from paredown.heads._head import Head, HeadSpec
from paredown.network import HeadShape
from paredown.registry import heads
from paredown.state import Pool, Tokens
from paredown.system.products import LinearMap


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
        self.dense_in = LinearMap(shape.width, size)
        self.attention = SelfAttention(size, attention_heads, shape.dropout)
        self.dense_out = nn.Linear(size, size)
        self.out = nn.Linear(size, shape.labels)

    def feature(self, tokens: Tokens) -> Tensor:
        first = self.pool == "first" and not self.per_token  # only its answer is read: the others need not ask
        mixed = self.attention(tokens.map(self._inside), only_first=first)
        return self.dense_out(mixed.each() if self.per_token else mixed.pooled(self.pool)).tanh()

    def _inside(self, hidden: Tensor) -> Tensor:
        return self.dense_in(hidden).tanh()

    def score(self, feature: Tensor) -> Tensor:
        return self.out(feature)


class SelfAttention(nn.Module):
    """Self-attention alone: no residual, no norm, no feed-forward."""

    def __init__(self, size: int, attention_heads: int, dropout: float):
        super().__init__()
        self.attention_heads, self.dropout = attention_heads, dropout
        self.query, self.key, self.value, self.output = (LinearMap(size, size) for _ in range(4))

    def forward(self, tokens: Tokens, only_first: bool) -> Tokens:
        """What all tokens, or only the first of each row, find among all."""
        tokens = tokens.silenced()
        query = (tokens.first() if only_first else tokens).map(self.query)
        if only_first and not self.training and not query.hidden.is_cuda:
            return query.map(lambda asking: self._sought(tokens, asking))
        dropout = self.dropout if self.training else 0.0
        mixed = tokens.map(self.key).attend(query, tokens.map(self.value), self.attention_heads, dropout)
        return mixed.map(self.output)

    def _sought(self, tokens: Tokens, asking: Tensor) -> Tensor:
        """The same for one query a row: not all tokens pass the maps of keys and values, but what a query seeks in the
        tokens before the one, and what it finds there before the other. The keys' bias weighs all tokens alike."""
        key, value = (one.weight.unflatten(0, (self.attention_heads, -1)) for one in (self.key, self.value))
        sought = torch.einsum("...hd,hdw->...hw", asking.unflatten(-1, (self.attention_heads, -1)), key)
        found = tokens.weighted(sought.flatten(0, -3) * key.shape[1] ** -0.5)
        values = torch.einsum("rhw,hdw->rhd", found, value).flatten(1) + self.value.bias
        return self.output(values.view(asking.shape))
