"""Attention of long rows on a CPU in bfloat16, in the way that is the fastest on the machine.

Torch's own kernel is, where a CPU has tiles (AMX). Where it has not, that takes as long as in 32 bits, and plain
products by oneDNN can be faster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial

import torch
import torch.nn.functional as F
from torch import Tensor

from paredown.system.machine import computes_bfloat16
from paredown.system.measured import Works, known_seconds

Way = Callable[[Tensor, Tensor, Tensor], Tensor]  # of queries, keys and values [rows, attention heads, tokens, width]
LONG = 64  # tokens of a row from which on it is worth the casts
AT_ONCE = 2**19  # scores: they stay in the cache
MARGIN = 1.1  # how many times faster it must be
SAMPLE = (4, 12, 128, 64)  # rows, attention heads, tokens and width of what is measured


def by_kernel(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(query.bfloat16(), key.bfloat16(), value.bfloat16())


def by_products(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    rows, heads, length, width = query.shape
    found = torch.empty_like(query, dtype=torch.bfloat16)
    for some in _slices(rows, heads * length**2):
        sought, keyed, valued = (
            one[some].to(torch.bfloat16, memory_format=torch.contiguous_format, copy=True).flatten(0, 1)
            for one in (query, key, value)
        )
        sought.mul_(width**-0.5)
        mixed = torch.empty_like(sought)
        for part in _slices(len(mixed), length**2):
            weights = torch.bmm(sought[part], keyed[part].transpose(1, 2)).softmax(-1, dtype=torch.float32)
            torch.bmm(weights.bfloat16(), valued[part], out=mixed[part])
        found[some] = mixed.unflatten(0, (-1, heads))
    return found


def _slices(number: int, scores: int) -> Iterator[slice]:
    """Of things with so many scores each, as many as the cache has room for."""
    step = max(1, AT_ONCE // scores)
    return (slice(first, first + step) for first in range(0, number, step))


WAYS: dict[str, Way] = {"kernel": by_kernel, "products": by_products}


@cache
def faster_in_half(threads: int) -> Way | None:
    """The fastest way on this machine with so many threads; None where 32 bits are about as fast."""
    if not computes_bfloat16(torch.device("cpu")):
        return None
    seconds = known_seconds("attention in 16 bits", ("32 bits", *WAYS), _works)
    name = min(WAYS, key=lambda one: seconds[one])
    return WAYS[name] if seconds[name] * MARGIN < seconds["32 bits"] else None


def _works() -> Works:
    drawn = torch.Generator().manual_seed(0)
    rows = tuple(torch.randn(SAMPLE, generator=drawn) for _ in range(3))
    return {name: partial(way, *rows) for name, way in (WAYS | {"32 bits": F.scaled_dot_product_attention}).items()}
