"""Leave when the answer's entropy is low: normalised (FastBERT), in nats (DeeBERT, ElasticBERT), over the top classes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from paredown.errors import BadSetting
from paredown.evidence import Evidence, Memory
from paredown.exits._rule import PerLayer, Rule, check_speed
from paredown.registry import exits


@exits.register("entropy")
@dataclass(frozen=True)
class Entropy(Rule):
    threshold: PerLayer = 0.5  # leave when entropy / ln(classes) is strictly below; 0 never, above 1 at once

    def leave(self, evidence: Evidence, memory: Memory) -> tuple[Tensor, Memory]:
        return evidence.agree(normalised_entropy(evidence.log_probs) < self._at(evidence.layer)), memory

    def at_speed(self, speed: float) -> Entropy:
        return self._with(check_speed(speed))


def entropy(log_probs: Tensor) -> Tensor:
    """Entropy in nats over the last dimension; classes of probability 0 add 0."""
    return torch.special.entr(log_probs.exp()).sum(-1)


def normalised_entropy(log_probs: Tensor) -> Tensor:
    """Entropy over its maximum, in 0..1; 0 where there is only one class."""
    classes = log_probs.shape[-1]
    return entropy(log_probs) / math.log(classes) if classes > 1 else torch.zeros_like(log_probs[..., 0])
