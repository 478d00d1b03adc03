"""Gradient equilibrium (ElasticBERT): exits do not pull harder on the lower layers because there are more of them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from paredown.model import Between


class _ScaleGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor, factor: float) -> Tensor:
        ctx.factor = factor
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return gradients[0] * ctx.factor, None


def equilibrium(exits: set[int]) -> Between:
    """What to do between two layers, for exits after these counts of layers run.

    A layer with n exits at or above it gets 1/n of the gradient at its output; what arrives there from the layer above
    was divided by that layer's own count and is multiplied by it again first. So each layer receives the mean over the
    exits above it, and heads are untouched.
    """

    def between(hidden: Tensor, run: int, total: int) -> tuple[Tensor, Tensor]:
        here, above = (sum(run + step <= stop for stop in exits) for step in (0, 1))
        seen = _ScaleGradient.apply(hidden, 1 / max(here, 1))
        return seen, _ScaleGradient.apply(seen, float(above))

    return between
