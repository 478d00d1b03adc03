"""Let all heads so far decide together: leave when one class has enough votes, or when the mean answer is sure."""

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
        total, heads = self._added(evidence, memory)
        certainty, _ = super().certainty(evidence.with_logits(_mean(total, heads)), {})
        return certainty, {"total": total, "heads": heads}

    def answer(self, evidence: Evidence, memory: Memory) -> Tensor:
        return _mean(*self._added(evidence, memory)).to(evidence.logits.dtype)

    def _added(self, evidence: Evidence, memory: Memory) -> tuple[Tensor, Tensor]:
        """Sum of the logits and number of heads, [rows], this one included."""
        total = evidence.logits.float()
        heads = torch.ones(len(total), device=total.device)
        return (total + memory["total"], heads + memory["heads"]) if memory else (total, heads)


def _mean(total: Tensor, heads: Tensor) -> Tensor:
    return total / heads.view(-1, *[1] * (total.dim() - 1))
