"""Questions with candidates become token windows in which every candidate has a marker to read its score at."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from paredown.answers._questions import Choices
from paredown.answers._rows import Encoded
from paredown.answers._windows import BATCH
from paredown.encoders.frame import Frame
from paredown.errors import BadSetting

LENGTH, MOST_WINDOWS, MOST_CANDIDATES = 1024, 8, 79  # as published (TR-BERT)
MARKERS = ("[unused1]", "[unused2]")  # of candidates and of supports
BETWEEN_SUPPORTS = "\n"  # a support has none of its own, so the context can be taken apart again

log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class MarkedWindow(Encoded):
    """One row of a question: `[CLS] query {marker candidate}* [SEP] part of {marker support}* [SEP]`.

    Its `first` are the candidates' markers, in their order.
    """

    @property
    def teaches(self) -> bool:
        """The right candidate may be known, and yet not be among those that are read."""
        return self.asked.label is None or self.label is not None


def marked_windows(
    tokenizer: Any,
    questions: Sequence[Choices],
    max_length: int = LENGTH,
    stride: int | None = None,
    max_windows: int | None = MOST_WINDOWS,
    max_candidates: int | None = MOST_CANDIDATES,
    protect: bool = True,
) -> list[MarkedWindow]:
    """The windows of all questions, in order; each shows the query, all candidates, and a part of the supports.

    `stride`: tokens from the start of one part to that of the next; None: no overlap. `max_windows`, `max_candidates`:
    what is beyond is not read, None: all is. `protect`: reducers must keep query and candidates.

    The label is the position of the right candidate's marker. Where supports leave no room, long candidates are cut.
    """
    layout = _Layout(tokenizer, max_length, stride, max_windows, max_candidates, protect)
    made: list[MarkedWindow] = []
    for start in range(0, len(questions), BATCH):
        some = questions[start : start + BATCH]
        read = layout.tokens(text for asked in some for text in (asked.question, *asked.options, *_supports(asked)))
        for index, asked in enumerate(some, start):
            made += layout.windows(asked, index, read)
    layout.warn_about_losses(len(questions))
    return made


@dataclass
class _Layout:
    tokenizer: Any
    max_length: int
    stride: int | None
    max_windows: int | None
    max_candidates: int | None
    protect: bool
    cut: int = 0  # questions whose candidates were cut
    unread: int = 0  # questions with supports that no window shows
    missed: int = 0  # questions whose right candidate is not read

    def __post_init__(self) -> None:
        for name in ("stride", "max_windows", "max_candidates"):
            value, least = getattr(self, name), 2 if name == "max_candidates" else 1
            if value is not None and value < least:
                raise BadSetting(f"{name} must be at least {least}, or None, not {value}")
        self.frame = Frame.of(self.tokenizer)
        self.candidate, self.support = _marker_ids(self.tokenizer)

    def tokens(self, texts: Any) -> dict[str, list[int]]:
        """Token ids by text; several questions often share some."""
        each = list(dict.fromkeys(texts))
        ids = self.tokenizer(each, add_special_tokens=False, verbose=False)["input_ids"]
        return dict(zip(each, ids, strict=True))

    def windows(self, asked: Choices, unit: int, read: dict[str, list[int]]) -> Iterator[MarkedWindow]:
        body = [token for text in _supports(asked) for token in (self.support, *read[text])]
        head, markers = self._head(asked, read, len(body))
        before = len(self.frame.special[0])
        first = tuple(position + before for position in markers)
        known = asked.label is not None and asked.label < len(first)
        self.missed += asked.label is not None and not known
        room = self.max_length - len(self.frame) - len(head)
        step = min(self.stride or room, room)
        starts = range(0, max(len(body) - room, 0) + step, step) if len(body) > room else range(1)
        self.unread += len(starts) > len(starts[: self.max_windows])
        for start in starts[: self.max_windows]:
            shown = body[start : start + room]
            ids = self.frame.around(head, shown)
            at = before + len(head) + len(self.frame.special[1])
            stays = set(range(len(ids["input_ids"]))) - set(range(at, at + len(shown)))
            label = ((first[asked.label],),) if known and asked.label is not None else None
            protected = tuple(sorted(stays)) if self.protect else None
            yield MarkedWindow(ids, label, first, protected, asked=asked, unit=unit)

    def _head(self, asked: Choices, read: dict[str, list[int]], body: int) -> tuple[list[int], list[int]]:
        """The query and the candidates, and the positions of their markers; supports keep a quarter of the window."""
        query, options = read[asked.question], [read[option] for option in asked.options[: self.max_candidates]]
        room = self.max_length - len(self.frame) - min(body, self.max_length // 4) - len(query) - len(options)
        longest = max(map(len, options))
        if (limit := _common_limit(options, room)) < min(longest, 1):
            raise BadSetting(
                f"max_length={self.max_length} cannot hold question {asked.id!r}: a query of {len(query)} tokens, "
                f"{len(options)} candidates with their markers, and supports in a quarter of it"
            )
        self.cut += limit < longest
        head, markers = list(query), []
        for option in options:
            markers.append(len(head))
            head += [self.candidate, *option[:limit]]
        return head, markers

    def warn_about_losses(self, questions: int) -> None:
        """Logs what was cut or is not read, as nothing is lost in silence."""
        for count, what in (
            (self.cut, f"have long candidates, which were cut to fit into max_length={self.max_length}"),
            (self.unread, f"have supports beyond their first {self.max_windows} windows, which are not read"),
            (self.missed, f"have the right candidate beyond the first {self.max_candidates}, so they count as wrong"),
        ):
            if count:
                log.warning("%d of %d questions %s", count, questions, what)


def _supports(asked: Choices) -> list[str]:
    return asked.context.split(BETWEEN_SUPPORTS)


def _marker_ids(tokenizer: Any) -> tuple[int, int]:
    """The markers of candidates and of supports: tokens that mean nothing yet, where the vocabulary has such."""
    known = tokenizer.get_vocab()
    if all(marker in known for marker in MARKERS):
        return known[MARKERS[0]], known[MARKERS[1]]
    if tokenizer.sep_token_id is None:
        raise BadSetting(f"the tokenizer has neither {' and '.join(MARKERS)} nor a separator to mark candidates with")
    return tokenizer.sep_token_id, tokenizer.sep_token_id


def _common_limit(texts: Sequence[list[int]], room: int) -> int:
    """The most tokens that each text may keep, so that all fit; -1 where not even nothing does."""
    limit = max(map(len, texts))
    while limit >= 0 and sum(min(len(text), limit) for text in texts) > room:
        limit -= 1
    return limit
