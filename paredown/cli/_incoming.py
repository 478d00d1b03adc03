"""Rows for `predict` as they come: any file the tasks can read, or standard input; never more than a chunk is held."""

from __future__ import annotations

import codecs
import hashlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

from paredown.errors import BadInput, BadSetting
from paredown.evaluation.questions import ASKED
from paredown.kinds import KINDS, Kind
from paredown.registry import tasks
from paredown.rows import Choices, Row, as_rows
from paredown.tasks import Question
from paredown.tasks._columns import LABEL, find_columns
from paredown.tasks._questions import JSON, Fault
from paredown.tasks._reading import Columns, _Fault, _Item, _item, _value
from paredown.tasks._records import QuestionFiles, numbered_records
from paredown.tasks._table import Numbered, Table, _ended, _json, read_table, without_last_blanks
from paredown.tasks.race import Race
from paredown.tasks.wikihop import question_of

PIPE = "-"  # standard input or output
LOOKED_AT = 1000  # json lines have no header: so many records tell the columns
WORDS = ("tokens", "words")  # columns that hold a list of words, where every word is answered
OPTIONS = "options"  # the column that holds a list of them, where one is chosen
LISTS = ("candidates", "supports")  # the columns that hold lists, where a marked candidate is chosen


@dataclass(frozen=True)
class Incoming:
    """One input row, good or bad."""

    line: int
    row: Row | Question | Choices | None
    error: str = ""

    def chained(self, before: str) -> str:
        """A digest of this row and all before it."""
        return hashlib.sha256((before + repr((self.row, self.error))).encode()).hexdigest()


@dataclass(frozen=True)
class Source:
    name: str
    unit: str  # what is counted: lines, or rows of a parquet file
    size: int | None  # bytes; None: standard input
    text: str  # column
    pair: str | None
    rows: Iterator[Incoming]

    def take(self, number: int) -> list[Incoming]:
        return list(islice(self.rows, number))

    def skip(self, number: int) -> str:
        """Pass over rows that are done; their digest shows whether they are the same rows as then."""
        digest = ""
        for one in islice(self.rows, number):
            digest = one.chained(digest)
        return digest

    def where(self, one: Incoming) -> str:
        return f"{self.name}, {self.unit} {one.line}"


def open_source(path: str, text: str | None, pair: str | None, header: bool, kind: Kind) -> Source:
    """Find the columns and stand before the first row. Where every word is answered, a text may be a list."""
    if path == PIPE:
        table, size = _standard_input(), None
    else:
        table, size = read_table(Path(path), header=header), Path(path).stat().st_size
    names, rows = table.columns, table.rows
    if names is None:
        first = list(islice(rows, LOOKED_AT))
        names = tuple(dict.fromkeys(str(name) for _, record in first if isinstance(record, dict) for name in record))
        rows = chain(first, rows)
        if first and not names:
            line, reason = first[0]
            raise BadInput(f"{table.source}, {table.unit} {line}: {reason}; nor is any of the first {len(first)} good")
    columns = _columns(table.source, names, text, pair, kind.per_word) if names else Columns(("text",))
    found = (_incoming(line, record, columns, kind) for line, record in rows)
    return Source(table.source, table.unit, size, columns.text[0], columns.pair, found)


def open_candidates(path: str, header: bool = True) -> Source:
    """Questions in WikiHop's format; its JSON file too. In csv and tsv lists are written as JSON."""
    if path == PIPE:
        table = _standard_input()
    elif path.lower().endswith(JSON):
        items = enumerate((record for _, record in numbered_records(Path(path))), 1)
        table = Table(path, None, items, unit="item")
    else:
        table = read_table(Path(path), header=header)
    found = (_question(line, record) for line, record in table.rows)
    size = None if path == PIPE else Path(path).stat().st_size
    return Source(table.source, table.unit, size, "query", ", ".join(LISTS), found)


def _question(line: int, record: dict[str, Any] | str) -> Incoming:
    if isinstance(record, str):
        return Incoming(line, None, record)
    asked = {"id": str(line), "query": record.get("query")}
    try:
        return Incoming(line, question_of(asked | {name: _listed(record, name) for name in LISTS}))
    except (Fault, _Fault) as fault:
        return _bad(line, fault)


def open_questions(path: str, task: str, kind: Kind) -> Source:
    """The questions of a file in a task's format, such as models of the kind are asked; of RACE a folder too."""
    reader, folder = tasks.make(task), Path(path).is_dir()
    articles = isinstance(reader, Race)
    alike = ASKED.get(reader.kind) is ASKED[kind.name] and KINDS[reader.kind].grouped == kind.grouped
    if not alike or not (articles or isinstance(reader, QuestionFiles)):
        said = f"the task {task} does not ask questions about a text that {kind.name} answers"
        raise BadSetting(f"{said}; leave --task out and name columns")
    if path == PIPE:
        raise BadSetting(f"the questions of {task} are read from a file, not from standard input")
    if folder and not (articles and any(Path(path).glob("*.txt"))):
        raise BadInput(f"{path} is a folder{' without a .txt' if articles else ''}; name a file of questions")
    rows = (
        Incoming(number, None, f"{place}: {asked}") if isinstance(asked, str) else Incoming(number, asked)
        for number, (place, asked) in enumerate(reader._found(Path(path)), 1)
    )
    return Source(path, "question", None if folder else Path(path).stat().st_size, "question", "context", rows)


def _columns(source: str, names: tuple[str, ...], text: str | None, pair: str | None, words: bool) -> Columns:
    if words and text is None:
        text = next((name for name in WORDS if name in names), None)
    if text is None:  # labels are not read here, so it does not matter which column holds them
        labels = {name for group in LABEL for name in group}
        others = tuple(name for name in names if name.lower() not in labels or name == pair)
        names = others or names
    try:
        return find_columns(source, names, text, pair)
    except BadInput as error:
        said = str(error).replace("text_column", "--text-column").replace("pair_column", "--pair-column")
        raise BadInput(said.replace("header=False", "--no-header")) from None


def _incoming(line: int, record: dict[str, Any] | str, columns: Columns, kind: Kind) -> Incoming:
    listed = record.get(columns.text[0]) if kind.per_word and isinstance(record, dict) else None
    if isinstance(listed, list):
        good = bool(listed) and all(isinstance(word, str) and word.strip() for word in listed)
        return Incoming(line, Row(tuple(listed))) if good else Incoming(line, None, "expected a list of words")
    try:
        item = _item(line, record, Columns(columns.text, columns.pair), None)
        if kind.grouped and isinstance(record, dict):
            return Incoming(line, _choices(item, record))
    except _Fault as fault:
        return _bad(line, fault)
    return Incoming(line, Row(item.text, item.pair))


def _choices(item: _Item, record: dict[str, Any]) -> Choices:
    """A question with its options."""
    try:
        asked = Choices(str(item.line), item.pair or "", item.text, _listed(record, OPTIONS))
        return as_rows(asked, KINDS["choice"])[0]
    except BadInput as error:
        raise _Fault(str(error).partition(": ")[2]) from None


def _listed(record: dict[str, Any], column: str) -> Any:
    """A list, which stands as JSON where cells are text."""
    return _value(record.get(column), "multi_label")


def _bad(line: int, fault: Exception) -> Incoming:
    return Incoming(line, None, str(fault).encode("utf-8", "replace").decode())  # it may quote what is no UTF-8


def _standard_input() -> Table:
    """One text on each line; JSON lines if the first line that is not blank begins with a brace."""
    lines = _lines()
    before = []
    for number, line in lines:
        before.append((number, line))
        if line.strip():
            break
    lines = chain(before, lines)
    if before and before[-1][1].lstrip().startswith("{"):
        return Table("standard input", None, without_last_blanks(_json(lines)))
    return Table("standard input", ("text",), without_last_blanks(_plain(lines)))


def _lines() -> Iterator[tuple[int, str]]:
    for number, line in enumerate(sys.stdin.buffer, 1):
        line = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
        yield number, line.decode("utf-8", "surrogateescape")


def _plain(lines: Iterator[tuple[int, str]]) -> Numbered:
    for number, line in lines:
        yield number, {"text": _ended(line)} if line.strip() else []
