"""What the pages of figures share: sentences, tables, slots to fill, and the section that ends each page."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
SCRIPT = "python -m benchmarks.report"
Document = tuple[Path, Callable[[str], str]]  # a file, and what its text becomes with the figures of the results


def committed(name: str) -> Any:
    """The results of a script of ours, which stand beside it."""
    return json.loads((ROOT / "benchmarks" / f"{name}.json").read_text(encoding="utf-8"))


def filled(text: str, mark: str = "") -> str:
    """A paragraph or list item, however its text is broken into lines."""
    words = " ".join(text.split())
    return textwrap.fill(words, 120, initial_indent=mark, subsequent_indent=" " * len(mark), break_on_hyphens=False)


def bullets(texts: list[str]) -> str:
    return "\n".join(filled(text, "* ") for text in texts)


def table(head: list[str], lines: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, ["---"] * len(head), *lines])


def stacked(*parts: str) -> str:
    """Those that are not empty, with a line between them."""
    return "\n\n".join(part for part in parts if part)


def put(text: str, **parts: str) -> str:
    """The text with each slot `<!-- name -->` … `<!-- end -->` filled anew."""
    for name, part in parts.items():
        pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        text = pattern.sub(lambda found, part=part: f"{found[1]}{part}\n{found[2]}", text)
    return text


def spoken(words: list) -> str:
    *first, last = map(str, words)
    return f"{', '.join(first)} and {last}" if first else last


def decimal(value: float) -> str:
    return f"{round(value, 1) + 0.0:.1f}"  # adding zero drops the sign of a negative zero


def span(scores: Collection[float]) -> str:
    low, high = decimal(min(scores)), decimal(max(scores))
    return low if low == high else f"{low} to {high}"


def error(score: float, number: int) -> float:
    """One standard error of an accuracy, in points."""
    return (score * (100 - score) / number) ** 0.5
