"""Attention among the tokens of every row, where rows lie one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from paredown.runtime.half_attention import LONG, HalfAttention
from paredown.runtime.slots import Run
from paredown.system.attention import without_plans

if TYPE_CHECKING:
    from paredown.runtime.packed_state import Packing

TRITON = find_spec("triton") is not None
HALF = (torch.float16, torch.bfloat16)  # what kernels for rows of different lengths know


@dataclass(frozen=True, eq=False)
class Distances:
    """What is added to attention scores, by how far apart two tokens are."""

    table: Tensor  # [2 * reach + 1, attention heads, or 1 for all]
    window: int | None = None  # tokens further apart do not see each other, and that is all
    copied: tuple[Tensor, ...] = ()  # what the table was made from
    squares: dict[int, Tensor] = field(default_factory=dict, repr=False)  # by length, of rows that lost no token

    @property
    def reach(self) -> int:
        return len(self.table) // 2

    def of(self, position: Tensor) -> Tensor:
        """[rows, attention heads, tokens, tokens] for tokens at `position` [rows, tokens]."""
        return self.table[position.unsqueeze(1) - position.unsqueeze(2) + self.reach].permute(0, 3, 1, 2)

    def square(self, length: int) -> Tensor:
        """[1, attention heads, length, length] for a row that lost no token."""
        if length not in self.squares:
            self.squares[length] = self.of(torch.arange(length, device=self.table.device).unsqueeze(0)).contiguous()
        return self.squares[length]


@dataclass(frozen=True)
class Bias:
    """What is added to the scores of a batch: by distances between tokens, which are where `position` says."""

    distances: Distances
    position: Tensor  # [tokens]
    whole: bool  # no row has lost a token


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    queries: Packing,
    keys: Packing,
    bias: Bias | None = None,
    half: HalfAttention | None = None,
) -> Tensor:
    """[queries, attention heads, width] of what each query finds among the keys of its row. `half`: how a CPU attends
    in bfloat16; then answers have 32 bits, whatever was asked in."""
    if query.is_cuda:
        window = None if bias is None else bias.distances.window
        if query.dtype in HALF and (bias is None or (bias.whole and window is not None)):
            if TRITON and window is None:
                from paredown.runtime.kernels import attend_rows

                return attend_rows(query, key, value, queries, keys)
            return _varlen(query, key, value, queries, keys, window)
        return _padded(query, key, value, queries, keys, bias)
    if half is not None and bias is None:
        return _attend_in_half(query, key, value, keys, half)
    mixed = torch.empty(query.shape, dtype=query.dtype)
    for asking, among, added in _runs(queries, keys, bias):
        rows = _rows(query, asking), _rows(key, among), _rows(value, among)
        _rows(mixed, asking).copy_(F.scaled_dot_product_attention(*rows, attn_mask=added))
    return mixed


def _attend_in_half(query: Tensor, key: Tensor, value: Tensor, packing: Packing, half: HalfAttention) -> Tensor:
    """The same, among tokens that all ask. Short rows that come in 32 bits keep them."""
    halves = query.dtype == torch.bfloat16
    slots = packing.slots if half.joins and halves else None
    if slots is not None:
        query, key, value = (one.index_select(0, slots.token) for one in (query, key, value))
    mixed = torch.empty(query.shape)
    for run, added in slots.runs if slots is not None else ((run, None) for run in packing.runs):
        rows, found = (_rows(query, run), _rows(key, run), _rows(value, run)), _rows(mixed, run)
        if run[-1] >= LONG or (half.joins and halves):
            half.attend(*rows, added, found)
        else:
            found.copy_(F.scaled_dot_product_attention(*rows))
    return mixed if slots is None else mixed.index_select(0, slots.slot)


def watch(query: Tensor, key: Tensor, value: Tensor, packing: Packing, bias: Bias | None) -> tuple[Tensor, Tensor]:
    """What `attend` finds, and [tokens] the attention that each token receives: the mean over heads and queries, times
    their number, so that 1 is average."""
    if query.is_cuda:
        return _padded_watch(query, key, value, packing, bias)
    mixed, received = torch.empty(query.shape, dtype=query.dtype), query.new_empty(len(query), dtype=torch.float32)
    for run, _, added in _runs(packing, packing, bias):
        asking, keys, values = (_rows(one, run) for one in (query, key, value))
        weights = _weights(asking, keys, added)
        start, rows, length = run
        mixed[start : start + rows * length] = (weights.to(values.dtype) @ values).transpose(1, 2).flatten(0, 1)
        received[start : start + rows * length] = weights.mean(1).sum(1).flatten()
    return mixed, received


def _weights(query: Tensor, key: Tensor, added: Tensor | None) -> Tensor:
    scores = (query @ key.transpose(-1, -2)).float() * query.shape[-1] ** -0.5
    return (scores if added is None else scores + added).softmax(-1)


def _runs(queries: Packing, keys: Packing, bias: Bias | None) -> Iterator[tuple[Run, Run, Tensor | None]]:
    """Neighbouring rows with as many queries and keys each, and what is added to their scores."""
    if queries is keys:
        pairs: Any = zip(keys.runs, keys.runs, strict=True)
    else:  # one query a row
        ends = [0]
        for _, rows, _ in keys.runs:
            ends.append(ends[-1] + rows)
        pairs = [((ends[at], rows, 1), (start, rows, length)) for at, (start, rows, length) in enumerate(keys.runs)]
    for asking, among in pairs:
        added = None
        if bias is not None:
            start, rows, length = among
            if bias.whole:
                added = bias.distances.square(length)
            else:
                added = bias.distances.of(bias.position[start : start + rows * length].view(rows, length))
        yield asking, among, added


def _rows(values: Tensor, run: Run) -> Tensor:
    """[rows, attention heads, tokens, width] of the tokens of some neighbours."""
    start, rows, length = run
    return values[start : start + rows * length].unflatten(0, (rows, length)).transpose(1, 2)


# On a GPU


def _varlen(query: Tensor, key: Tensor, value: Tensor, queries: Packing, keys: Packing, window: int | None) -> Tensor:
    from torch.nn.attention.varlen import varlen_attn

    settings: dict[str, Any] = {} if window is None else {"window_size": (window, window)}
    sizes = (queries.offsets, keys.offsets, queries.longest, keys.longest)
    mixed: Any = varlen_attn(query, key, value, *sizes, **settings)
    return mixed


def _padded(query: Tensor, key: Tensor, value: Tensor, queries: Packing, keys: Packing, bias: Bias | None) -> Tensor:
    """With padding, for what no kernel for rows of different lengths can do."""
    asking, there, values = _padded_rows(query, queries), _padded_rows(key, keys), _padded_rows(value, keys)
    with without_plans(query.device):
        mixed = F.scaled_dot_product_attention(asking, there, values, attn_mask=_mask(keys, bias, query.dtype))
    return _packed_rows(mixed, queries, len(query))


def _padded_watch(
    query: Tensor, key: Tensor, value: Tensor, packing: Packing, bias: Bias | None
) -> tuple[Tensor, Tensor]:
    asking, keys, values = (_padded_rows(one, packing) for one in (query, key, value))
    weights = _weights(asking, keys, _mask(packing, bias, torch.float32))
    mixed = _packed_rows(weights.to(values.dtype) @ values, packing, len(query))
    real = torch.arange(packing.longest, device=query.device) < packing.lengths.unsqueeze(1)
    received = weights.mean(1).masked_fill(~real.unsqueeze(-1), 0.0).sum(1)
    return mixed, received[packing.owner, packing.within]


def _mask(packing: Packing, bias: Bias | None, dtype: torch.dtype) -> Tensor:
    """[rows, attention heads, 1 or tokens, tokens]"""
    columns = torch.arange(packing.longest, device=packing.lengths.device)
    real = (columns < packing.lengths.unsqueeze(1))[:, None, None, :]
    lowest = torch.finfo(dtype).min
    hidden = torch.zeros(real.shape, dtype=dtype, device=real.device).masked_fill(~real, lowest)
    if bias is None:
        return hidden
    if bias.whole:
        return hidden + bias.distances.square(packing.longest).to(dtype).clamp(min=lowest / 2)
    position = hidden.new_zeros((len(packing), packing.longest), dtype=torch.long)
    position[packing.owner, packing.within] = bias.position[: packing.tokens]
    return (hidden + bias.distances.of(position).to(dtype).clamp(min=lowest / 2)).clamp(min=lowest)


def _padded_rows(values: Tensor, packing: Packing) -> Tensor:
    """[rows, attention heads, tokens, width]; what follows a row is padding that no mask lets through."""
    columns = torch.arange(packing.longest, device=values.device)
    index = (packing.starts.unsqueeze(1) + columns).clamp_(max=len(values) - 1)
    return values[index].transpose(1, 2)


def _packed_rows(values: Tensor, packing: Packing, tokens: int) -> Tensor:
    packed = values.transpose(1, 2)[packing.owner, packing.within]
    return packed if len(packed) == tokens else F.pad(packed, (0, 0, 0, 0, 0, tokens - len(packed)))
