"""Maps of tokens, applied to a part of them at a time, and to numbers of tokens that come again."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from paredown.system.products import in_known_sizes

Map = Callable[[Tensor], Tensor]

PART = 2048  # tokens of one call
INNER = 256  # of one with large tensors within: they stay in the cache, and their memory is not asked for anew


def in_parts(function: Map, rounds: bool, most: int = PART) -> Map:
    """`rounds`: in numbers of tokens that come again."""
    apply: Map = (lambda part: in_known_sizes(function, part)) if rounds else function

    def applied(hidden: Tensor) -> Tensor:
        if len(hidden) <= most:
            return apply(hidden)
        return torch.cat([apply(part) for part in hidden.split(most)])

    return applied
