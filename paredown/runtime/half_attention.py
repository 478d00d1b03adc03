"""Attention on a CPU in bfloat16: plain products by oneDNN, in the place of torch's kernel.

That one asks MKL in 32 bits, and takes as long in 16 where a CPU has no tiles (AMX).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from paredown.system.machine import computes_bfloat16
from paredown.system.measured import Works, known_seconds

LONG = 64  # tokens of a row from which on it is worth the casts
AT_ONCE = 2**19  # scores: they stay in the cache
MARGIN = 1.1  # how many times faster it must be
SAMPLE = (4, 12, 128, 64)  # rows, attention heads, tokens and width of what is measured


def attend_in_half(query: Tensor, key: Tensor, value: Tensor, found: Tensor) -> None:
    """Writes what queries find; all are [rows, attention heads, tokens, width]."""
    rows, heads, length, width = query.shape
    for some in _slices(rows, heads * length**2):
        sought, keyed, valued = (
            one[some].to(torch.bfloat16, memory_format=torch.contiguous_format).flatten(0, 1)
            for one in (query, key, value)
        )
        sought.mul_(width**-0.5)
        mixed = torch.empty_like(sought)
        for part in _slices(len(mixed), length**2):
            weights = torch.bmm(sought[part], keyed[part].transpose(1, 2)).softmax(-1, dtype=torch.float32)
            torch.bmm(weights.bfloat16(), valued[part], out=mixed[part])
        found[some] = mixed.unflatten(0, (-1, heads))


def _slices(number: int, scores: int) -> Iterator[slice]:
    """Of things with so many scores each, as many as the cache has room for."""
    step = max(1, AT_ONCE // scores)
    return (slice(first, first + step) for first in range(0, number, step))


@cache
def prefers_half(threads: int) -> bool:
    """Whether it is faster on this machine with so many threads."""
    if not computes_bfloat16(torch.device("cpu")):
        return False
    seconds = known_seconds("attention", ("32 bits", "bfloat16"), _works)
    return seconds["bfloat16"] * MARGIN < seconds["32 bits"]


def _works() -> Works:
    drawn = torch.Generator().manual_seed(0)
    query, key, value, found = (torch.randn(SAMPLE, generator=drawn) for _ in range(4))
    return {
        "32 bits": lambda: F.scaled_dot_product_attention(query, key, value),
        "bfloat16": lambda: attend_in_half(query, key, value, found),
    }
