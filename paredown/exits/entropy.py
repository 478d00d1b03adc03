"""Leave when the answer's entropy is low: normalised (FastBERT), in nats (DeeBERT, ElasticBERT), over the top classes
(fastplm, for tasks with many classes)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from paredown.errors import BadSetting
from paredown.exits._rule import PerLayer, ProbabilityRule, UncertaintyRule
from paredown.registry import exits
from paredown.state import Evidence, Memory


@exits.register("entropy")
@dataclass(frozen=True)
class Entropy(UncertaintyRule, ProbabilityRule):
    threshold: PerLayer = 0.5  # leave when entropy / ln(classes) is strictly below; 0 never, above 1 at once

    limits = (0.0, math.inf)

    def certainty(self, evidence: Evidence, memory: Memory) -> tuple[Tensor, Memory]:
        return evidence.least(-normalised_entropy(evidence.log_probs, evidence.classes)), memory


@exits.register("entropy_nats")
@dataclass(frozen=True)
class EntropyNats(UncertaintyRule, ProbabilityRule):
    threshold: PerLayer = 0.1  # leave when the entropy in nats is strictly below; 0 never, above ln(classes) at once

    limits = (0.0, math.inf)

    def certainty(self, evidence: Evidence, memory: Memory) -> tuple[Tensor, Memory]:
        return evidence.least(-entropy(evidence.log_probs)), memory

    def _value_at(self, speed: float) -> float:
        # As many classes as seem equally likely, exp(entropy), must stay below 1 / (1 - speed), whatever their number.
        return round(math.log(1 / max(1 - speed, 1e-9)), 6)


@exits.register("top_entropy")
@dataclass(frozen=True)
class TopEntropy(UncertaintyRule, ProbabilityRule):
    threshold: PerLayer = 0.5  # leave when their entropy / ln(top) is strictly below; 0 never, above 1 at once
    top: int = 2  # how many of the likeliest classes to look at, 2 or more; all where there are fewer

    limits = (0.0, math.inf)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.top, int) or self.top < 2:
            raise BadSetting(f"top_entropy.top must be a whole number of 2 or more, not {self.top!r}")

    def certainty(self, evidence: Evidence, memory: Memory) -> tuple[Tensor, Memory]:
        top = evidence.log_probs.topk(min(self.top, evidence.log_probs.shape[-1])).values
        classes = evidence.classes
        most = min(self.top, classes) if isinstance(classes, int) else classes.clamp(max=self.top)
        return evidence.least(-normalised_entropy(top.log_softmax(-1), most)), memory


def entropy(log_probs: Tensor) -> Tensor:
    """Entropy in nats over the last dimension; classes of probability 0 add 0."""
    return torch.special.entr(log_probs.exp()).sum(-1)


def normalised_entropy(log_probs: Tensor, classes: int | Tensor) -> Tensor:
    """Entropy over its maximum, in 0..1; 0 where there is only one class."""
    if isinstance(classes, int):
        return entropy(log_probs) / math.log(classes) if classes > 1 else entropy(log_probs)
    return entropy(log_probs) / classes.clamp(min=2).log()
