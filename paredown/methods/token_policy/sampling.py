"""Trajectories: each row several times, with tokens dropped by chance with the selectors' probabilities."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from paredown.encoders.probing import evaluating
from paredown.engine import Observer, Trace, run_steps
from paredown.methods._stage import Batch
from paredown.methods.token_policy.importance import rank
from paredown.model import AdaptiveModel
from paredown.route import Step, straight
from paredown.state import State


@dataclass
class Draw:
    """Samples of the same rows one after the other: all rows, then all rows again. A question's options are rows."""

    trace: Trace
    surprise: (
        Tensor  # [samples * rows] how unlikely the choices were: a sum over the selectors, each a mean over tokens
    )
    kept: Tensor  # [samples * rows, selectors] tokens that were left
    length: Tensor  # [samples * rows] tokens there were

    def advantage(self, reward: Tensor, samples: int) -> Tensor:
        """[samples * questions] how much better a sample did than the mean of its question's samples."""
        each = reward.unflatten(0, (samples, -1))
        return (each - each.mean(0)).flatten()


def draw(
    model: AdaptiveModel,
    batch: Batch,
    samples: int,
    scores: dict[int, Tensor] | None = None,
    detach_dropped: bool = False,
) -> Draw:
    """Run every row `samples` times. With `scores` of importance by layer, the first time is guided by them."""
    many = repeated(batch, samples)
    chance = Chance(model, scores, detach_dropped)
    trace = model.trace(many, observer=chance)
    length = many["attention_mask"].sum(1)
    return Draw(trace, torch.stack(chance.surprise).sum(0), torch.stack(chance.kept, 1), length)


class Chance(Observer):
    """Drops tokens by chance; with `scores`, the first rows are guided by them."""

    drops_tokens = True

    def __init__(self, model: AdaptiveModel, scores: dict[int, Tensor] | None = None, detach_dropped: bool = False):
        self.model, self.scores, self.detach_dropped = model, scores, detach_dropped
        self.surprise: list[Tensor] = []
        self.kept: list[Tensor] = []

    def before(self, state: State, step: Step) -> State:
        if not self.model.selects_before(step.layer):
            return state
        logits, free = self.model.keep_logits(step.layer, state.hidden), state.free
        keep = torch.bernoulli(logits.detach().sigmoid()).bool()
        if self.scores is not None:
            scores = self.scores[step.layer]
            rows = len(scores)
            keep[:rows] = guided(scores.gather(1, state.position[:rows]), logits[:rows], free[:rows])
        unlikely = F.binary_cross_entropy_with_logits(logits, keep.float(), reduction="none") * free
        self.surprise.append(unlikely.sum(1) / free.sum(1).clamp(min=1))
        state = state.drop(keep)
        self.kept.append(state.lengths())
        return state.detach_dropped() if self.detach_dropped else state


@torch.no_grad()
def in_use(model: AdaptiveModel, batch: Batch) -> Tensor:
    """[rows, selectors] the share of tokens that stay when nothing is left to chance."""
    choices = [step for step, layer in enumerate(model.depth, 1) if model.selects_before(layer)]
    sure = Sure(model)
    with evaluating(model):
        state = model.embed(batch, joinable=True)
        run_steps(model.walk, straight(model.depth[: choices[-1]]), state, sure)
    return torch.stack([kept / state.lengths() for kept in sure.kept], 1)


class Sure(Observer):
    """Drops the tokens that are likelier to be dropped than kept."""

    def __init__(self, model: AdaptiveModel):
        self.model = model
        self.kept: list[Tensor] = []

    def before(self, state: State, step: Step) -> State:
        if self.model.selects_before(step.layer):
            state = state.drop(self.model.keep_logits(step.layer, state.hidden) >= 0)
            self.kept.append(state.lengths())
        return state


def guided(scores: Tensor, logits: Tensor, free: Tensor) -> Tensor:
    """[rows, tokens] as many tokens as the selector would keep on average, but the most important ones."""
    expected = (logits.detach().sigmoid() * free).sum(1, keepdim=True)
    return rank(scores, free) < (expected + 0.5).floor()


def repeated(batch: Batch, times: int) -> Batch:
    """The batch repeated so many times; a question and its repetitions are different ones."""
    many = {name: value.repeat(times, *[1] * (value.dim() - 1)) for name, value in batch.items()}
    if (group := batch.get("group")) is not None:
        turn = torch.arange(times, device=group.device).repeat_interleave(len(group))
        many["group"] = many["group"] + turn * (group[-1] + 1)
    return many
