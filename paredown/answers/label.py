"""One label of several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from paredown.answers._kind import Kind, cross_entropy
from paredown.answers._prediction import Prediction
from paredown.answers._rows import Encoded
from paredown.registry import answers


@answers.register("single_label")
@dataclass(frozen=True)
class SingleLabel(Kind):
    problem_type: ClassVar[str | None] = "single_label_classification"

    def judged(self, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.predicted(logits).flatten(), labels.flatten(), torch.arange(len(logits))

    def decode_rows(self, rows: Sequence[Encoded], logits: Sequence[Tensor], labels: Sequence[str]) -> list[Prediction]:
        together = logits if isinstance(logits, Tensor) else torch.stack(list(logits))
        probs = self.log_probs(together)[:, 0].exp()  # [rows, classes]
        best, each = probs.argmax(-1).tolist(), probs.tolist()
        return [Prediction(labels[b], p[b], dict(zip(labels, p, strict=True))) for b, p in zip(best, each, strict=True)]

    def submitted(self, logits: Tensor, labels: Sequence[str]) -> list[Any]:
        return [labels[number] for number in logits.argmax(-1).tolist()]

    def log_probs(self, logits: Tensor) -> Tensor:
        return logits.float().log_softmax(-1).unsqueeze(1)

    def loss(self, logits: Tensor, labels: Tensor, smoothing: float = 0.0) -> Tensor:
        return cross_entropy(logits.float(), labels, smoothing)

    def wrong(self, logits: Tensor, labels: Tensor) -> Tensor:
        return (logits.argmax(-1) != labels).float().unsqueeze(1)
