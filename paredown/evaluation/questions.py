"""Ask a model about texts: questions in, answers out, however many windows each text takes."""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from paredown.errors import BadInput, BadSetting
from paredown.evaluation.spans import SpanAnswer, decode, score_spans
from paredown.evaluation.support import decode_supported
from paredown.kinds import SupportedSpan
from paredown.model import AdaptiveModel
from paredown.plan import Plan
from paredown.rows import Encoded, as_rows, collate, encode
from paredown.tasks import Question, Window, windows

LENGTH = 384  # tokens of a window where nobody says, if the encoder can read as many
STRIDE = 128


@dataclass(frozen=True)
class Reply(SpanAnswer):
    """An answer and the work it took, summed over the windows of its text."""

    windows: int = 1
    layers: int = 0  # layers run
    tokens: int = 0  # token-layers run


@dataclass(frozen=True)
class QuestionAnswering:
    """Answers questions with spans of their texts: `ask = QuestionAnswering(model); ask("who?", "a text").text`."""

    model: AdaptiveModel
    max_length: int | None = None  # tokens of a window; None: 384, or what the encoder can read
    stride: int = STRIDE  # tokens from the start of one window to that of the next
    max_answer_length: int = 30  # tokens
    null_threshold: float | None = None  # stay silent where "no answer" is likelier by more logits; None: never
    support_threshold: float = 0.5  # sentences this likely to support the answer are given, by models that know them

    def __post_init__(self) -> None:
        _check_kind(self.model)
        window_length(self.model, self.max_length)

    def __call__(self, question: str, context: str, plan: Plan | None = None) -> Reply:
        return self.answers([(question, context)], plan)[0]

    def answers(self, questions: Iterable[Any], plan: Plan | None = None, batch_size: int = 32) -> list[Reply]:
        """One for each question (or pair of a question and a text), in order; `batch_size` counts windows."""
        shown = self.windows(questions)
        order = sorted(range(len(shown)), key=lambda place: len(shown[place]))
        logits: dict[int, Tensor] = {}
        work: dict[int, list[tuple[int, int]]] = defaultdict(list)  # by question: layers, tokens of each window
        for start in range(0, len(order), batch_size):
            places = order[start : start + batch_size]
            rows = [dataclasses.replace(shown[place].encoded, label=None) for place in places]
            said = self.model.answer(collate(rows, self.model.tokenizer.pad_token_id, self.model.device), plan)
            done = zip(places, said.logits.float().cpu(), said.layers.tolist(), said.tokens.tolist(), strict=True)
            for place, its, layers, tokens in done:
                logits[place] = its[: len(shown[place])]
                work[shown[place].number].append((layers, tokens))
        found = self._decode(shown, [logits[place] for place in range(len(shown))])
        return [_reply(answer, work[number]) for number, answer in enumerate(found)]

    def _decode(self, shown: list[Window], logits: list[Tensor]) -> list[SpanAnswer]:
        settings: dict[str, Any] = {
            "max_answer_length": self.max_answer_length,
            "null_threshold": self.null_threshold or 0.0,
            "impossible": self.null_threshold is not None,
        }
        if isinstance(self.model.kind, SupportedSpan):
            return decode_supported(shown, logits, self.support_threshold, **settings)
        return decode(shown, logits, **settings)

    def windows(self, questions: Iterable[Any]) -> list[Window]:
        """What the model reads of the questions."""
        length = window_length(self.model, self.max_length)
        return windows(self.model.tokenizer, as_questions(questions), length, self.stride, kind=self.model.kind)


def score_questions(
    ask: QuestionAnswering, questions: Sequence[Question], plan: Plan | None = None, batch_size: int = 32
) -> dict[str, float | int]:
    """SQuAD's own figures of the answers, in percent; see `score_spans`."""
    return score_spans(questions, ask.answers(questions, plan, batch_size))


def as_questions(inputs: Iterable[Any]) -> list[Question]:
    """Questions, from such or from pairs of a question and the text to look in; neither may be empty."""
    found = []
    for place, item in enumerate(inputs):
        if isinstance(item, (tuple, list)) and len(item) == 2 and all(isinstance(part, str) for part in item):
            item = Question(str(place), *item)
        if not isinstance(item, Question):
            raise BadInput(f"question {place}: expected a Question, or a question and its text, got {item!r:.80}")
        for name in ("question", "context"):
            if not getattr(item, name).strip():
                raise BadInput(f"question {place} ({item.id!r}): the {name} is empty")
        found.append(item)
    return found


def encoded_rows(model: AdaptiveModel, inputs: Any, max_length: int | None = None) -> list[Encoded]:
    """Texts as token ids, questions as the windows of their texts; rows that are token ids already stay as they are."""
    if isinstance(inputs, Sequence) and inputs and isinstance(inputs[0], Encoded):
        return list(inputs)
    if not are_questions(model, inputs):
        return encode(model.tokenizer, as_rows(inputs), model.kind, model.labels, max_length)
    shown = windows(model.tokenizer, as_questions(inputs), window_length(model, max_length), STRIDE, kind=model.kind)
    return [window.encoded for window in shown]


def are_questions(model: AdaptiveModel, inputs: Any) -> bool:
    """Whether rows are questions, which is what a model of spans is asked, and no other."""
    if inputs is None or (isinstance(inputs, Sequence) and not inputs):
        return False
    first = inputs[0] if isinstance(inputs, Sequence) else inputs
    if isinstance(first, Question):
        _check_kind(model)
        return True
    if model.kind.windowed and not isinstance(first, Encoded):
        raise BadInput(
            f"this model answers with spans of a text, so its rows are Questions (paredown.tasks), not {first!r:.60}"
        )
    return False


def window_length(model: AdaptiveModel, wanted: int | None) -> int:
    """Tokens of a window: as many as wanted, which must not be more than the encoder can read, or the usual number."""
    most = longest_row(model)
    if wanted is not None and wanted > most:
        raise BadSetting(f"max_length={wanted} is more than this encoder can read: {most}")
    return int(min(LENGTH, most)) if wanted is None else wanted


def longest_row(model: AdaptiveModel) -> float:
    """Tokens that the encoder can read at once."""
    return min(model.tokenizer.model_max_length, getattr(model.config, "max_position_embeddings", None) or math.inf)


def _check_kind(model: AdaptiveModel) -> None:
    if not model.kind.windowed:
        raise BadSetting(
            "questions are answered by a model of spans (task='span' or 'supported_span'); "
            f"this one answers {model.kind.name}"
        )


def _reply(answer: SpanAnswer, work: list[tuple[int, int]]) -> Reply:
    said = {field.name: getattr(answer, field.name) for field in dataclasses.fields(answer)}
    layers, tokens = map(sum, zip(*work, strict=True))
    return Reply(**said, windows=len(work), layers=layers, tokens=tokens)
