"""Maps of tokens, applied to a part of them at a time, and to numbers of tokens that come again."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

Map = Callable[[Tensor], Tensor]

PART = 2048  # tokens of one call
INNER = 256  # of one with large tensors within: they stay in the cache, and their memory is not asked for anew
EXACT = 32  # so many tokens or fewer are not rounded up
FEW = 512  # so many or fewer by a sixteenth at most, more by half of that: there most of the time is spent


def in_parts(function: Map, rounds: bool, most: int = PART) -> Map:
    """`rounds`: oneDNN makes a kernel for every new number of tokens and forgets those of long ago."""
    apply: Map = (lambda part: _rounded(function, part)) if rounds else function

    def applied(hidden: Tensor) -> Tensor:
        if len(hidden) <= most:
            return apply(hidden)
        return torch.cat([apply(part) for part in hidden.split(most)])

    return applied


def rounded(tokens: int) -> int:
    """The number that is computed instead: hardly more, and one of some hundred."""
    if tokens <= EXACT:
        return tokens
    step = 1 << ((tokens - 1).bit_length() - (5 if tokens <= FEW else 6))
    return -(-tokens // step) * step


def _rounded(function: Map, hidden: Tensor) -> Tensor:
    missing = rounded(len(hidden)) - len(hidden)
    return function(F.pad(hidden, (0, 0, 0, missing)))[: len(hidden)] if missing else function(hidden)
