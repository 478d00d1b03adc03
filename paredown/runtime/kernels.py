"""Kernels for a GPU, in Triton: what torch does in several passes over memory, or for longer rows than ours are."""

from __future__ import annotations

import torch
import triton  # type: ignore[import-not-found, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, unused-ignore]
from torch import Tensor

from paredown.runtime.packed_state import Packing

LOG2_E = 1.4426950408889634
SHORT = 96  # tokens of a mean row that small tiles suit


def attend_rows(query: Tensor, key: Tensor, value: Tensor, queries: Packing, keys: Packing) -> Tensor:
    """[queries, attention heads, size] what each query finds among the keys of its row.

    Kernels made for long rows spend most of their time on tokens that a short row does not have."""
    tokens, heads, size = query.shape
    mixed = torch.empty((tokens, heads, size), dtype=query.dtype, device=query.device)
    short = keys.tokens <= SHORT * len(keys)
    rows, columns, warps, stages = (64, 32, 4, 2) if short else (128, 64, 8, 3)  # as measured
    grid = (len(queries), heads, triton.cdiv(queries.longest, rows))
    strides = (*query.stride()[:2], *key.stride()[:2], *value.stride()[:2])
    _attend[grid](
        query, key, value, mixed, queries.offsets, keys.offsets, *strides, heads, size, size**-0.5 * LOG2_E,
        ROWS=rows, COLUMNS=columns, WIDTH=triton.next_power_of_2(size), num_warps=warps, num_stages=stages,
    )  # fmt: skip
    return mixed


@triton.jit
def _attend(
    query, key, value, mixed, queries, keys,
    query_token, query_head, key_token, key_head, value_token, value_head, heads, size, scale,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    row, head, tile = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    first_query, first_key = tl.load(queries + row), tl.load(keys + row)
    asking, tokens = tl.load(queries + row + 1) - first_query, tl.load(keys + row + 1) - first_key
    start = tile * ROWS
    if start >= asking:
        return
    wide, here = tl.arange(0, WIDTH), start + tl.arange(0, ROWS)
    real = (here < asking)[:, None] & (wide < size)[None, :]
    index = (first_query + here).to(tl.int64)[:, None]
    asked = tl.load(query + index * query_token + head * query_head + wide[None, :], mask=real, other=0.0)
    most = tl.full((ROWS,), float("-inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    found = tl.zeros((ROWS, WIDTH), tl.float32)
    for begin in range(0, tokens, COLUMNS):
        there = begin + tl.arange(0, COLUMNS)
        seen = (there < tokens)[:, None] & (wide < size)[None, :]
        at = (first_key + there).to(tl.int64)[:, None]
        near = tl.load(key + at * key_token + head * key_head + wide[None, :], mask=seen, other=0.0)
        scores = tl.dot(asked, tl.trans(near)) * scale
        scores = tl.where((there < tokens)[None, :], scores, float("-inf"))
        larger = tl.maximum(most, tl.max(scores, 1))
        weights, shrink = tl.exp2(scores - larger[:, None]), tl.exp2(most - larger)
        total = total * shrink + tl.sum(weights, 1)
        worth = tl.load(value + at * value_token + head * value_head + wide[None, :], mask=seen, other=0.0)
        found = found * shrink[:, None] + tl.dot(weights.to(worth.dtype), worth)
        most = larger
    found = found / total[:, None]
    tl.store(mixed + (index * heads + head) * size + wide[None, :], found.to(mixed.dtype.element_ty), mask=real)


def add_norm(hidden: Tensor, residual: Tensor, weight: Tensor, bias: Tensor | None, eps: float) -> Tensor:
    """The layer norm of a sum, in one pass; `hidden` is overwritten."""
    tokens, width = hidden.shape
    block = triton.next_power_of_2(width)
    _add_norm[(tokens,)](
        hidden, residual, weight, weight if bias is None else bias, width, eps,
        BIAS=bias is not None, BLOCK=block, num_warps=4 if block >= 512 else 2,
    )  # fmt: skip
    return hidden


@triton.jit
def _add_norm(hidden, residual, weight, bias, width, eps, BIAS: tl.constexpr, BLOCK: tl.constexpr):
    token, column = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    real = column < width
    at = token * width + column
    total = tl.load(hidden + at, mask=real, other=0.0).to(tl.float32)
    total += tl.load(residual + at, mask=real, other=0.0).to(tl.float32)
    centred = tl.where(real, total - tl.sum(total, 0) / width, 0.0)
    scaled = centred * tl.rsqrt(tl.sum(centred * centred, 0) / width + eps)
    scaled = scaled * tl.load(weight + column, mask=real, other=0.0).to(tl.float32)
    if BIAS:
        scaled += tl.load(bias + column, mask=real, other=0.0).to(tl.float32)
    tl.store(hidden + at, scaled.to(hidden.dtype.element_ty), mask=real)


def in_eight_bits(hidden: Tensor, dtype: torch.dtype, least: float, gelu: bool) -> tuple[Tensor, Tensor]:
    """Values of every token by a scale of its own, [tokens, 1], in one pass; `gelu`: an exact one of them before."""
    tokens, width = hidden.shape
    found = torch.empty((tokens, width), dtype=dtype, device=hidden.device)
    scales = torch.empty((tokens, 1), dtype=torch.float32, device=hidden.device)
    block = triton.next_power_of_2(width)
    _in_eight_bits[(tokens,)](
        hidden.contiguous(), found, scales, width, least, torch.finfo(dtype).max,
        GELU=gelu, BLOCK=block, num_warps=8 if block >= 2048 else 4 if block >= 512 else 2,
    )  # fmt: skip
    return found, scales


@triton.jit
def _in_eight_bits(hidden, found, scales, width, least, largest, GELU: tl.constexpr, BLOCK: tl.constexpr):
    token, column = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    real = column < width
    at = token * width + column
    value = tl.load(hidden + at, mask=real, other=0.0).to(tl.float32)
    if GELU:
        value = 0.5 * value * (1.0 + tl.erf(value * 0.7071067811865476))
    scale = tl.maximum(tl.max(tl.abs(value), 0), least) / largest
    tl.store(scales + token, scale)
    tl.store(found + at, (value / scale).to(found.dtype.element_ty), mask=real)
