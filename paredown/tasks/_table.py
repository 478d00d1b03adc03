"""Files of records, line by line: csv, tsv, json lines, words with their labels, parquet; text may be gzipped."""

from __future__ import annotations

import codecs
import csv
import gzip
import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO

from paredown.answers._columns import TEXT_NAMES
from paredown.errors import BadInput
from paredown.tasks._sentences import TAGS, TOKENS, sentences

WORD_A_LINE = (".conll", ".bio", ".iob", ".iob2")
PLAIN = ".txt"  # words too, where every word has a label; else nobody knows what its lines are
WORD_SUFFIXES = (*WORD_A_LINE, PLAIN, *(f"{suffix}.gz" for suffix in (*WORD_A_LINE, PLAIN)))
SUFFIXES = (".tsv", ".tsv.gz", ".csv", ".csv.gz", ".jsonl", ".jsonl.gz", ".parquet")
EMPTY = "the line is empty"
LONGEST_CELL = 2**31 - 1  # the csv module stops at 131,072 characters unless told otherwise

Numbered = Iterator[tuple[int, Any]]  # (line, record); a record that cannot be read is a text that says why


def as_it_is(record: Any) -> Any:
    return record


@dataclass(frozen=True)
class Table:
    source: str
    columns: tuple[str, ...] | None  # None: every record has its own (json lines)
    raw: Numbered  # (line, what stands there), which is quick to read
    unit: str = "line"  # what is counted
    parse: Callable[[Any], Any] = as_it_is  # to a dict of the columns, or a text that says what is wrong

    @property
    def rows(self) -> Numbered:
        """(line, dict of the columns), or (line, what is wrong with it)"""
        return ((line, self.parse(raw)) for line, raw in self.raw)

    def peeked(self, number: int) -> tuple[list[tuple[int, Any]], Table]:
        """The first rows, and the table with all of them still to come."""
        first = list(islice(self.raw, number))
        return [(line, self.parse(raw)) for line, raw in first], replace(self, raw=chain(first, self.raw))


def suffix_of(path: Path) -> str | None:
    return next((suffix for suffix in SUFFIXES + WORD_SUFFIXES if path.name.lower().endswith(suffix)), None)


def read_table(
    path: Path,
    columns: Sequence[str] = (),
    header: bool = True,
    quoted: bool | None = None,
    per_word: bool | None = None,
) -> Table:
    """A file's records as they are asked for.

    Without a header, `columns` are their names (else 0, 1, …). `quoted`: a cell may stand in double quotes; by default
    true for csv and false for tsv. `per_word`: whether every word has a label, None where nobody knows.
    """
    suffix = suffix_of(path)
    if suffix is None:
        raise BadInput(f"{path}: the name must end in one of {', '.join(SUFFIXES + WORD_A_LINE)}")
    if not path.is_file():
        raise BadInput(f"{path} is missing")
    if suffix == ".parquet":
        return _parquet(path)
    form, lines = suffix.removesuffix(".gz").removeprefix("."), numbered_lines(path)
    if suffix.startswith(WORD_A_LINE) and per_word is False:
        raise BadInput(f"{path} holds a word and its label on each line; kind='token_label' reads that")
    if suffix.startswith(PLAIN) and not per_word:
        raise BadInput(f"{path}: kind='token_label' reads a .txt, a word and its label on each line; else name a .csv")
    if form == "tsv" and per_word:
        lines, named = _named_words(lines, header)
        form = "tsv" if named else "words"
    return table_of(str(path), lines, form, columns, header, quoted)


def table_of(
    source: str,
    lines: Iterator[tuple[int, str]],
    form: str,
    columns: Sequence[str] = (),
    header: bool = True,
    quoted: bool | None = None,
) -> Table:
    """The records of numbered lines: csv, tsv or jsonl, and whatever else is a word a line."""
    if form == "jsonl":
        return Table(source, None, without_last_blanks(lines), parse=_json)
    if form not in ("csv", "tsv"):
        return Table(source, (TOKENS, TAGS), sentences(lines))
    tabs = form == "tsv"
    if quoted if quoted is not None else not tabs:
        cells = _quoted(lines, "\t" if tabs else ",")
    else:
        cells = ((number, _ended(line).split("\t" if tabs else ",")) for number, line in lines)
    return _delimited(source, without_last_blanks(cells), tuple(columns), header)


def _named_words(lines: Iterator[tuple[int, str]], header: bool) -> tuple[Iterator[tuple[int, str]], bool]:
    """The lines, and whether the first is a header that names a column of words or text."""
    first = list(islice(lines, 1))
    cells = _ended(first[0][1]).lower().split("\t") if first else []
    return chain(first, lines), header and not TEXT_NAMES.isdisjoint(cells)


def numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Numbered lines with their ends; a byte that is not UTF-8 becomes a surrogate, for the row's check to find."""
    number = 0
    try:
        with _opened(path) as file:
            for number, line in enumerate(file, 1):
                if number == 1:
                    if line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
                        raise BadInput(f"{path}, line 1: this is UTF-16; save the file as UTF-8")
                    line = line.removeprefix(codecs.BOM_UTF8)
                yield number, line.decode("utf-8", "surrogateescape")
    except (EOFError, OSError, zlib.error) as error:
        raise BadInput(f"{path}, after line {number}: the file is cut short or damaged ({error})") from error


def _opened(path: Path) -> BinaryIO:
    return gzip.open(path, "rb") if path.name.lower().endswith(".gz") else open(path, "rb")  # type: ignore[return-value]


def _ended(line: str) -> str:
    return line.removesuffix("\n").removesuffix("\r")


def _quoted(lines: Iterator[tuple[int, str]], separator: str) -> Numbered:
    csv.field_size_limit(LONGEST_CELL)
    # strict: otherwise a quote that is never closed swallows the rest of the file without a word.
    reader = csv.reader((line for _, line in lines), delimiter=separator, strict=True)
    while True:
        start = reader.line_num + 1
        try:
            yield start, next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            unclosed = "unexpected end of data" in str(error)
            yield start, "a quote that opens here is never closed" if unclosed else f"quotes are wrong: {error}"


def _json(line: str) -> Any:
    if line.isspace():
        return EMPTY
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        return f"not JSON: {error}"
    return record if isinstance(record, dict) else f"expected a JSON object, got {line.strip()[:40]}"


def without_last_blanks(rows: Numbered) -> Numbered:
    """Blank lines at the end of a file are not rows; elsewhere they are rows that went missing."""
    blank: list[tuple[int, Any]] = []
    for number, raw in rows:
        if raw in ([], [""]) or (isinstance(raw, str) and raw.isspace()):
            blank.append((number, raw if isinstance(raw, str) else EMPTY))
            continue
        if blank:
            yield from blank
            blank.clear()
        yield number, raw


def _delimited(source: str, rows: Numbered, columns: tuple[str, ...], header: bool) -> Table:
    number, first = next(rows, (1, None))
    if first is None:
        raise BadInput(f"{source}: the file is empty")
    if isinstance(first, str):
        raise BadInput(f"{source}, line {number}: {first}")
    if header:
        columns = tuple(name.strip() for name in first)
        if any("\r" in name for name in columns):
            raise BadInput(f"{source}, line 1: lines end in CR alone; save the file with LF or CRLF")
        if twice := sorted({name for name in columns if columns.count(name) > 1}):
            raise BadInput(f"{source}, line {number}: the header names {', '.join(map(repr, twice))} twice")
    else:
        columns = columns or tuple(map(str, range(len(first))))
    return Table(source, columns, rows if header else chain([(number, first)], rows), parse=partial(_record, columns))


def _record(columns: tuple[str, ...], cells: list[str] | str) -> dict[str, str] | str:
    if isinstance(cells, str):
        return cells
    if len(cells) == len(columns):
        return dict(zip(columns, cells))
    return f"{len(cells)} columns where {len(columns)} are needed ({', '.join(columns)})"


def _parquet(path: Path) -> Table:
    import pyarrow.parquet  # comes with datasets
    from pyarrow import ArrowException

    try:
        file = pyarrow.parquet.ParquetFile(path)
        columns = tuple(file.schema_arrow.names)
    except (ArrowException, OSError) as error:
        raise BadInput(f"{path} is not a parquet file, or damaged: {error}") from error

    def rows() -> Numbered:
        number = 0
        try:
            with file:
                for batch in file.iter_batches(1000):
                    for record in batch.to_pylist():
                        number += 1
                        yield number, record
        except (ArrowException, OSError) as error:
            raise BadInput(f"{path}, after row {number}: the file is cut short or damaged ({error})") from error

    return Table(str(path), columns, rows(), "row")
