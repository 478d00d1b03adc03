"""Rows that training does not see: what its bundle is worth on them, at full depth and under its plan."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from rich.table import Table

from paredown.answers import Encoded
from paredown.cli._asked import ASKED, BATCH, Asked
from paredown.cli._data import Source
from paredown.errors import BadInput
from paredown.evaluation import Metric, Worth, metric_named, worth
from paredown.model import AdaptiveModel
from paredown.tasks import Split


@dataclass(frozen=True)
class HeldOut:
    """Labelled rows, encoded once for all models of one tokenizer."""

    found: Split
    encoded: list[Encoded]
    max_length: int | None
    task: str | None

    @classmethod
    def read(
        cls,
        source: Source,
        test: str,
        model: AdaptiveModel,
        max_length: int | None,
        learnt: Split,
        flag: str = "--test",
    ) -> HeldOut:
        """`test` is a file, or a split of the task; `learnt` are the training rows, whose labels and kind it has."""
        if source.task is not None and not Path(test).is_file():
            found = source.read(test)
        else:
            files = {**(source.files or {}), "test": test}
            found = replace(source, files=files).read("test", learnt.labels, learnt.kind, learnt.reading)
        encoded = model.encode(found.rows, max_length)
        if any(row.label is None and row.teaches for row in encoded):
            raise BadInput(f"{flag} {test}: its rows have no labels to score by")
        return cls(found, encoded, max_length, source.task)

    @cached_property
    def metric(self) -> Metric:
        return metric_named(self.found.metric, self.found.groups)

    def of(self, model: AdaptiveModel) -> Tested:
        questions = ASKED.get(model.kind.name)
        asked = questions(model, model.plan, self.found.rows, self.max_length, self.task) if questions else None
        return Tested(worth(model, self.encoded, self.metric, batch_size=BATCH), asked)


@dataclass(frozen=True)
class Tested:
    """What a model is worth on rows, and the official figures where they are questions."""

    worth: Worth
    asked: Asked | None

    def to_json(self) -> dict[str, Any]:
        return self.worth.to_json() | ({"questions": self.asked.figures} if self.asked else {})

    def tables(self) -> list[Table]:
        return [self.worth.table("test"), *([self.asked.table()] if self.asked else [])]
