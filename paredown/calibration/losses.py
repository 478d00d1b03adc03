"""What a unit loses by leaving early: its score, its error, or its agreement with full depth; always in -1..1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from torch import Tensor

from paredown.answers import Kind
from paredown.errors import BadInput, BadSetting
from paredown.evaluation.metrics import MEANS, MeanScore, Metric, metric_for
from paredown.evaluation.record import Record

RiskName = Literal["score", "error", "disagreement"]
RISKS: dict[str, str] = {
    "score": "score lost against full depth",
    "error": "share of a unit's answers that is wrong, beyond that at full depth",
    "disagreement": "share of a unit's answers that differ from those at full depth",
}


@dataclass(frozen=True)
class Risk:
    """How units are judged. `score` and `error` need labels and are differences, in -1..1; `disagreement` needs none
    and lies in 0..1. Numbers differ by their distance over `scale`, 1 at most."""

    name: RiskName
    metric: Metric
    scale: float | None = None  # of numbers

    def __post_init__(self) -> None:
        if self.name not in RISKS:
            raise BadSetting(f"the risk is one of {', '.join(RISKS)}, not {self.name!r}")

    @property
    def signed(self) -> bool:
        """Whether a unit may also gain."""
        return self.name != "disagreement"

    def check(self, kind: Kind, labelled: bool) -> None:
        """Say what cannot be promised, and what can instead."""
        if not self.signed:
            return
        if not labelled:
            raise BadInput("without labels no loss of score can be promised; --risk disagreement needs none")
        if self.name == "score" and not self._is_a_mean(kind):
            name = getattr(self.metric, "__name__", str(self.metric))
            unit = "questions" if kind.windowed else "rows"
            raise BadInput(
                f"{name} is not a mean over {unit}, so no finite sample bounds its loss; "
                f"--risk error bounds the {RISKS['error']}, --risk disagreement the {RISKS['disagreement']}"
            )

    def _is_a_mean(self, kind: Kind) -> bool:
        """Whether the metric averages what every unit scores alone; rows with many words weigh more than others."""
        return isinstance(self.metric, MeanScore) or (self.metric in MEANS and not kind.per_word)

    # Rows that are units

    def of_rows(self, record: Record, logits: Tensor, full: Tensor) -> np.ndarray:
        """[rows] losses of any logits; of a disagreement, with the logits at full depth."""
        if self.name == "disagreement":
            return self._disagreement(record, logits, full)
        if self.name == "score":
            predicted, labels, _ = record.answers(logits, self.metric)
            return 1.0 - MEANS[self.metric](predicted, labels)
        assert record.labels is not None
        predicted, labels, row = (part.numpy() for part in record.kind.judged(logits, record.labels))
        each = self._distances(record, predicted, labels.reshape(predicted.shape))
        return _by_row(each.reshape(len(each), -1).mean(1), row, len(record))

    def _disagreement(self, record: Record, logits: Tensor, full: Tensor) -> np.ndarray:
        kind = record.kind
        ours, theirs = kind.predicted(logits), kind.predicted(full)  # [rows, items]
        each = self._distances(record, ours.numpy(), theirs.numpy())
        asked = np.ones(each.shape, bool)
        if record.answer_mask is not None:
            asked = kind.items(record.answer_mask, ours).numpy()
        return (each * asked).sum(1) / np.maximum(asked.sum(1), 1)

    def _distances(self, record: Record, ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
        """0 where answers are the same, 1 where they are not; numbers by their distance."""
        if not record.kind.numeric:
            return (ours != theirs).astype(float)
        if self.scale is None:
            raise BadSetting("numbers differ by their distance over a scale, and none is given")
        return np.minimum(np.abs(ours - theirs) / self.scale, 1.0)

    # Units of several windows

    def of_units(self, predicted: np.ndarray, asked: np.ndarray, full: np.ndarray, record: Record) -> np.ndarray:
        """[units] losses of what was decoded; `asked` knows the right answers."""
        if self.name == "disagreement":
            return np.array([float(_said(ours) != _said(theirs)) for ours, theirs in zip(predicted, full, strict=True)])
        metric: Any = self.metric if self.name == "score" else metric_for(record.kind)
        right = metric.each(predicted, asked) if isinstance(metric, MeanScore) else MEANS[metric](predicted, asked)
        return 1.0 - right


def _by_row(each: np.ndarray, row: np.ndarray, rows: int) -> np.ndarray:
    """[rows] mean over the answers of each; 0 where it has none."""
    counts = np.bincount(row, minlength=rows)
    return np.bincount(row, each, minlength=rows) / np.maximum(counts, 1)


def _said(answer: Any) -> Any:
    """What of an answer must be the same: the text and, where sentences are given as its support, these."""
    return (answer.label, getattr(answer, "facts", None)) if hasattr(answer, "label") else answer


def usual_scale(record: Record, units: Sequence[int]) -> float | None:
    """Of numbers: how far the answers at full depth lie apart on some units; None of other answers."""
    if not (record.kind.numeric and units):
        return None
    values = record.logits[record.stops[-1]][list(units)].double()
    return max(float(values.max() - values.min()), 1e-12)
