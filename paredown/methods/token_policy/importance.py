"""How much every token matters to a model that sees them all: the residual strategy of TR-BERT, made when needed."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from paredown.encoders.probing import evaluating
from paredown.engine import Observer, run_steps
from paredown.methods._stage import Batch
from paredown.model import AdaptiveModel
from paredown.plan import Plan
from paredown.route import Step
from paredown.state import State

Seen = dict[int, State]  # what the selector before each layer sees, while every token stays


def importance(
    model: AdaptiveModel, batch: Batch, loss: Callable[[AdaptiveModel, Tensor, Batch], Tensor]
) -> tuple[dict[int, Tensor], Seen]:
    """By layer, [rows, tokens]: how much the loss would change, to first order, if a token's state two thirds of the
    way up were still the one that the selector sees. And those states."""
    steps = model.route(Plan(model.depth)).steps
    chosen = [step for step in steps if model.selects_before(step.layer)]
    reached = max(2 * len(steps) // 3 + 1, *(step.number for step in chosen))
    watched = Middle({step.layer for step in chosen}, reached)
    with evaluating(model), torch.no_grad():
        state = run_steps(model.walk, steps, model.embed(batch), watched)
        with torch.enable_grad():
            logits = model.evidence(state, steps[-1]).logits
            (gradient,) = torch.autograd.grad(loss(model, logits, batch), watched.middle)
    change = {layer: watched.middle.detach() - state.hidden for layer, state in watched.seen.items()}
    scores = {layer: (gradient.float() * moved.float()).sum(-1).abs() for layer, moved in change.items()}
    return scores, watched.seen


class Middle(Observer):
    """Keeps the states before some layers, and lets gradients flow from the states after the step `reached` on."""

    def __init__(self, layers: set[int], reached: int):
        self.layers, self.reached = layers, reached
        self.seen = Seen()

    def before(self, state: State, step: Step) -> State:
        if step.layer in self.layers:
            self.seen[step.layer] = state
        return state

    def after(self, state: State, step: Step) -> State:
        if step.number == self.reached:
            self.middle = state.hidden.requires_grad_()
            torch.set_grad_enabled(True)  # until the caller's own no_grad ends
        return state


def rank(scores: Tensor, free: Tensor) -> Tensor:
    """[rows, tokens] the rank of every token among those that may be dropped, the most important first."""
    return scores.masked_fill(~free, -math.inf).argsort(dim=1, descending=True, stable=True).argsort(dim=1)
