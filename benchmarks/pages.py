"""What the pages of figures share: sentences, tables, slots to fill, and the section that ends each page."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Callable
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


def how_made(results: list[dict], cautions: list[str], after: str = "", what: str = "this page", now: str = "") -> str:
    """The last section of a page: who writes `what`, the commands behind it, what is `after` them, and cautions. `now`:
    the experiments that took the place of a script that is gone."""
    commands = "\n".join(result["command"] for result in results)
    made_by = "made by:"
    if now:
        commands = "\n".join([*([commands] if commands else []), f"python -m benchmarks.run --only {now}"])
        made_by = """made by scripts that are gone. One runner has their recipes, with rows of its own: dev rows that
            choose are held out of train, and nothing is chosen on test rows:"""
    parts = [
        "## How this was made",
        filled(f"`{SCRIPT}` writes {what} and overwrites edits. It reads results in `benchmarks/`, {made_by}"),
        f"```\n{commands}\n```",
        after,
        bullets(cautions),
    ]
    return "\n\n".join(part for part in parts if part)


def machine(facts: dict, precision: str, note: str = "") -> str:
    versions = f"torch {facts['torch']}, transformers {facts['transformers']}"
    return f"**Machine**: one {facts['device'] or 'CPU'}, {precision}, {versions}. {note}"


def put(text: str, **parts: str) -> str:
    """The text with each slot `<!-- name -->` … `<!-- end -->` filled anew."""
    for name, part in parts.items():
        pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        text = pattern.sub(lambda found, part=part: f"{found[1]}{part}\n{found[2]}", text)
    return text


def spoken(words: list) -> str:
    *first, last = map(str, words)
    return f"{', '.join(first)} and {last}" if first else last


def span(scores: list[float]) -> str:
    low, high = f"{min(scores):.1f}", f"{max(scores):.1f}"
    return low if low == high else f"{low} to {high}"


def signed(difference: float, digits: int = 2) -> str:
    return f"{round(difference, digits) + 0.0:+.{digits}f}"  # adding zero drops the sign of a negative zero


def error(score: float, number: int) -> float:
    """One standard error of an accuracy, in points."""
    return (score * (100 - score) / number) ** 0.5
