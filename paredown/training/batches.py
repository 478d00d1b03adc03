"""What a stage learns from: rows tokenised once, batches of like length, the same whatever the number of processes."""

from __future__ import annotations

import bisect
import hashlib
import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import Any, TypeVar

import numpy as np

from paredown.answers import Encoded
from paredown.answers._rows import are_encoded
from paredown.errors import BadInput
from paredown.methods._stage import MOST_EPOCHS, Stage
from paredown.model import AdaptiveModel

log = logging.getLogger("paredown.training")
POOL = 50  # batches that are sorted by length together: little padding, yet every epoch mixes anew


@dataclass(frozen=True)
class Data:
    """All rows of a run, as token ids. Rows that come as such are used where they are, however many there may be."""

    train: Sequence[Encoded]
    extra: Sequence[Encoded]  # text without labels, for the stages that need none
    dev: Sequence[Encoded]

    @classmethod
    def read(
        cls, model: AdaptiveModel, train: Any, extra: Any, dev: Any, max_length: int | None, hold_out: bool = False
    ) -> Data:
        """`hold_out`: without dev rows, some of the training rows become dev rows."""
        if hold_out and dev is None:
            train, dev = held_out(list(train))

        def encoded(inputs: Any, named: str | None) -> Sequence[Encoded]:
            if inputs is None:
                return []
            rows: Any = inputs
            if not (ready := are_encoded(inputs)):
                units = model.kind.units(inputs)
                rows = model.encode(units if named else model.kind.unlabelled(units), max_length)
            looked_at = rows if isinstance(rows, list) else rows[:1]  # what is made when asked for is all alike
            missing = [index for index, row in enumerate(looked_at) if row.label is None and row.teaches]
            if named and missing:
                raise BadInput(f"{named} row {missing[0]} has no label; text without labels goes into unlabelled=")
            return rows if ready or named == "dev" else [row for row in rows if row.teaches]

        data = cls(encoded(train, "training"), encoded(extra, None), encoded(dev, "dev"))
        if not data.train:
            raise BadInput("there are no training rows")
        return data

    def rows(self, stage: Stage) -> Sequence[Encoded]:
        """The rows of one stage; without labels where its loss needs none, so that every row is treated alike."""
        return Unlabelled((self.train, self.extra)) if stage.unlabelled else self.train

    def digest(self) -> str:
        found = hashlib.sha256()
        for rows in (self.train, self.extra, self.dev):
            found.update(f"{len(rows)} rows".encode())
            if (known := getattr(rows, "digest", None)) is not None:
                found.update(known.encode())
                continue
            for row in rows:
                for one in (row, *row.options):
                    found.update(repr((one.ids, one.label)).encode())
        return found.hexdigest()[:16]


def held_out(rows: list[Any]) -> tuple[list[Any], list[Any]]:
    """Rows to learn from, and a tenth of them, 50 to 1,000 and never more than half, to choose by; logged."""
    size = min(max(len(rows) // 10, 50), 1000, len(rows) // 2)
    chosen = set(np.random.default_rng(0).permutation(len(rows))[:size].tolist())
    log.warning(
        "there are no dev rows: %s of the %s training rows are held out to choose weights and a plan by",
        f"{size:,}",
        f"{len(rows):,}",
    )
    return (
        [row for index, row in enumerate(rows) if index not in chosen],
        [row for index, row in enumerate(rows) if index in chosen],
    )


@dataclass(frozen=True, eq=False)
class Unlabelled(Sequence[Encoded]):
    """Rows of several sources as one, each without its label; nothing is copied."""

    sources: tuple[Sequence[Encoded], ...]

    @cached_property
    def _starts(self) -> list[int]:
        return [0, *accumulate(map(len, self.sources))]

    def __len__(self) -> int:
        return self._starts[-1]

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[each] for each in range(len(self))[index]]
        index = range(len(self))[index]
        source = bisect.bisect_right(self._starts, index) - 1
        return replace(self.sources[source][index - self._starts[source]], label=None)

    @cached_property
    def lengths(self) -> np.ndarray:
        return np.concatenate([lengths(rows) for rows in self.sources])


def lengths(rows: Sequence[Encoded]) -> np.ndarray:
    """[rows] tokens; rows that know theirs need not be made to be measured."""
    known = getattr(rows, "lengths", None)
    return np.array([len(row) for row in rows], dtype=np.int32) if known is None else known


@dataclass(frozen=True)
class Batches:
    """Which rows each step sees: a pure function of the seed and the step."""

    lengths: Sequence[int] | np.ndarray  # tokens of every row
    size: int  # rows per step, over all processes
    seed: tuple[int, ...]

    @property
    def per_epoch(self) -> int:
        return math.ceil(len(self.lengths) / self.size)

    def steps(self, epochs: float, least: int = 0) -> int:
        """Steps of so many epochs, `least` if those are fewer, but never more than MOST_EPOCHS for that."""
        steps = math.ceil(self.per_epoch * epochs - 1e-6)  # 50 / 11 epochs of 11 batches are 50 steps, not 51
        return max(steps, min(least, MOST_EPOCHS * self.per_epoch))

    def at(self, step: int) -> list[int]:
        """Row numbers of the batch of a step."""
        epoch, index = divmod(step, self.per_epoch)
        return self._epoch(epoch)[index].tolist()

    def epoch(self, number: int) -> list[list[int]]:
        """Every row once."""
        return [batch.tolist() for batch in self._epoch(number)]

    def _epoch(self, number: int) -> list[np.ndarray]:
        kept: dict[int, list[np.ndarray]] = self.__dict__.setdefault("_kept", {})
        if number not in kept:
            kept.clear()
            kept[number] = self._shuffled(np.random.default_rng([*self.seed, number]))
        return kept[number]

    def _shuffled(self, random: np.random.Generator) -> list[np.ndarray]:
        order, lengths = random.permutation(len(self.lengths)), np.asarray(self.lengths)
        batches: list[np.ndarray] = []
        for start in range(0, len(order), self.size * POOL):
            pool = order[start : start + self.size * POOL]
            batches += cut(pool[np.argsort(lengths[pool], kind="stable")], self.size)
        return [batches[index] for index in random.permutation(len(batches))]


Indexes = TypeVar("Indexes", list[int], np.ndarray)


def cut(rows: Indexes, size: int) -> list[Indexes]:
    return [rows[start : start + size] for start in range(0, len(rows), size)]
