"""Let all heads so far decide together: leave when one class has enough votes, when the mean answer is sure, or when
this head is sure and those before it agree."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from paredown.exits._rule import PerLayer, ProbabilityRule, count_at
from paredown.exits.confidence import Confidence
from paredown.registry import exits
from paredown.state import Evidence, Memory


@exits.register("vote")
@dataclass(frozen=True)
class Vote(ProbabilityRule):
    votes: int = 3  # leave when at least so many heads, this one among them, chose this head's class; from 2

    knob = "votes"
    limits = (2, math.inf)
    per_layer = False

    def certainty(self, evidence: Evidence, memory: Memory) -> tuple[Tensor, Memory]:
        predicted = evidence.predicted  # [rows, items]
        tally = F.one_hot(predicted, evidence.log_probs.shape[-1])  # [rows, items, classes]
        if memory:
            tally = tally + memory["tally"]
        # Not the largest count: of several items, one that won earlier may be answered otherwise by this head.
        votes = tally.gather(-1, predicted.unsqueeze(-1)).squeeze(-1)
        return evidence.least(votes.float()), {"tally": tally}

    def _bound(self, value: float) -> float:
        return value - 1

    def _value_at(self, speed: float) -> float:
        return 1 + count_at(speed)


@exits.register("ensemble")
@dataclass(frozen=True)
class Ensemble(Confidence):
    threshold: PerLayer = 0.9  # leave when the mean logits' largest probability is strictly above; 1 never, 0 at once

    def certainty(self, evidence: Evidence, memory: Memory) -> tuple[Tensor, Memory]:
        total, heads = _added(evidence.logits.float(), memory)
        certainty, _ = super().certainty(evidence.with_logits(_mean(total, heads)), {})
        return certainty, {"total": total, "heads": heads}

    def answer(self, evidence: Evidence, memory: Memory) -> Tensor:
        return _mean(*_added(evidence.logits.float(), memory)).to(evidence.logits.dtype)


@exits.register("confirmed")
@dataclass(frozen=True)
class Confirmed(Confidence):
    """The certainty has the mean of two log-odds: of this head's largest probability, and of what all heads so far gave
    that class on average."""

    threshold: PerLayer = 0.9  # leave when the certainty is strictly above; 1 never, 0 at once

    def certainty(self, evidence: Evidence, memory: Memory) -> tuple[Tensor, Memory]:
        probs = evidence.log_probs.exp()  # [rows, items, classes]
        total, heads = _added(probs, memory)
        own, chosen = probs.max(-1, keepdim=True)
        so_far = _mean(total, heads).gather(-1, chosen)
        certainty = ((own.logit() + so_far.logit()) / 2).sigmoid()
        return evidence.least(certainty.squeeze(-1)), {"total": total, "heads": heads}


def _added(values: Tensor, memory: Memory) -> tuple[Tensor, Tensor]:
    """Their sum over the heads so far, and how many these are, [rows]; this one included."""
    heads = torch.ones(len(values), device=values.device)
    return (values + memory["total"], heads + memory["heads"]) if memory else (values, heads)


def _mean(total: Tensor, heads: Tensor) -> Tensor:
    return total / heads.view(-1, *[1] * (total.dim() - 1))
