"""Ask a model about texts: questions in, answers out, however many windows each text takes."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from paredown.answers import Encoded, Row, SupportedSpan, collate
from paredown.encoders.longer import can_read, learned_positions
from paredown.errors import BadInput, BadSetting
from paredown.evaluation.spans import SpanAnswer, decode, score_spans
from paredown.evaluation.support import decode_supported
from paredown.model import AdaptiveModel
from paredown.plan import Plan
from paredown.tasks import Choices, MarkedWindow, Question, Window, marked_windows, windows
from paredown.tasks._candidates import LENGTH as MARKED_LENGTH

LENGTH = 384  # tokens of a window where nobody says, if the encoder can read as many
STRIDE = 128
ASKED: dict[str, type] = {  # what models of a kind are asked
    "span": Question,
    "supported_span": Question,
    "choice": Choices,
    "marked": Choices,
}


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
    max_length: int | None = None  # tokens of a window; None: as in training, else 384 or what the encoder can read
    stride: int = STRIDE  # tokens from the start of one window to that of the next
    max_answer_length: int = 30  # tokens
    null_threshold: float | None = None  # stay silent where "no answer" is likelier by more logits; None: never
    support_threshold: float = 0.5  # sentences this likely to support the answer are given, by models that know them

    def __post_init__(self) -> None:
        check_kind(self.model, "span", "supported_span")
        window_length(self.model, self.max_length)

    def __call__(self, question: str, context: str, plan: Plan | None = None) -> Reply:
        return self.answers([(question, context)], plan)[0]

    def answers(self, questions: Iterable[Any], plan: Plan | None = None, batch_size: int = 32) -> list[Reply]:
        """One for each question (or pair of a question and a text), in order; `batch_size` counts windows."""
        shown = self.windows(questions)
        logits, work = answer_windows(self.model, shown, plan, batch_size)
        return [Reply(**vars(answer), **work[number]) for number, answer in enumerate(self._decode(shown, logits))]

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


def answer_windows(
    model: AdaptiveModel, shown: Sequence[Window | MarkedWindow], plan: Plan | None, batch_size: int
) -> tuple[list[Tensor], dict[int, dict[str, Any]]]:
    """What the model says of every window, without padding; and by question the work: windows, layers, tokens."""
    order = sorted(range(len(shown)), key=lambda place: len(shown[place]))
    logits: dict[int, Tensor] = {}
    work: dict[int, Counter[str]] = defaultdict(Counter)
    for start in range(0, len(order), batch_size):
        places = order[start : start + batch_size]
        rows = [dataclasses.replace(shown[place].encoded, label=None) for place in places]
        said = model.answer(collate(rows, model.tokenizer.pad_token_id, model.device), plan)
        done = zip(places, said.logits.float().cpu(), said.layers.tolist(), said.tokens.tolist(), strict=True)
        for place, its, layers, tokens in done:
            logits[place] = its[: len(shown[place])]
            work[shown[place].number].update(windows=1, layers=layers, tokens=tokens)
    return [logits[place] for place in range(len(shown))], {number: dict(done) for number, done in work.items()}


def score_questions(
    ask: QuestionAnswering, questions: Sequence[Question], plan: Plan | None = None, batch_size: int = 32
) -> dict[str, float | int]:
    """SQuAD's own figures of the answers, as fractions of 1; see `score_spans`."""
    return score_spans(questions, ask.answers(questions, plan, batch_size))


def as_questions(inputs: Iterable[Any]) -> list[Question]:
    """Questions, from such or from pairs of a question and the text to look in; neither may be empty."""
    found = []
    for place, item in enumerate(inputs):
        if isinstance(item, Row) and item.pair is not None:
            item = (item.text, item.pair)
        if isinstance(item, (tuple, list)) and len(item) == 2 and all(isinstance(part, str) for part in item):
            item = Question(str(place), *item)
        if not isinstance(item, Question):
            raise BadInput(f"question {place}: expected a Question, or a question and its text, got {item!r:.80}")
        _check_texts(item, place, question=item.question, context=item.context)
        found.append(item)
    return found


def as_choices(inputs: Iterable[Any]) -> list[Choices]:
    """Questions with candidates; nothing of them may be empty."""
    found = []
    for place, item in enumerate(inputs):
        if not isinstance(item, Choices):
            raise BadInput(f"question {place}: expected Choices (paredown.tasks), got {item!r:.80}")
        if not item.options:
            raise BadInput(f"question {place} ({item.id!r}): there are no options to choose among")
        options = {f"option {number}": option for number, option in enumerate(item.options)}
        _check_texts(item, place, question=item.question, context=item.context, **options)
        found.append(item)
    return found


def _check_texts(item: Question | Choices, place: int, **texts: str) -> None:
    for name, text in texts.items():
        if not text.strip():
            raise BadInput(f"question {place} ({item.id!r}): the {name} is empty")


def encoded_rows(model: AdaptiveModel, inputs: Any, max_length: int | None = None) -> list[Encoded]:
    """Texts as token ids, questions as the windows of their texts; rows that are token ids already stay as they are."""
    if isinstance(inputs, Sequence) and inputs and isinstance(inputs[0], Encoded):
        return list(inputs)
    if not are_questions(model, inputs):
        return model.encode(inputs, max_length)
    if model.kind.name == "marked":
        marked = marked_windows(model.tokenizer, as_choices(inputs), window_length(model, max_length, MARKED_LENGTH))
        return [window.encoded for window in marked if not window.misses]
    shown = windows(model.tokenizer, as_questions(inputs), window_length(model, max_length), STRIDE, kind=model.kind)
    return [window.encoded for window in shown]


def are_questions(model: AdaptiveModel, inputs: Any) -> bool:
    """Whether rows are questions that are read in windows; only such as this kind of model is asked are let through."""
    if inputs is None or (isinstance(inputs, Sequence) and not inputs):
        return False
    first = inputs[0] if isinstance(inputs, Sequence) else inputs
    wanted = ASKED.get(model.kind.name)
    if wanted is not None and isinstance(first, wanted):
        return model.kind.windowed  # of a choice, each option is a row as texts are
    if isinstance(first, tuple(ASKED.values())):
        kinds = " or ".join(kind for kind, asked in ASKED.items() if isinstance(first, asked))
        raise BadSetting(f"a {type(first).__name__} is for models of {kinds}; this one answers {model.kind.name}")
    if wanted is not None and model.kind.windowed and not isinstance(first, Encoded):
        named = f"{wanted.__name__} values of paredown.tasks"
        raise BadInput(f"this model answers {model.kind.name}: its rows are {named}, not {first!r:.60}")
    return False


def window_length(model: AdaptiveModel, wanted: int | None, usual: int = LENGTH) -> int:
    """Tokens of a window: as many as wanted, which must not be more than the encoder can read; else as in training, or
    the usual number."""
    wanted = wanted or model.reading.max_length
    if wanted is None:
        return int(min(usual, longest_row(model)))
    check_length(model, wanted)
    return wanted


def row_length(model: AdaptiveModel, wanted: int | None = None) -> int:
    """Tokens at which rows, or windows of long texts, are cut."""
    if model.kind.windowed:
        return window_length(model, wanted, MARKED_LENGTH if model.kind.name == "marked" else LENGTH)
    return wanted or model.reading.max_length or model.kind.usual_length(model.tokenizer)


def check_length(model: AdaptiveModel, wanted: int, setting: str = "max_length=") -> None:
    """Positions that are not learned may go on beyond what a config says."""
    if wanted > (most := longest_row(model)) and (learned_positions(model.stock) or not can_read(model.stock, wanted)):
        raise BadSetting(f"{setting}{wanted} is more than this encoder can read: {most}")


def longest_row(model: AdaptiveModel) -> float:
    """Tokens that the encoder was made to read at once."""
    known = learned_positions(model.stock)
    most = known.count if known else getattr(model.config, "max_position_embeddings", None) or math.inf
    return min(model.tokenizer.model_max_length, most)


def check_kind(model: AdaptiveModel, *wanted: str) -> None:
    if model.kind.name not in wanted:
        kinds = " or ".join(map(repr, wanted))
        raise BadSetting(
            f"these questions are answered by a model of the kind {kinds}; this one answers {model.kind.name}"
        )
