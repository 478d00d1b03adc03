"""One of the candidates that are marked in a text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from paredown.answers.span import Span
from paredown.registry import answers


@answers.register("marked")
@dataclass(frozen=True)
class Marked(Span):
    """A question's candidates stand in every window of its text, each behind a marker that its score is read at."""

    auto_class = "AutoModelForTokenClassification"
    architecture = ""
    outputs: ClassVar[tuple[str, ...]] = ("score",)
