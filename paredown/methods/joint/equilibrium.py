"""Gradient equilibrium (ElasticBERT): exits do not pull harder on the lower layers because there are more of them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from paredown.engine import Observer
from paredown.route import Step
from paredown.state import State


class _ScaleGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor, factor: float) -> Tensor:
        ctx.factor = factor
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return gradients[0] * ctx.factor, None


class Equilibrium(Observer):
    """Balances gradients between layers, for exits after these steps.

    A layer with n exits at or above it gets 1/n of the gradient at its output; what arrives there from the layer above
    was divided by that layer's own count and is multiplied by it again first. So each layer receives the mean over the
    exits above it, and heads are untouched.
    """

    def __init__(self, exits: set[int]):
        self.exits = exits

    def before(self, state: State, step: Step) -> State:
        if step.number == 1:
            return state
        return state.showing(_ScaleGradient.apply(state.hidden, float(self._at_or_above(step.number))))

    def after(self, state: State, step: Step) -> State:
        return state.showing(_ScaleGradient.apply(state.hidden, 1 / max(self._at_or_above(step.number), 1)))

    def _at_or_above(self, step: int) -> int:
        return sum(step <= stop for stop in self.exits)
