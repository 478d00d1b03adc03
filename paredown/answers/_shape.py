"""Predictions as records, and records as lines of a file: the same bytes whoever writes them."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from paredown.answers._kind import Kind

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
