"""Questions become token windows: the question, then as much of the context as fits, in overlapping steps."""

from __future__ import annotations

import copy
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from paredown.answers._questions import Question, is_labelled
from paredown.answers._rows import Encoded
from paredown.encoders.frame import Frame
from paredown.errors import BadSetting

BATCH = 256  # texts given to the tokenizer at once
NO_ANSWER = (0, 0)  # the first token means that the window does not answer
MOST_SPANS = 64  # that one window's label holds

Span = tuple[int, int]  # first and last token


@dataclass(frozen=True, eq=False, kw_only=True)
class Window(Encoded):
    """One row of a question: `[CLS] question [SEP] part of the context [SEP]`."""

    at: int  # position of the first context token
    offsets: np.ndarray  # [context tokens, 2] the characters of each, [start, end) in the whole context
    fullest: np.ndarray  # [context tokens] True where no other window shows more on both sides of the token
    spans: tuple[Span, ...] = ()  # first and last token of all gold answers in this window
    begins: tuple[Span, ...] = ()  # (first token, which of the question's) of all sentences that begin in it

    def tokens(self, start: int, end: int) -> Span | None:
        """First and last token of these characters of the context; None where the window does not show them all."""
        found = _covering(self.offsets, np.array([[start, end]]))[0]
        whole = len(self.offsets) and self.offsets[0, 0] <= start and end <= self.offsets[-1, 1]
        return (int(found[0]) + self.at, int(found[1]) + self.at) if whole and found[0] <= found[1] else None

    def characters(self, first: int, last: int) -> tuple[int, int]:
        """The characters of the context from one token to another, without spaces around."""
        start, end = int(self.offsets[first - self.at, 0]), int(self.offsets[last - self.at, 1])
        context = self.asked.context
        while end < len(context) and unicodedata.category(context[end]).startswith("M"):
            end += 1  # an accent that stands alone belongs to the letter before it; some tokenizers drop it
        text = context[start:end]
        return start + len(text) - len(text.lstrip()), end - len(text) + len(text.rstrip())


def windows(
    tokenizer: Any,
    questions: Sequence[Question],
    max_length: int = 384,
    stride: int = 128,
    max_question: int = 64,
    drop_without_answer: bool = False,
    markers: Mapping[str, str] | None = None,
) -> list[Window]:
    """The windows of all questions, in order.

    `stride`: tokens from the start of one window to that of the next (less where a window holds fewer). `max_question`:
    tokens of the question that stay. `drop_without_answer`: leave out windows that show no gold answer, to train
    without "no answer". `markers`: words of the context that are read as one token, and as which (see `mrqa.MARKERS`).

    A window's label is the first gold answer it shows whole (all, where the question says `any_span`), or `NO_ANSWER`;
    None where the question has no label.
    """
    if not getattr(tokenizer, "is_fast", False):
        raise BadSetting(
            f"{type(tokenizer).__name__} cannot say where its tokens stand in a text; use a fast tokenizer"
        )
    if min(stride, max_question) < 1:
        raise BadSetting(f"stride ({stride}) and max_question ({max_question}) must be at least 1")
    frame, reading = Frame.of(tokenizer), _Reading.of(tokenizer, markers or {})
    made = []
    for start in range(0, len(questions), BATCH):
        some = questions[start : start + BATCH]
        asked = reading.tokens([question.question.strip() for question in some])
        contexts = list(dict.fromkeys(question.context for question in some))  # several questions often share one
        read = dict(zip(contexts, reading.tokens(contexts)))
        for index, question in enumerate(some):
            ids = asked[index].ids[:max_question]
            room = max_length - len(frame) - len(ids)
            if room < 1:
                raise BadSetting(f"max_length={max_length} leaves no room after a question of {len(ids)} tokens")
            cut = _Cut(question, start + index, ids, read[question.context], frame, room, min(stride, room))
            found = cut.windows()
            made += [window for window in found if window.spans or not drop_without_answer]
    return made


@dataclass(frozen=True)
class _Tokens:
    ids: list[int]
    offsets: np.ndarray  # [tokens, 2]


@dataclass(frozen=True)
class _Reading:
    """Texts to token ids, without what a tokenizer puts around them."""

    tokenizer: Any
    instead: Mapping[int, int]  # ids of markers -> ids they are read as

    @classmethod
    def of(cls, tokenizer: Any, markers: Mapping[str, str]) -> _Reading:
        if not markers:
            return cls(tokenizer, {})
        known = tokenizer.get_vocab()
        if missing := sorted(set(markers.values()) - known.keys()):
            raise BadSetting(f"the tokenizer has no {', '.join(missing)} to read markers as; leave them as text")
        own = copy.deepcopy(tokenizer)  # the caller's must not learn new words
        own.add_tokens([word for word in markers if word not in known])
        return cls(own, {own.convert_tokens_to_ids(word): known[token] for word, token in markers.items()})

    def tokens(self, texts: list[str]) -> list[_Tokens]:
        read = self.tokenizer(
            texts,
            add_special_tokens=False,
            return_offsets_mapping=True,
            return_attention_mask=False,
            return_token_type_ids=False,
            verbose=False,  # longer than the encoder's limit is what windows are for
        )
        found = []
        for ids, offsets in zip(read["input_ids"], read["offset_mapping"]):
            if self.instead:
                ids = [self.instead.get(token, token) for token in ids]
            # Some tokenizers give an empty span to a token without characters of its own: order must hold even so.
            ordered = np.maximum.accumulate(np.array(offsets, dtype=np.int32).reshape(-1, 2), axis=0)
            found.append(_Tokens(ids, ordered))
        return found


@dataclass(frozen=True)
class _Cut:
    """One question, about to be cut into windows."""

    question: Question
    unit: int  # index of the question
    asked: list[int]
    context: _Tokens
    frame: Frame
    room: int
    step: int

    def windows(self) -> Iterator[Window]:
        context, frame, room, total = self.context, self.frame, self.room, len(self.context.ids)
        starts = range(0, max(total - room, 0) + self.step, self.step) if total > room else range(1)
        gold, kept, ranges = map(self._tokens_of, (self.question.spans, self.question.protected, self._sentences))
        gold = gold[gold[:, 0] <= gold[:, 1]]
        fullest = _fullest(total, starts, room)
        at = len(frame.special[0]) + len(self.asked) + len(frame.special[1])
        for index, start in enumerate(starts):
            end = min(start + room, total)
            ids = frame.around(self.asked, context.ids[start:end])
            shown = gold[(gold[:, 0] >= start) & (gold[:, 1] < end)] - start + at
            labels = tuple((int(first), int(last)) for first, last in dict.fromkeys(map(tuple, shown.tolist())))
            begins = (ranges[:, 0] >= start) & (ranges[:, 0] < end) & (ranges[:, 0] <= ranges[:, 1])
            sentences = tuple((int(ranges[which, 0]) - start + at, int(which)) for which in begins.nonzero()[0])
            answerable = range(at, at + end - start)
            inside = {one - start + at for first, last in kept for one in range(max(first, start), min(last + 1, end))}
            stays = sorted(set(range(len(ids["input_ids"]))) - set(answerable) | inside)
            label = (labels or (NO_ANSWER,))[: MOST_SPANS if self.question.any_span else 1]
            yield Window(
                ids,
                label if is_labelled(self.question) else None,
                first=(0, *answerable),
                protected=tuple(stays),
                asked=self.question,
                unit=self.unit,
                at=at,
                offsets=context.offsets[start:end],
                fullest=fullest[start:end] == index,
                spans=labels,
                begins=sentences,
            )

    @property
    def _sentences(self) -> list[Span]:
        return [(sentence.start, sentence.end) for sentence in self.question.sentences]

    def _tokens_of(self, spans: Sequence[Span]) -> np.ndarray:
        return _covering(self.context.offsets, np.array(spans).reshape(-1, 2))


def _covering(offsets: np.ndarray, spans: np.ndarray) -> np.ndarray:
    """[spans, 2]: the first and last token that share characters with each; first > last where none does."""
    first = np.searchsorted(offsets[:, 1], spans[:, 0], side="right")
    last = np.searchsorted(offsets[:, 0], spans[:, 1], side="left") - 1
    return np.stack([first, last], axis=1)


def _fullest(total: int, starts: Sequence[int], room: int) -> np.ndarray:
    """[tokens]: which window shows most on the scarcer side of a token; the longer window, then the first, if equal."""
    best, owner = np.full(total, -1.0), np.zeros(total, dtype=np.int32)
    for index, start in enumerate(starts):
        end = min(start + room, total)
        here = np.arange(start, end)
        score = np.minimum(here - start, end - 1 - here) + 0.01 * (end - start)
        better = score > best[start:end]
        best[start:end][better] = score[better]
        owner[start:end][better] = index
    return owner
