"""Words with their labels in CoNLL's format: a word a line, its label in the last column, a blank line between two
sentences."""

from __future__ import annotations

import re
from collections.abc import Iterator

TOKENS, TAGS = "tokens", "tags"  # what the columns are called
DOCUMENT = "-DOCSTART-"
COMMENT = re.compile(r"#\s+(id\s|\w+\s*=)")  # as in CoNLL-U; a `#` alone is a word

Line = tuple[int, str]


def sentences(lines: Iterator[Line]) -> Iterator[tuple[int, dict[str, list[str] | None] | str]]:
    """(line of its first word, the words and labels of a sentence), or what is wrong with it; labels are None where
    the file has words alone."""
    width = 0
    for start, cells in _blocks(lines):
        width = width or len(cells[0])
        odd = next((index for index, its in enumerate(cells) if len(its) != width), None)
        if odd is not None:
            yield start + odd, f"{len(cells[odd])} columns where other words have {width}"
        else:
            tags = [its[-1] for its in cells] if width > 1 else None
            yield start, {TOKENS: [its[0] for its in cells], TAGS: tags}


def _blocks(lines: Iterator[Line]) -> Iterator[tuple[int, list[list[str]]]]:
    """The cells of the lines between two that are blank."""
    start = 0
    cells: list[list[str]] = []
    for number, line in lines:
        found = _cells(line)
        if found:
            start = start if cells else number
            cells.append(found)
        elif cells:
            yield start, cells
            cells = []
    if cells:
        yield start, cells


def _cells(line: str) -> list[str]:
    """Columns stand between tabs, or between spaces; what divides documents or comments on a sentence has none."""
    line = line.strip()
    if line.startswith(DOCUMENT) or COMMENT.match(line):
        return []
    return [cell.strip() for cell in line.split("\t")] if "\t" in line else line.split()
