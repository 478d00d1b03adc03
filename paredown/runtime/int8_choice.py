"""Which int8 kernel is the fastest on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from transformers.activations import GELUActivation

from paredown.errors import BadSetting
from paredown.runtime.int8_kernels import KERNELS, UNIT, Kernel, Map, Weights
from paredown.system.measured import Works, known_seconds

TOKENS = 256


def choose(width: int, inner: int, name: str | None = None) -> Kernel:
    """The kernel of that name, or the one that computes a feed-forward of these sizes in the least time."""
    objections = {one: kernel.objection() for one, kernel in KERNELS.items()}
    if name is not None:
        if name not in KERNELS:
            raise BadSetting(f"there is no int8 kernel {name!r}; there are {', '.join(KERNELS)}")
        if objections[name] is not None:
            raise BadSetting(f"the int8 kernel {name} cannot be used: {objections[name]}")
        return KERNELS[name]
    usable = [one for one, objection in objections.items() if objection is None]
    if not usable:
        reasons = "; ".join(f"{one}: {objection}" for one, objection in objections.items())
        raise BadSetting(f"no int8 kernel can be used ({reasons})")
    if len(usable) == 1:
        return KERNELS[usable[0]]
    seconds = known_seconds(f"int8 feed-forward {width}x{inner}", usable, partial(works, usable, width, inner))
    return KERNELS[min(usable, key=lambda one: seconds[one])]


def works(names: Sequence[str], width: int, inner: int) -> Works:
    """By kernel, a feed-forward over some tokens."""
    drawn = torch.Generator().manual_seed(0)
    up, down = (
        Weights.of(torch.randn(shape, generator=drawn), torch.zeros(shape[0]))
        for shape in ((inner, width), (width, inner))
    )
    hidden = torch.randn((TOKENS, width), generator=drawn)
    return {name: partial(feed_forward(KERNELS[name], up, down), hidden) for name in names}


def feed_forward(kernel: Kernel, up: Weights, down: Weights) -> Map:
    """With a GELU, of inputs that lie between -1 and 1."""
    gelu = GELUActivation()
    first, second = kernel.linear(up, UNIT), kernel.linear(down, UNIT)
    return kernel.fused(up, gelu, down, UNIT, UNIT) or (lambda hidden: second(gelu(first(hidden))))
