"""Any number of several labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from paredown.answers._kind import Kind, yes_or_no
from paredown.answers._prediction import Prediction
from paredown.answers._rows import number_of
from paredown.registry import answers


@answers.register("multi_label")
@dataclass(frozen=True)
class MultiLabel(Kind):
    problem_type = "multi_label_classification"
    metric = "micro_f1"
    label_type = "texts"

    def log_probs(self, logits: Tensor) -> Tensor:
        return yes_or_no(logits)

    def loss(self, logits: Tensor, labels: Tensor, smoothing: float = 0.0) -> Tensor:
        soft = labels.float() * (1 - 2 * smoothing) + smoothing
        return F.binary_cross_entropy_with_logits(logits.float(), soft)

    def wrong(self, logits: Tensor, labels: Tensor) -> Tensor:
        return ((logits > 0) != labels.bool()).float().mean(-1, keepdim=True)

    def label_number(self, label: Any, labels: Sequence[str], index: int) -> Any:
        if label is None:
            return None
        chosen = {number_of(one, labels, index) for one in label}
        return [float(number in chosen) for number in range(len(labels))]

    def decode(self, rows: Sequence[Any], logits: Sequence[Tensor], labels: Sequence[str]) -> Prediction:
        probs = self.log_probs(logits[0].unsqueeze(0))[0].exp()  # [labels, no and yes]
        scores = dict(zip(labels, probs[:, 1].tolist(), strict=True))
        chosen = [label for label, probability in scores.items() if probability > 0.5]
        return Prediction(chosen, probs.amax(-1).min().item(), scores)
