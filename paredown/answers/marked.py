"""One of the candidates that are marked in the windows of a text (WikiHop)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from paredown.answers._marked_windows import LENGTH, MOST_CANDIDATES, MOST_WINDOWS, MarkedWindow, marked_windows
from paredown.answers._pointer import Pointer
from paredown.answers._prediction import Prediction
from paredown.answers._questions import Choices, check_texts
from paredown.answers._rows import Encoded
from paredown.errors import BadInput, NonFiniteAnswer
from paredown.registry import answers
from paredown.state import not_a_number


@dataclass(frozen=True)
class MarkedPrediction(Prediction):
    """Its label is the text of the likeliest candidate."""

    id: str = ""
    candidate: int = 0  # its index among the candidates


@answers.register("marked")
@dataclass(frozen=True)
class Marked(Pointer):
    """A question's candidates stand in every window of its text, each behind a marker that its score is read at."""

    stride: int | None = None  # tokens from the start of one window's supports to that of the next; None: no overlap
    max_windows: int | None = MOST_WINDOWS  # of a question; None: as many as its supports take
    max_candidates: int | None = MOST_CANDIDATES  # of a question; None: all
    protect: bool = True  # reducers keep query and candidates; else these may go too, and answer from their last state

    auto_class = "AutoModelForTokenClassification"
    outputs: ClassVar[tuple[str, ...]] = ("score",)
    asks = Choices
    row_type = MarkedWindow
    records_of = "wikihop"
    usual_window = LENGTH
    fields: ClassVar[tuple[str, ...]] = ("answer", "score", "candidate", "windows", "layers", "tokens")

    def unit(self, item: Any, index: int) -> Choices:
        if not isinstance(item, Choices):
            raise BadInput(f"question {index}: expected Choices (paredown.tasks), got {item!r:.80}")
        if not item.options:
            raise BadInput(f"question {index} ({item.id!r}): there are no options to choose among")
        options = {f"option {number}": option for number, option in enumerate(item.options)}
        return check_texts(item, index, question=item.question, context=item.context, **options)

    def encode(
        self, tokenizer: Any, units: Sequence[Any], labels: Sequence[str], max_length: int | None = None
    ) -> list[Encoded]:
        settings = (self.stride, self.max_windows, self.max_candidates, self.protect)
        return [*marked_windows(tokenizer, units, max_length or self.usual_window, *settings)]

    def decode(self, rows: Sequence[Any], logits: Sequence[Tensor], labels: Sequence[str]) -> Prediction:
        """A candidate's logit is the mean over the windows."""
        question = rows[0].asked
        each = torch.stack([outputs[list(row.first), 0] for row, outputs in zip(rows, logits, strict=True)])
        if bool(not_a_number(each).any()):
            raise NonFiniteAnswer(f"the logits of question {question.id!r} hold NaN or infinity")
        scores = each.mean(0).softmax(-1)
        best = int(scores.argmax())
        named = dict(zip(question.options, scores.tolist()))
        return MarkedPrediction(question.options[best], float(scores[best]), named, id=question.id, candidate=best)

    def judged_units(self, predictions: Sequence[Any], units: Sequence[Any]) -> tuple[np.ndarray, np.ndarray]:
        return np.array([one.candidate for one in predictions]), np.array([unit.label for unit in units])
