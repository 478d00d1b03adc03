"""A number, or several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from paredown.answers._kind import Direction, Kind
from paredown.answers._prediction import Prediction
from paredown.answers._rows import Encoded
from paredown.errors import BadInput, BadSetting
from paredown.registry import answers


@answers.register("regression")
@dataclass(frozen=True)
class Regression(Kind):
    problem_type = "regression"
    numeric = True
    metric = "correlation"
    label_type = "number"

    def ranked(self, logits: Tensor) -> Tensor:
        return logits[:, 0]

    def submitted(self, logits: Tensor, labels: Sequence[str]) -> list[Any]:
        if logits.shape[1] > 1:
            return super().submitted(logits, labels)
        return logits.float().squeeze(1).tolist()

    def initial_bias(self, rows: Sequence[Encoded]) -> Tensor:
        """The mean of the labels: heads that start at 0 would spend their training on getting there."""
        return torch.tensor([row.label for row in rows], dtype=torch.float64).mean(0)

    def predicted(self, logits: Tensor) -> Tensor:
        return logits.float()

    def loss(self, logits: Tensor, labels: Tensor, smoothing: float = 0.0) -> Tensor:
        if smoothing:
            raise BadSetting("label smoothing needs labels, and regression has numbers; leave it at 0")
        return F.mse_loss(logits.float(), labels.float().view_as(logits))

    def wrong(self, logits: Tensor, labels: Tensor) -> Tensor:
        error = (logits.float() - labels.float().view_as(logits)).abs()
        return error.mean(-1, keepdim=True).tanh()

    def distance(self, student: Tensor, teacher: Tensor, mask: Tensor, direction: Direction) -> Tensor:
        return F.mse_loss(student.float(), teacher.float())

    def label_number(self, label: Any, labels: Sequence[str], index: int) -> Any:
        if label is None:
            return None
        try:
            return [float(value) for value in (label if isinstance(label, (list, tuple)) else [label])]
        except (TypeError, ValueError):
            raise BadInput(f"row {index}: label {label!r} is not a number") from None

    def decode(self, rows: Sequence[Any], logits: Sequence[Tensor], labels: Sequence[str]) -> Prediction:
        values = logits[0].flatten().tolist()
        return Prediction(values[0] if len(values) == 1 else values, values[0], dict(zip(labels, values, strict=True)))
