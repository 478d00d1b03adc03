"""Records become rows: every text and label is checked, and what is wrong is counted and named, never dropped."""

from __future__ import annotations

import json
import logging
import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from paredown.answers import IGNORED, Kind, Row, SingleLabel
from paredown.answers._columns import Columns
from paredown.errors import BadInput
from paredown.registry import answers
from paredown.tasks._table import Table
from paredown.tasks._task import Problem, Split

WHOLE = re.compile(r"[+-]?\d+")
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
SEPARATORS = ("|", ";", ",")  # between labels, where several stand in one cell
RANKED = ("mean_reciprocal_rank",)  # the metrics of rows in groups

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ExpectedLabels:
    """What labels must be; what is left open is found in the file."""

    kind: str | None = None
    labels: tuple[str, ...] = ()
    spelled: tuple[str, ...] = ()  # other spellings of the labels, in the same order
    limits: tuple[float, ...] = ()  # lowest and highest number
    required: bool = False  # False: a file in which every label is missing is unlabelled
    separator: str | None = None  # between the labels of a cell, where there are several

    @property
    def of_kind(self) -> Kind | None:
        return None if self.kind is None else answers.make(self.kind)


@dataclass(frozen=True)
class Item:
    line: int
    text: str | tuple[str, ...]  # words where each has a label
    pair: str | None
    label: Any
    group: str | None


class Fault(Exception):
    """What is wrong with one row, question or paragraph, for its location to be named by who knows it."""


def gather(
    table: Table,
    columns: Columns,
    wanted: ExpectedLabels,
    skip_bad_rows: bool = False,
    metrics: tuple[str, ...] = (),
) -> Split:
    """All rows of a table; bad ones are an error that names the first and counts the others, or are left out.

    Without metrics rows are scored by the usual one of their kind; ranked rows have their own.
    """
    items, faults, wanted_kind = [], [], wanted.of_kind
    for line, cells in table.rows:
        try:
            items.append(item_of(line, cells, columns, wanted_kind, wanted.separator))
        except Fault as fault:
            faults.append((line, str(fault)))
    if not items and not faults:
        raise BadInput(f"{table.source}: the file has no rows")
    labelled = [item.label for item in items if item.label is not None]
    needed = columns.label is not None and (wanted.required or bool(labelled))
    of_words = any(isinstance(item.text, tuple) for item in items)
    kind = wanted.kind or ("token_label" if of_words else guess_kind(labelled))
    of_kind = answers.make(kind)
    rows, groups = [], []
    for item in items:
        try:
            text = _words(item.text) if of_kind.per_word else item.text
            label = _label(item.label, of_kind, wanted) if item.label is not None else None
            if label is None and needed:
                raise Fault(f"no label in column {columns.label!r}")
            if of_kind.per_word and label is not None and len(label) != len(text):
                raise Fault(f"{len(label)} labels for {len(text)} words")
        except Fault as fault:
            faults.append((item.line, str(fault)))
        else:
            rows.append(Row(text, item.pair, label))
            groups.append(item.group or "")
    bad = tuple(Problem(f"{table.unit} {line}", reason) for line, reason in sorted(faults, key=lambda one: one[0]))
    tell_bad(table.source, bad, len(rows), "row", skip_bad_rows)
    metrics = RANKED if columns.group else metrics or (of_kind.metric,)
    labels = wanted.labels or _found(rows, of_kind)
    return Split(table.source, rows, kind, metrics, labels, bad, groups=tuple(groups) if columns.group else None)


def tell_bad(source: str, problems: Sequence[Problem], good: int, what: str, skip_bad_rows: bool) -> None:
    """Bad rows, or whatever a file holds, are an error; a warning where they may be left out and others are good."""
    if not problems:
        return
    bad = len(problems)
    said = f"{source}, {problems[0].location}: {problems[0].reason}"
    said += f"; and {bad - 1} more {what}{'s' * (bad > 2)}" if bad > 1 else ""
    if not good:
        raise BadInput(f"{said}; no {what} of the file is good")
    if not skip_bad_rows:
        raise BadInput(f"{said} (skip_bad_rows=True reads the other {good})")
    log.warning("left out %d of %d %ss: %s", bad, bad + good, what, said)


def item_of(
    line: int, cells: dict[str, Any] | str, columns: Columns, kind: Kind | None, separator: str | None = None
) -> Item:
    if isinstance(cells, str):
        raise Fault(cells)
    text: str | tuple[str, ...] | None = _listed_words(cells.get(columns.text[0]), kind)
    if text is None:
        parts = [_text(cells, name, empty=len(columns.text) > 1) for name in columns.text]
        text = " ".join(part for part in parts if part)
    if not text:
        raise Fault(f"empty text in columns {', '.join(map(repr, columns.text))}")
    pair = None if columns.pair is None else _text(cells, columns.pair)
    label = None if columns.label is None else value_of(cells.get(columns.label), kind, separator)
    group = None if columns.group is None else str(value_of(cells.get(columns.group), SingleLabel()) or "")
    if group == "":
        raise Fault(f"empty {columns.group!r}")
    return Item(line, text, pair, label, group)


def _listed_words(cell: Any, kind: Kind | None) -> tuple[str, ...] | None:
    """The words of a cell that holds a list of them; None where it holds a text, or where texts are wanted."""
    if kind is not None and kind.per_word and isinstance(cell, str) and cell.startswith("["):
        cell = value_of(cell, kind)
    return _words(tuple(cell)) if (kind is None or kind.per_word) and isinstance(cell, (list, tuple)) else None


def _words(text: str | tuple[Any, ...]) -> tuple[str, ...]:
    if isinstance(text, str):
        return tuple(text.split())
    if not text or not all(isinstance(word, str) and word.strip() for word in text):
        raise Fault(f"expected a list of words, none of them empty, got {list(text)!r:.60}")
    return tuple(readable_cell(word, "words") for word in text)


def _text(cells: dict[str, Any], name: str, empty: bool = False) -> str:
    if name not in cells:
        raise Fault(f"no column {name!r}; it has {', '.join(map(str, cells)) or 'none'}")
    text = cells[name]
    if text is None or (isinstance(text, float) and math.isnan(text)):
        text = ""
    if not isinstance(text, str):
        raise Fault(f"column {name!r} must hold text, not {text!r:.40}")
    if not empty and not text.strip():
        raise Fault(f"empty text in column {name!r}")
    return readable_cell(text, name)


def readable_cell(text: str, name: str) -> str:
    if text.isascii() and "\0" not in text:
        return text
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise Fault(f"column {name!r} is not UTF-8 (at character {error.start}: {text[error.start]!a})") from None
    if "\0" in text:
        raise Fault(f"column {name!r} holds a NUL character")
    return text


def value_of(cell: Any, kind: Kind | None, separator: str | None = None) -> Any:
    """A label as it stands in the file; None where there is none. A JSON list in a text cell is a list, and so are
    labels with a separator between them."""
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return None
    if not isinstance(cell, str):
        return cell
    cell = readable_cell(cell.strip(), "label")
    if (kind is None or kind.label_type == "texts") and cell.startswith("[") and cell.endswith("]"):
        try:
            return json.loads(cell)
        except (ValueError, RecursionError):
            return cell
    if separator is not None:
        return [part.strip() for part in cell.split(separator) if part.strip()]
    return cell.split() if cell and kind is not None and kind.per_word else cell or None


def tell_several(source: str, labels: Sequence[str]) -> None:
    """Say so where single labels look like several in one: a part of one stands in another too."""
    for separator in SEPARATORS:
        parts = Counter(part.strip() for label in labels for part in label.split(separator))
        joined = [label for label in labels if any(parts[part.strip()] > 1 for part in label.split(separator)[1:])]
        if joined:
            log.warning(
                "%s: labels such as %r look like several in one; label_separator=%r (--label-separator) takes them "
                "apart, kind='single_label' (--kind) says that each is one",
                *(source, joined[0], separator),
            )
            return


def guess_kind(labels: Sequence[Any]) -> str:
    """Lists are several labels, a number that is not whole makes all of them numbers, the rest are single labels."""
    if any(isinstance(label, (list, tuple)) for label in labels):
        return "multi_label"
    if any(isinstance(label, float) or (isinstance(label, str) and _fraction(label)) for label in labels):
        return "regression"
    return "single_label"


def _fraction(text: str) -> bool:
    return NUMBER.fullmatch(text) is not None and WHOLE.fullmatch(text) is None


def _label(label: Any, kind: Kind, wanted: ExpectedLabels) -> Any:
    if kind.label_type == "number":
        return _number(label, wanted)
    if kind.label_type == "text":
        return _name(label, wanted)
    if not isinstance(label, (list, tuple)):
        how = "as others in this file are" if wanted.kind is None else "in csv as JSON, or with a label_separator"
        raise Fault(f"label {label!r:.60} is not a list of labels, {how}")
    if kind.per_word:
        return tuple(IGNORED if one in (None, IGNORED) else _name(one, wanted) for one in label)
    names = tuple(_name(one, wanted) for one in label)
    if len(set(names)) < len(names):
        raise Fault(f"labels {list(label)!r:.60} name one twice; list the labels that hold, not a 0 or 1 for each")
    return names


def _number(label: Any, wanted: ExpectedLabels) -> float:
    is_text = isinstance(label, str) and NUMBER.fullmatch(label) is not None
    if not (is_text or (isinstance(label, (int, float)) and not isinstance(label, bool))):
        hint = "" if wanted.kind else " as others in this file are; kind='single_label' takes labels as names"
        raise Fault(f"label {label!r:.60} is not a number{hint}")
    number = float(label)
    if not math.isfinite(number):
        raise Fault(f"label {label!r:.60} is not a finite number")
    if wanted.limits and not wanted.limits[0] <= number <= wanted.limits[1]:
        raise Fault(f"label {number:g} is not in {wanted.limits[0]:g}..{wanted.limits[1]:g}")
    return number


def _name(label: Any, wanted: ExpectedLabels) -> str:
    if isinstance(label, bool):
        label = "true" if label else "false"
    if isinstance(label, float) and label.is_integer():
        label = int(label)
    if not isinstance(label, (str, int, float)):
        raise Fault(f"label {label!r:.60} is not a name or a number")
    name = readable_cell(str(label), "label")
    if not wanted.labels or name in wanted.labels:
        return name
    if name in wanted.spelled:
        return wanted.labels[wanted.spelled.index(name)]
    known = ", ".join(wanted.labels[:20]) + (", …" if len(wanted.labels) > 20 else "")
    also = f" (or {', '.join(wanted.spelled[:20])})" if wanted.spelled else ""
    raise Fault(f"label {name[:60]!r} is not one of {known}{also}")


def _found(rows: list[Row], kind: Kind) -> tuple[str, ...]:
    if kind.label_type == "number":
        return ("score",)
    labels = [row.label for row in rows if row.label is not None]
    several = kind.label_type == "texts"
    names = {name for label in labels for name in label if name != IGNORED} if several else set(labels)
    whole = all(WHOLE.fullmatch(name) for name in names)
    return tuple(sorted(names, key=(lambda name: (int(name), name)) if whole else None))
