"""Rows for `predict` as they come: any file the tasks can read, or standard input; never more than a chunk is held."""

from __future__ import annotations

import codecs
import hashlib
import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

from paredown.answers import Kind
from paredown.answers._columns import TEXT_NAMES, Columns
from paredown.cli._data import as_flags
from paredown.errors import BadInput, BadSetting
from paredown.model import Reading
from paredown.registry import answers, tasks
from paredown.tasks._incoming import LISTS, Incoming, columns_to_read, incoming_question, incoming_row
from paredown.tasks._questions import JSON
from paredown.tasks._records import numbered_records
from paredown.tasks._table import Numbered, Table, _ended, read_table, table_of, without_last_blanks

PIPE = "-"  # standard input or output
STANDARD_INPUT = "standard input"
LOOKED_AT = 1000  # json lines have no header: so many records tell the columns
FORMS = ("auto", "text", "csv", "tsv", "jsonl", "conll")  # of standard input; a file's name gives its own
HEADER_WORDS = 3  # of a column's name, at most

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Input:
    """What there is to read, and what is known of it."""

    path: str
    given: Reading = field(default_factory=Reading)  # by flags
    usual: Reading = field(default_factory=Reading)  # as in training
    form: str = "auto"  # of standard input
    ids: tuple[str, ...] = ()  # columns that go to the output too
    keep_all: bool = False  # all of them do
    label: str | None = None  # a column that comes along where there is one

    def __post_init__(self) -> None:
        if self.form not in FORMS:
            raise BadSetting(f"--input-format is one of {', '.join(FORMS)}, not {self.form!r}")
        if self.form != "auto" and self.path != PIPE:
            raise BadSetting(f"--input-format is of standard input; the name of {self.path} gives its own")

    @property
    def header(self) -> bool:
        header = self.usual.header if self.given.header is None else self.given.header
        return header is not False

    @property
    def absolute(self) -> Input:
        """The same for a process in another folder."""
        return replace(self, path=str(Path(self.path).resolve()))

    @property
    def size(self) -> int | None:
        return None if self.path == PIPE else Path(self.path).stat().st_size

    def table(self, per_word: bool | None = None) -> Table:
        if self.path == PIPE:
            return _standard_input(self)
        return read_table(Path(self.path), header=self.header, per_word=per_word)

    def kept(self, source: str, names: tuple[str, ...]) -> tuple[str, ...]:
        """The columns that go to the output, out of those there are."""
        if unknown := [name for name in self.ids if name not in names]:
            raise BadInput(f"{source}: no column {unknown[0]!r} for --id-column; it has {', '.join(names)}")
        label = (self.label,) if self.label in names and self.label not in self.ids else ()
        return names if self.keep_all else self.ids + label


@dataclass(frozen=True)
class InputSource:
    """Rows are read one after the other, which is quick, and parsed by whoever answers them."""

    name: str
    unit: str  # what is counted: lines, or rows of a parquet file
    size: int | None  # bytes; None: standard input
    text: str  # column
    pair: str | None
    raw: Numbered
    parse: Callable[[int, Any], Incoming]  # other processes may have it
    kept: tuple[str, ...] = ()  # columns that go to the output

    def take(self, number: int) -> list[tuple[int, Any]]:
        """The next raw rows, each with its line."""
        return list(islice(self.raw, number))

    def parsed(self, raw: Sequence[tuple[int, Any]]) -> list[Incoming]:
        return [self.parse(line, record) for line, record in raw]

    @property
    def read(self) -> InputSource:
        """The same with no row left: other processes can have it, to parse what was read here."""
        return replace(self, raw=iter(()))

    def skip(self, number: int) -> str:
        """Pass over rows that are done; their digest shows whether they are the same rows as then."""
        return digest_of(islice(self.raw, number))

    def where(self, one: Incoming) -> str:
        return f"{self.name}, {self.unit} {one.line}"


def digest_of(raw: Iterable[tuple[int, Any]], first: int = 0, before: str = "") -> str:
    """Of rows in their order, the `first` of which came after others with a digest of their own."""
    total = int(before or "0", 16)
    for number, (_, record) in enumerate(raw, first):
        facts = f"{number} {record!r}".encode("utf-8", "surrogatepass")
        total += int.from_bytes(hashlib.blake2b(facts, digest_size=16).digest(), "big")
    return f"{total % 2**128:032x}"


def open_source(given: Input, kind: Kind) -> InputSource:
    """Find the columns and stand before the first row. Where every word is answered, a text may be a list."""
    table, names = _named(given.table(kind.per_word))
    columns = Columns(("text",))
    if names:
        text, pair = given.given.text_column, given.given.pair_column
        with as_flags():
            columns = columns_to_read(table.source, names, text, pair, given.usual, kind.per_word)
    kept = given.kept(table.source, names)
    parse = partial(_row, table.parse, columns, kind, kept)
    return InputSource(table.source, table.unit, given.size, columns.text[0], columns.pair, table.raw, parse, kept)


def _row(
    parse: Callable[[Any], Any], columns: Columns, kind: Kind, kept: tuple[str, ...], line: int, raw: Any
) -> Incoming:
    record = parse(raw)
    return incoming_row(line, record, columns, kind).keeping(record, kept)


def _named(table: Table) -> tuple[Table, tuple[str, ...]]:
    """The table and its columns; json lines have no header, so their first records tell."""
    if table.columns is not None:
        return table, table.columns
    first, table = table.peeked(LOOKED_AT)
    names = tuple(dict.fromkeys(str(name) for _, record in first if isinstance(record, dict) for name in record))
    if first and not names:
        line, reason = first[0]
        raise BadInput(f"{table.source}, {table.unit} {line}: {reason}; nor is any of the first {len(first)} good")
    return table, names


def open_records(given: Input) -> InputSource:
    """Questions in WikiHop's format; its JSON file too. In csv and tsv lists are written as JSON."""
    if given.path.lower().endswith(JSON):
        items = enumerate((record for _, record in numbered_records(Path(given.path))), 1)
        table = Table(given.path, None, items, unit="item")
    else:
        table = given.table()
    table, names = _named(table)
    kept = given.kept(table.source, names)
    parse = partial(_question, table.parse, kept)
    return InputSource(table.source, table.unit, given.size, "query", ", ".join(LISTS), table.raw, parse, kept)


def _question(parse: Callable[[Any], Any], kept: tuple[str, ...], line: int, raw: Any) -> Incoming:
    record = parse(raw)
    return incoming_question(line, record).keeping(record, kept)


def open_questions(path: str, task: str, kind: Kind) -> InputSource:
    """The questions of a file in a task's format, such as models of the kind are asked; of some tasks a folder too."""
    reader, folder = tasks.make(task), Path(path).is_dir()
    theirs = answers.make(reader.kind or "single_label")
    if theirs.asks is not kind.asks or theirs.grouped != kind.grouped:
        problem = f"the task {task} does not ask questions about a text that {kind.name} answers"
        raise BadSetting(f"{problem}; leave --task out and name columns")
    if path == PIPE:
        raise BadSetting(f"the questions of {task} are read from a file, not from standard input")
    ending = reader.in_folders_of
    if folder and not (ending and any(Path(path).glob(f"*{ending}"))):
        raise BadInput(f"{path} is a folder{ending and f' without a {ending}'}; name a file of questions")
    size = None if folder else Path(path).stat().st_size
    raw = enumerate(reader.questions(Path(path)), 1)
    return InputSource(path, "question", size, "question", "context", raw, _asked)


def _asked(line: int, raw: tuple[str, Any]) -> Incoming:
    where, asked = raw
    return Incoming(line, None, f"{where}: {asked}") if isinstance(asked, str) else Incoming(line, asked)


def source_for(kind: Kind, wanted: Input, task: str | None) -> InputSource:
    """What a model of the kind is to read; `task`: in whose format questions are."""
    text, pair = wanted.given.text_column, wanted.given.pair_column
    if task is not None:
        if not kind.asks_questions or text or pair or wanted.ids or wanted.keep_all:
            raise BadSetting(
                "--task reads questions about a text, for a bundle that answers them; it has no columns to name"
            )
        return open_questions(wanted.path, task, kind)
    if kind.records_of is not None:
        if text is not None or pair is not None:
            raise BadSetting("this bundle reads query, candidates and supports; leave --text-column, --pair-column out")
        return open_records(wanted)
    columns = replace(wanted.given, text_column=text or kind.columns[0], pair_column=pair or kind.columns[1])
    return open_source(replace(wanted, given=columns), kind)


def _standard_input(given: Input) -> Table:
    """JSON lines, csv or tsv with a header, or one text on each line: the first line that is not blank tells."""
    lines = _lines()
    before = []
    for number, line in lines:
        before.append((number, line))
        if line.strip():
            break
    form = given.form
    if form == "auto":
        form = _form_of(before[-1][1] if before else "", given)
        other = "one text a line" if form == "text" else form
        log.info("standard input is read as %s; --input-format changes that", other)
    lines = chain(before, lines)
    if form != "text":
        return table_of(STANDARD_INPUT, lines, form, header=given.header)
    return Table(STANDARD_INPUT, ("text",), without_last_blanks(_plain(lines)))


def _form_of(line: str, given: Input) -> str:
    """A line of short cells, one of which is the name of a column of text, is a header."""
    if line.lstrip().startswith("{"):
        return "jsonl"
    form, separator = ("tsv", "\t") if "\t" in line else ("csv", ",")
    cells = [cell.strip().strip('"') for cell in _ended(line).split(separator)]
    named = {given.given.text_column, given.usual.text_column}
    known = any(cell in named or cell.lower() in TEXT_NAMES for cell in cells)
    short = all(cell and len(cell.split()) <= HEADER_WORDS for cell in cells)
    return form if known and short and given.header else "text"


def _lines() -> Iterator[tuple[int, str]]:
    for number, line in enumerate(sys.stdin.buffer, 1):
        line = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
        yield number, line.decode("utf-8", "surrogateescape")


def _plain(lines: Iterator[tuple[int, str]]) -> Numbered:
    for number, line in lines:
        yield number, {"text": _ended(line)} if line.strip() else []
