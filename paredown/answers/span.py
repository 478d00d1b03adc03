"""A span of a text that a question is about (SQuAD)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from torch import Tensor

from paredown.answers._pointer import Pointer
from paredown.answers._prediction import Prediction
from paredown.answers._questions import Question, check_texts
from paredown.answers._rows import Encoded, Row
from paredown.answers._spans import decode_span
from paredown.answers._windows import Window, windows
from paredown.errors import BadInput, BadSetting
from paredown.registry import answers

FEW = 4  # candidates of a window, one of which has characters


@answers.register("span")
@dataclass(frozen=True)
class Span(Pointer):
    stride: int = 128  # tokens from the start of one window to that of the next
    max_answer_length: int = 30  # tokens
    null_threshold: float | None = None  # stay silent where "no answer" is likelier by more logits; None: never
    n_best: int = 20  # candidates that are kept

    auto_class = "AutoModelForQuestionAnswering"
    architecture = "QuestionAnswering"
    outputs: ClassVar[tuple[str, ...]] = ("start", "end")
    asks = Question
    row_type = Window
    columns = ("question", "context")
    usual_window = 384
    metric = "span_f1"
    fields: ClassVar[tuple[str, ...]] = ("answer", "score", "start", "end", "windows", "layers", "tokens")

    def __post_init__(self) -> None:
        if min(self.stride, self.max_answer_length, self.n_best) < 1:
            raise BadSetting(
                f"stride ({self.stride}), max_answer_length ({self.max_answer_length}) and n_best ({self.n_best}) "
                "must be at least 1"
            )

    def unit(self, item: Any, index: int) -> Question:
        """A question, from itself or from a pair of a question and the text to look in; neither may be empty."""
        if isinstance(item, Row) and item.pair is not None:
            item = (item.text, item.pair)
        if isinstance(item, (tuple, list)) and len(item) == 2 and all(isinstance(part, str) for part in item):
            item = Question(str(index), *item)
        if not isinstance(item, Question):
            raise BadInput(f"question {index}: expected a Question, or a question and its text, got {item!r:.80}")
        return check_texts(item, index, question=item.question, context=item.context)

    def unlabelled(self, units: Sequence[Any]) -> list[Any]:
        return [replace(unit, answers=(), spans=(), impossible=False, choice=None) for unit in units]

    def encode(
        self, tokenizer: Any, units: Sequence[Any], labels: Sequence[str], max_length: int | None = None
    ) -> list[Encoded]:
        return [
            self.labelled(window) for window in windows(tokenizer, units, max_length or self.usual_window, self.stride)
        ]

    def labelled(self, window: Window) -> Window:
        """The window with the label that this kind learns from."""
        return window

    def decode(self, rows: Sequence[Any], logits: Sequence[Tensor], labels: Sequence[str]) -> Prediction:
        return decode_span(rows, logits, self.n_best, self.max_answer_length, self.null_threshold)

    def suiting(self, units: Sequence[Question]) -> Span:
        """Lets "no answer" be an answer where it is ever right."""
        if self.null_threshold is None and any(question.impossible for question in units):
            return replace(self, null_threshold=0.0)
        return self

    def judging(self, units: Sequence[Question]) -> Span:
        """The best candidate alone counts, but it must have characters."""
        return replace(self.suiting(units), n_best=min(self.n_best, FEW))
