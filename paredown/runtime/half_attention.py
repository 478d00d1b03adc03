"""Attention on a CPU in bfloat16, in the way that is the fastest on the machine.

Torch's own kernel is, where a CPU has tiles (AMX). Where it has not, that takes as long as in 32 bits, and plain
products by oneDNN can be faster.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial

import torch
import torch.nn.functional as F
from torch import Tensor

from paredown.system.machine import computes_bfloat16
from paredown.system.measured import Works, known_seconds

LONG = 64  # tokens of a row from which on it is worth the casts
AT_ONCE = 2**19  # scores: they stay in the cache
MARGIN = 1.1  # how many times faster it must be
SAMPLE = (4, 12, 128, 64)  # rows, attention heads, tokens and width of what is measured
LEAST, MOST = 1e-20, 1e30  # sums of powers far from where bfloat16 ends


@dataclass(frozen=True)
class HalfAttention:
    """How what queries find is written down: by queries, keys and values [rows, attention heads, tokens, width], what
    is added to scores [rows, 1, 1, tokens], and where it is to be written, which is like queries."""

    attend: Callable[[Tensor, Tensor, Tensor, Tensor | None, Tensor], object]
    joins: bool = False  # whether calls cost so much that short rows are better padded to a common length


def by_kernel(query: Tensor, key: Tensor, value: Tensor, added: Tensor | None, found: Tensor) -> None:
    halves = (query.bfloat16(), key.bfloat16(), value.bfloat16())
    found.copy_(F.scaled_dot_product_attention(*halves, attn_mask=None if added is None else added.bfloat16()))


def by_products(query: Tensor, key: Tensor, value: Tensor, added: Tensor | None, found: Tensor) -> None:
    rows, heads, length, _ = query.shape
    for some in _slices(rows, heads * length**2):
        sought, keyed, valued = (_in_order(one[some]) for one in (query, key, value))
        more = None if added is None else added[some].bfloat16().expand(-1, heads, -1, -1).flatten(0, 1)
        mixed, total = torch.empty_like(sought), torch.empty((len(sought), length, 1))
        for part in _slices(len(mixed), length**2):
            powers = _powers(sought[part], keyed[part], None if more is None else more[part], total[part])
            torch.bmm(powers, valued[part], out=mixed[part])
        found[some].copy_(mixed.unflatten(0, (-1, heads))).div_(total.unflatten(0, (-1, heads)))


def _in_order(values: Tensor) -> Tensor:
    """[rows times attention heads, tokens, width] in bfloat16."""
    return values.to(torch.bfloat16, memory_format=torch.contiguous_format, copy=True).flatten(0, 1)


def _powers(query: Tensor, key: Tensor, added: Tensor | None, total: Tensor) -> Tensor:
    """What a softmax would divide by its sum, which is written to `total`. As powers of two they take a fourth of the
    time; scores are made smaller only where sums are too large or small, which hardly ever happens. Then by whole
    numbers, so that what a row finds does not depend on whose sums these are."""
    powers = _scores(query, key, added).exp2_()
    torch.sum(powers, -1, keepdim=True, dtype=torch.float32, out=total)
    least, most = total.aminmax()
    if not (least > LEAST and most < MOST):
        scores = _scores(query, key, added).float()
        powers = scores.sub_(scores.amax(-1, keepdim=True).floor_()).exp2_().bfloat16()
        torch.sum(powers, -1, keepdim=True, dtype=torch.float32, out=total)
    return powers


def _scores(query: Tensor, key: Tensor, added: Tensor | None) -> Tensor:
    """Whose powers of two are the powers of e of what attention's scores usually are."""
    ignored = query.new_empty((1, 1, 1))
    per_unit = math.log2(math.e) * query.shape[-1] ** -0.5
    more, beta = (ignored, 0) if added is None else (added, 1)
    return torch.baddbmm(more, query, key.transpose(1, 2), beta=beta, alpha=per_unit)


def _slices(number: int, scores: int) -> Iterator[slice]:
    """Of things with so many scores each, as many as the cache has room for."""
    step = max(1, AT_ONCE // scores)
    return (slice(first, first + step) for first in range(0, number, step))


WAYS = {"kernel": HalfAttention(by_kernel), "products": HalfAttention(by_products, joins=True)}


@cache
def faster_in_half() -> HalfAttention | None:
    """The fastest way on this machine; None where 32 bits are about as fast."""
    if not computes_bfloat16(torch.device("cpu")):
        return None
    seconds = known_seconds("attention in 16 bits", ("32 bits", *WAYS), _works)
    name = min(WAYS, key=lambda one: seconds[one])
    return WAYS[name] if seconds[name] * MARGIN < seconds["32 bits"] else None


def _works() -> Works:
    drawn = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(SAMPLE, generator=drawn) for _ in range(3))
    found = torch.empty_like(query)
    ways = {name: partial(way.attend, query, key, value, None, found) for name, way in WAYS.items()}
    return {"32 bits": lambda: found.copy_(F.scaled_dot_product_attention(query, key, value)), **ways}
