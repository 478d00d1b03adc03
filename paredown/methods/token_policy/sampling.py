"""Trajectories: each row several times, with tokens dropped by chance as the selectors' probabilities say."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from paredown.encoders.walk import evaluating
from paredown.methods._stage import Batch
from paredown.methods._targets import places
from paredown.methods.token_policy.importance import rank
from paredown.model import AdaptiveModel, Trace
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
    width: int  # tokens of the padded batch

    def advantage(self, reward: Tensor, samples: int) -> Tensor:
        """[samples * questions] how much better a sample did than the mean of its question's samples."""
        each = reward.unflatten(0, (samples, -1))
        return (each - each.mean(0)).flatten()


def draw(model: AdaptiveModel, batch: Batch, samples: int, scores: dict[int, Tensor] | None = None) -> Draw:
    """Run every row `samples` times. With `scores` of importance by layer, the first time is guided by them."""
    surprise: list[Tensor] = []
    kept: list[Tensor] = []

    def choose(state: State, layer: int) -> State:
        if str(layer) not in model.selectors:
            return state
        logits, free = model.keep_logits(state, layer), state.free
        keep = torch.bernoulli(logits.detach().sigmoid()).bool()
        if scores is not None:
            rows = len(scores[layer])
            keep[:rows] = guided(scores[layer].gather(1, state.position[:rows]), logits[:rows], free[:rows])
        unlikely = F.binary_cross_entropy_with_logits(logits, keep.float(), reduction="none") * free
        surprise.append(unlikely.sum(1) / free.sum(1).clamp(min=1))
        state = state.keep_tokens(keep)
        kept.append(state.mask.sum(1))
        return state

    many = repeated(batch, samples)
    trace = model.trace(many, reduce=choose)
    length, width = many["attention_mask"].sum(1), many["attention_mask"].shape[1]
    return Draw(trace, torch.stack(surprise).sum(0), torch.stack(kept, 1), length, width)


@torch.no_grad()
def in_use(model: AdaptiveModel, batch: Batch) -> Tensor:
    """[rows, selectors] the share of tokens that stay when nothing is left to chance."""
    shares: list[Tensor] = []
    with evaluating(model):
        state = model.walk.start(batch, may_drop=True)
        whole = state.mask.sum(1)
        for layer in model.depth:
            if str(layer) in model.selectors:
                state = state.keep_tokens(model.keep_logits(state, layer) >= 0)
                shares.append(state.mask.sum(1) / whole)
            if len(shares) == len(places(model)):
                break
            state = model.walk.step(state, layer)
    return torch.stack(shares, 1)


def guided(scores: Tensor, logits: Tensor, free: Tensor) -> Tensor:
    """[rows, tokens] as many tokens as the selector would keep on average, but the most important ones."""
    expected = (logits.detach().sigmoid() * free).sum(1, keepdim=True)
    return rank(scores, free) < (expected + 0.5).floor()


def repeated(batch: Batch, times: int) -> Batch:
    """Everything so many times; a question and its repetitions are different ones."""
    many = {name: value.repeat(times, *[1] * (value.dim() - 1)) for name, value in batch.items()}
    if (group := batch.get("group")) is not None:
        turn = torch.arange(times, device=group.device).repeat_interleave(len(group))
        many["group"] = many["group"] + turn * (group[-1] + 1)
    return many
