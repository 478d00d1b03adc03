"""Predictor: a model with all that makes a difference to its records, from rows to what stands in a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from paredown.answers import Prediction
from paredown.answers._shape import Record, Shape, fields_of
from paredown.model import AdaptiveModel
from paredown.plan import Plan
from paredown.tasks._incoming import Incoming
from paredown.tasks.race import letter


@dataclass(frozen=True)
class Predictor:
    model: AdaptiveModel
    plan: Plan
    batch_size: int | None = None  # rows that run at once, at most
    max_length: int | None = None
    settings: dict[str, Any] = field(default_factory=dict)  # of the kind of answer
    named: bool = False  # rows are questions that have an id
    columns: tuple[str, ...] = ()  # of the input, that come along

    @property
    def fields(self) -> tuple[str, ...]:
        return fields_of(self.model.kind, self.named)

    @property
    def shape(self) -> Shape:
        return Shape(self.model.kind, tuple(self.model.labels), self.named, self.columns)

    def prepare(self, chunk: Sequence[Incoming]) -> Any:
        """What no device is needed for; another thread may do it ahead."""
        rows = [one.row for one in chunk if one.row is not None]
        return self.model.prepare(rows, self.plan, self.max_length, **self.settings)

    def records(self, chunk: Sequence[Incoming], prepared: Any, first: int = 0) -> list[Record]:
        """One for every row, numbered from `first`; a bad row has an error in place of a label."""
        predictions = iter(self.model.executor.predict(prepared, self.batch_size))
        records, fields, kept = [], self.fields, self.shape.kept
        plain = attrgetter(*fields) if _SPECIAL.isdisjoint(fields) else None
        for index, one in enumerate(chunk, first):
            record: Record = {"row": index}
            if kept:
                record |= zip(kept, one.kept, strict=True)
            if one.row is None:
                record |= {**dict.fromkeys(fields), "error": one.error}
            else:
                prediction = next(predictions)
                if plain is None:
                    record |= {name: _field(name, one.row, prediction) for name in fields}
                else:
                    record |= zip(fields, plain(prediction))
            records.append(record)
        return records


_SPECIAL = {"id", "letter", "answer"}  # fields that a prediction does not have under their names


def _field(name: str, row: Any, prediction: Prediction) -> Any:
    if name == "id":
        return row.id
    if name == "letter":
        return letter(row.options.index(prediction.label))
    return getattr(prediction, "label" if name == "answer" else name)


def layers_of(record: Record) -> float:
    """Layers that a row ran, or the mean of its windows; 0 where it is bad."""
    return (record["layers"] or 0) / (record.get("windows") or 1)
