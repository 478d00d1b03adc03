"""WikiHop (Welbl et al., 2018): which candidate the supports, read together, give for a relation of an entity."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from paredown.answers import Choices
from paredown.answers._marked_windows import BETWEEN_SUPPORTS
from paredown.registry import tasks
from paredown.tasks._questions import Fault, field_of, readable, text_of
from paredown.tasks._records import Records


@tasks.register("wikihop")
@dataclass(frozen=True)
class WikiHop(Records):
    folder: str = "wikihop|WikiHop|qangaroo_v1.1/wikihop"
    kind: ClassVar[str] = "marked"

    def _asked(self, record: dict[str, Any]) -> Choices:
        return question_of(record)


def question_of(record: dict[str, Any]) -> Choices:
    """From an object with `id`, `query`, `candidates`, `supports` and perhaps `answer`; raises Fault."""
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
