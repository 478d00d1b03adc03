"""How much every token matters to a model that sees them all: the residual strategy of TR-BERT, made when needed."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from paredown.encoders.walk import evaluating
from paredown.methods._stage import Batch
from paredown.methods._targets import places
from paredown.model import AdaptiveModel
from paredown.state import State

Seen = dict[int, State]  # what the selector before each layer sees, while every token stays


def importance(
    model: AdaptiveModel, batch: Batch, loss: Callable[[AdaptiveModel, Tensor, Batch], Tensor]
) -> tuple[dict[int, Tensor], Seen]:
    """By layer, [rows, tokens]: how much the loss would change, to first order, if a token's state two thirds of the
    way up were still the one that the selector sees. And those states."""
    depth, seen = model.depth, Seen()
    reached = max(2 * len(depth) // 3, *(depth.index(layer) for layer in places(model)))
    with evaluating(model), torch.no_grad():
        state = model.walk.start(batch)
        for place, layer in enumerate(depth):
            if str(layer) in model.selectors:
                seen[layer] = state
            with torch.set_grad_enabled(place > reached):
                state = model.walk.step(state, layer)
            if place == reached:
                middle = state.hidden.requires_grad_()
        with torch.enable_grad():
            said = model._evidence(state, depth[-1], len(depth), batch).logits
            (gradient,) = torch.autograd.grad(loss(model, said, batch), middle)
    change = {layer: middle.detach() - state.hidden for layer, state in seen.items()}
    return {layer: (gradient.float() * moved.float()).sum(-1).abs() for layer, moved in change.items()}, seen


def rank(scores: Tensor, free: Tensor) -> Tensor:
    """[rows, tokens] the place of every token among those that may be dropped, the most important first."""
    return scores.masked_fill(~free, -math.inf).argsort(dim=1, descending=True, stable=True).argsort(dim=1)
