"""Questions about a text: with a span of it as the answer, or with options to choose from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from paredown.errors import BadInput


@dataclass(frozen=True)
class Sentence:
    """A sentence of the context that may be asked for as evidence."""

    title: str  # of the paragraph it stands in
    number: int  # within that paragraph
    start: int  # characters of the context, [start, end)
    end: int
    support: bool


@dataclass(frozen=True)
class Question:
    id: str
    question: str
    context: str
    answers: tuple[str, ...] = ()  # all accepted texts
    spans: tuple[tuple[int, int], ...] = ()  # [start, end) characters of answers in the context
    impossible: bool = False  # the context does not answer it
    choice: str | None = None  # an answer that is no span: yes, no
    sentences: tuple[Sentence, ...] = ()
    protected: tuple[tuple[int, int], ...] = ()  # characters of the context whose tokens must never be dropped
    any_span: bool = False  # all spans are learnt: any of them may be meant; else the first alone


@dataclass(frozen=True)
class Choices:
    """A question; one of its options is right."""

    id: str
    context: str  # may be empty
    question: str
    options: tuple[str, ...]
    label: int | None = None  # the right option's index; None: unlabelled


def is_labelled(asked: Question | Choices) -> bool:
    """Whether the question has a label; that there is no answer is one too."""
    if isinstance(asked, Choices):
        return asked.label is not None
    return bool(asked.answers or asked.spans or asked.impossible or asked.choice)


Asked = TypeVar("Asked", Question, Choices)


def check_texts(asked: Asked, index: int, **texts: str) -> Asked:
    """What is asked, once none of its texts is found empty."""
    for name, text in texts.items():
        if not text.strip():
            raise BadInput(f"question {index} ({asked.id!r}): the {name} is empty")
    return asked
