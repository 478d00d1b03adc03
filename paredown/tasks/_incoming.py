"""One input row of a prediction, good or bad, from a record of any source."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from paredown.answers import Choices, Kind, MultiLabel, Question, Row
from paredown.answers._columns import LABEL_NAMES, Columns, find_columns
from paredown.errors import BadInput
from paredown.model import Reading
from paredown.registry import answers
from paredown.tasks._reading import Fault, Item, item_of, readable_cell, value_of
from paredown.tasks.wikihop import question_of

OPTIONS = "options"  # the column that holds a list of them, where one is chosen
LISTS = ("candidates", "supports")  # the columns that hold lists, where a marked candidate is chosen


@dataclass(frozen=True)
class Incoming:
    """One input row, good or bad."""

    line: int
    row: Row | Question | Choices | None
    error: str = ""
    kept: tuple[Any, ...] = ()  # what goes to the output as it came

    def keeping(self, record: dict[str, Any] | str, names: tuple[str, ...]) -> Incoming:
        """The same row with values of its record."""
        if not names:
            return self
        known = record if isinstance(record, dict) else {}
        try:
            return replace(self, kept=tuple(_plain_value(known.get(name), name) for name in names))
        except Fault as fault:
            return replace(_bad(self.line, fault), kept=(None,) * len(names))


def columns_to_read(
    source: str, names: tuple[str, ...], text: str | None, pair: str | None, usual: Reading, per_word: bool
) -> Columns:
    """The columns of the texts, named or found; labels are not read, so it does not matter which column has them."""
    if text is None:
        others = tuple(name for name in names if name.lower() not in LABEL_NAMES or name in (pair, usual.text_column))
        names = others or names
    return find_columns(source, names, text, pair, usual=usual, per_word=per_word)


def incoming_question(line: int, record: dict[str, Any] | str) -> Incoming:
    if isinstance(record, str):
        return Incoming(line, None, record)
    asked = {"id": str(line), "query": record.get("query")}
    try:
        return Incoming(line, question_of(asked | {name: _listed(record, name) for name in LISTS}))
    except Fault as fault:
        return _bad(line, fault)


def incoming_row(line: int, record: dict[str, Any] | str, columns: Columns, kind: Kind) -> Incoming:
    try:
        item = item_of(line, record, Columns(columns.text, columns.pair), kind)
        if kind.grouped and isinstance(record, dict):
            return Incoming(line, _choices(item, record))
    except Fault as fault:
        return _bad(line, fault)
    return Incoming(line, Row(item.text, item.pair))


def _choices(item: Item, record: dict[str, Any]) -> Choices:
    """A question with its options."""
    try:
        asked = Choices(str(item.line), item.pair or "", str(item.text), _listed(record, OPTIONS))
        return answers.make("choice").unit(asked, 0)
    except BadInput as error:
        raise Fault(str(error).partition(": ")[2]) from None


def _listed(record: dict[str, Any], column: str) -> Any:
    """A list, which stands as JSON where cells are text."""
    return value_of(record.get(column), MultiLabel())


def _bad(line: int, fault: Exception) -> Incoming:
    return Incoming(line, None, str(fault).encode("utf-8", "replace").decode())  # it may quote what is no UTF-8


def _plain_value(value: Any, name: str) -> Any:
    """A value as JSON can hold it."""
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    if isinstance(value, str):
        return readable_cell(value, name)
    return value if value is None or isinstance(value, (bool, int, float, list, dict)) else str(value)
