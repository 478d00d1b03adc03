"""WikiHop (Welbl et al., 2018): which candidate the supports, read together, give for a relation of an entity."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from paredown.registry import tasks
from paredown.tasks._questions import Choices, Fault, field_of, readable, text_of
from paredown.tasks._records import Records

BETWEEN_SUPPORTS = "\n"  # a support has none of its own, so the context can be taken apart again


@tasks.register("wikihop")
@dataclass(frozen=True)
class WikiHop(Records[Choices]):
    folder: str = "wikihop|WikiHop|qangaroo_v1.1/wikihop"
    kind: ClassVar[str] = "choice"

    def _asked(self, record: dict[str, Any]) -> Choices:
        name = text_of(record, "id", "the question")
        query = text_of(record, "query", "the question")
        candidates = _texts(record, "candidates")
        if len(set(candidates)) < len(candidates):
            twice = next(one for one in candidates if candidates.count(one) > 1)
            raise Fault(f"the candidate {twice!r:.60} is there twice")
        context = BETWEEN_SUPPORTS.join(_texts(record, "supports"))
        if record.get("answer") is None:
            return Choices(name, context, query, candidates)
        answer = _line(text_of(record, "answer", "the question"))
        if answer not in candidates:
            raise Fault(f"the answer {answer!r:.60} is none of the {len(candidates)} candidates")
        return Choices(name, context, query, candidates, candidates.index(answer))


def _texts(record: dict[str, Any], name: str) -> tuple[str, ...]:
    listed = field_of(record, name, list, "the question")
    if not listed:
        raise Fault(f"{name!r} is empty")
    for number, text in enumerate(listed, 1):
        if not isinstance(text, str) or not text.strip():
            raise Fault(f"number {number} of {name!r} must be a text that is not empty, not {text!r:.40}")
    return tuple(_line(readable(text, f"number {number} of {name!r}")) for number, text in enumerate(listed, 1))


def _line(text: str) -> str:
    return " ".join(text.split())


@dataclass(frozen=True)
class Marked:
    """The pieces of a row in which every candidate has a marker to read its score at.

    [CLS] and [SEP] are the tokenizer's own. Where the body does not fit, every window has the whole head and a part of
    the body, and a candidate's score is the mean over the windows.
    """

    head: tuple[str, ...]  # the query, then a marker and a candidate, a marker and a candidate, …
    body: tuple[str, ...]  # a marker and a support, a marker and a support, …
    candidates: tuple[int, ...]  # which pieces of the head are markers of candidates, in their order


def marked(asked: Choices, candidate: str = "[unused1]", support: str = "[unused2]") -> Marked:
    """A question of WikiHop laid out as TR-BERT does: query {[unused1] candidate}* {[unused2] support}*.

    The markers must be tokens of the vocabulary; BERT's tokenizers have to be told that they are
    (`tokenizer.add_special_tokens({"additional_special_tokens": […]})`), or they are cut into pieces.
    """
    supports = asked.context.split(BETWEEN_SUPPORTS)
    head = (asked.question, *(piece for option in asked.options for piece in (candidate, option)))
    body = tuple(piece for text in supports for piece in (support, text))
    return Marked(head, body, tuple(range(1, len(head), 2)))
