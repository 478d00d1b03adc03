"""Predictions as records, and records as lines of a file: the same bytes whoever writes them."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from paredown.answers._kind import Kind

if TYPE_CHECKING:
    import pyarrow

Record = dict[str, Any]  # row, the fields of a prediction, and error where the row is bad
NESTED = ("scores", "facts")  # one cell of JSON in a flat file


def fields_of(kind: Kind, named: bool = False) -> tuple[str, ...]:
    """The fields of a row's record; `named`: rows are questions that have an id, and letters for their options."""
    return (*(kind.named_fields if named else ()), *kind.fields)


@dataclass(frozen=True)
class Shape:
    """The columns of a flat file."""

    kind: Kind
    labels: tuple[str, ...]
    named: bool = False  # rows are questions that have an id
    columns: tuple[str, ...] = ()  # of the input, that come along

    @property
    def fields(self) -> tuple[str, ...]:
        return ("row", *self.kept, *fields_of(self.kind, self.named), "error")

    @property
    def kept(self) -> tuple[str, ...]:
        """What the input's columns are called here: as they were, unless a field of ours has that name."""
        ours = {"row", "error", *fields_of(self.kind, self.named), *self._scores}
        names: list[str] = []
        for name in self.columns:
            while name in ours:
                name = f"input_{name}"
            ours.add(name)
            names.append(name)
        return tuple(names)

    @property
    def _scores(self) -> list[str]:
        return [f"score_{label}" for label in self.labels]

    def spreads(self, name: str) -> bool:
        """Scores have a column for each label, unless rows differ in whose they are: of words, of their own options."""
        return name == "scores" and not self.kind.own_scores

    @property
    def names(self) -> list[str]:
        return [column for name in self.fields for column in (self._scores if self.spreads(name) else [name])]

    def schema(self, kept: dict[str, pyarrow.DataType]) -> pyarrow.Schema:
        """Of an Arrow table; columns of the input that are no numbers or truth values are text."""
        import pyarrow  # comes with datasets
        from pyarrow import types as are

        number, name = pyarrow.float64(), pyarrow.string()
        label = {"text": name, "texts": pyarrow.list_(name), "number": number}[self.kind.label_type]
        if label == number and len(self.labels) > 1:
            label = pyarrow.list_(number)
        whole = dict.fromkeys(("row", "start", "end", "candidate", "windows", "layers", "tokens"), pyarrow.int64())
        known = {"label": label, **dict.fromkeys(("id", "letter", "answer", *NESTED, "error"), name), **whole}
        plain = ((are.is_integer, pyarrow.int64()), (are.is_floating, number), (are.is_boolean, pyarrow.bool_()))
        known |= {its: next((to for test, to in plain if test(old)), name) for its, old in kept.items()}
        return pyarrow.schema([(column, known.get(column, number)) for column in self.names])

    def table(self, records: Sequence[Record], schema: pyarrow.Schema) -> pyarrow.Table:
        import pyarrow

        columns = zip(*map(self.flat, records)) if records else [[] for _ in schema]
        arrays = [
            pyarrow.array(map(_text, cells) if field.type == pyarrow.string() else cells, field.type)
            for cells, field in zip(columns, schema, strict=True)
        ]
        return pyarrow.Table.from_arrays(arrays, schema=schema)

    def lines(self, records: Sequence[Record], flat: bool) -> bytes:
        """Records as they stand in a file: flat in csv, else JSON lines."""
        return csv_of(map(self.flat, records)) if flat else jsonl_of(records)

    def flat(self, record: Record) -> list[Any]:
        cells: list[Any] = []
        for name in self.fields:
            value = record.get(name)
            if self.spreads(name):
                cells += [value and value[label] for label in self.labels]
            else:
                nested = name in NESTED and value is not None
                cells.append(json.dumps(value, ensure_ascii=False) if nested else value)
        return cells


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def jsonl_of(records: Sequence[Record]) -> bytes:
    encode = json.JSONEncoder(ensure_ascii=False).encode  # which `dumps` would make anew for each
    return "".join([encode(record) + "\n" for record in records]).encode()


def csv_of(rows: Iterable[list[Any]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(
        [json.dumps(cell, ensure_ascii=False) if isinstance(cell, (list, dict)) else cell for cell in row]
        for row in rows
    )
    return text.getvalue().encode()
