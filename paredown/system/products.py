"""Linear maps in 32 bits on a CPU, by the library that is faster there: the one that torch asks, or oneDNN.

torch asks MKL, which leaves half of the vector unit of many a CPU idle that is not Intel's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.flop_counter import register_flop_formula

from paredown.system.measured import Works, known_seconds

LEAST = 2**20  # multiplications; a call of oneDNN costs more than it saves on fewer
MARGIN = 1.1  # how many times faster oneDNN must be
SAMPLE = (256, 384, 1536)  # tokens, inputs and outputs of the map that is measured
EXACT = 32  # so many tokens or fewer are not rounded up
FEW = 512  # so many or fewer by a sixteenth at most, more by half of that: there most of the time is spent
KNOWN = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


class LinearMap(nn.Linear):
    """A linear map that answers by the faster library."""

    def forward(self, hidden: Tensor) -> Tensor:
        if not suits(hidden, self.weight):
            return super().forward(hidden)
        found = in_known_sizes(lambda part: onednn(part, self.weight, self.bias), hidden.flatten(0, -2))
        return found.unflatten(0, hidden.shape[:-1])


def suits(hidden: Tensor, weight: Tensor) -> bool:
    """Whether oneDNN is to compute it: it knows no gradients."""
    wide = hidden.numel() * len(weight) >= LEAST
    plain = hidden.dtype == weight.dtype == torch.float32 and hidden.device.type == "cpu"
    return wide and plain and not torch.is_grad_enabled() and prefers_onednn()


def onednn(hidden: Tensor, weight: Tensor, bias: Tensor | None, gelu: bool = False) -> Tensor:
    """`weight` may be as `laid_out` made it. `gelu`: followed by an exact GELU."""
    product: Tensor = torch.ops.mkldnn._linear_pointwise(hidden, weight, bias, "gelu" if gelu else "none", [], "none")
    return product


def laid_out(weight: Tensor) -> Tensor:
    """A copy of a weight in the order in which oneDNN reads it, which is what few tokens wait for."""
    copy: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), None)
    return copy


def in_known_sizes(function: Callable[[Tensor], Tensor], hidden: Tensor) -> Tensor:
    """A map of [tokens, width], of a number of tokens that comes again: oneDNN makes a kernel for every new one, and
    keeps a thousand."""
    missing = rounded(len(hidden)) - len(hidden)
    return function(F.pad(hidden, (0, 0, 0, missing)))[: len(hidden)] if missing else function(hidden)


def rounded(tokens: int) -> int:
    """The number that is computed instead: hardly more, and one of some hundred."""
    if tokens <= EXACT:
        return tokens
    step = 1 << ((tokens - 1).bit_length() - (5 if tokens <= FEW else 6))
    return -(-tokens // step) * step


@cache
def prefers_onednn() -> bool:
    """Whether it is the faster one on this machine."""
    if not KNOWN:
        return False
    seconds = known_seconds("linear map in 32 bits", ("torch", "onednn"), _works)
    return seconds["onednn"] * MARGIN < seconds["torch"]


def _works() -> Works:
    drawn = torch.Generator().manual_seed(0)
    tokens, inputs, outputs = SAMPLE
    hidden, weight = (torch.randn(shape, generator=drawn) for shape in ((tokens, inputs), (outputs, inputs)))
    ways: dict[str, Callable[[], Tensor]] = {
        "torch": lambda: F.linear(hidden, weight),
        "onednn": lambda: onednn(hidden, weight, None),
    }
    return ways


def _flops(*shapes: Any, out_shape: Any = None, **unused: Any) -> int:
    """As torch's counter counts what it knows: hidden states and weight are the first two."""
    hidden, weight = shapes[:2]
    return 2 * math.prod(hidden) * weight[0]


if KNOWN:
    register_flop_formula(torch.ops.mkldnn._linear_pointwise)(_flops)
