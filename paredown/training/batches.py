"""What a stage learns from: rows tokenised once, batches of like length, the same whatever the number of processes."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from paredown.errors import BadInput
from paredown.kinds import Kind
from paredown.model import AdaptiveModel
from paredown.rows import Encoded, as_rows, encode
from paredown.stage import Stage

POOL = 50  # batches that are sorted by length together: little padding, yet every epoch mixes anew


@dataclass(frozen=True)
class Data:
    """All rows of a run, as token ids."""

    train: list[Encoded]
    extra: list[Encoded]  # text without labels, for the stages that need none
    dev: list[Encoded]

    @classmethod
    def read(cls, model: AdaptiveModel, train: Any, extra: Any, dev: Any, max_length: int | None) -> Data:
        def encoded(inputs: Any, named: str | None) -> list[Encoded]:
            rows = [] if inputs is None else as_rows(inputs)
            missing = [place for place, row in enumerate(rows) if row.label is None]
            if named and missing:
                raise BadInput(f"{named} row {missing[0]} has no label; text without labels goes into unlabelled=")
            if not named:
                rows = [replace(row, label=None) for row in rows]
            return encode(model.tokenizer, rows, model.kind, model.labels, max_length)

        data = cls(encoded(train, "training"), encoded(extra, None), encoded(dev, "dev"))
        if not data.train:
            raise BadInput("there are no training rows")
        return data

    def rows(self, stage: Stage) -> list[Encoded]:
        """The rows of one stage; without labels where its loss needs none, so that every row is treated alike."""
        if not stage.unlabelled:
            return self.train
        return [replace(row, label=None) for row in self.train] + self.extra

    def digest(self) -> str:
        found = hashlib.sha256()
        for rows in (self.train, self.extra, self.dev):
            found.update(f"{len(rows)} rows".encode())
            for row in rows:
                found.update(repr((row.ids, row.label)).encode())
        return found.hexdigest()[:16]


@dataclass(frozen=True)
class Batches:
    """Which rows each step sees: a pure function of the seed and the step."""

    lengths: Sequence[int]
    size: int  # rows per step, over all processes
    seed: tuple[int, ...]

    @property
    def per_epoch(self) -> int:
        return math.ceil(len(self.lengths) / self.size)

    def steps(self, epochs: float) -> int:
        return math.ceil(self.per_epoch * epochs - 1e-6)  # 50 / 11 epochs of 11 batches are 50 steps, not 51

    def at(self, step: int) -> list[int]:
        """Row numbers of the batch of a step."""
        epoch, place = divmod(step, self.per_epoch)
        return self.epoch(epoch)[place]

    def epoch(self, number: int) -> list[list[int]]:
        """Every row once."""
        kept: dict[int, list[list[int]]] = self.__dict__.setdefault("_kept", {})
        if number not in kept:
            kept.clear()
            kept[number] = self._shuffled(np.random.default_rng([*self.seed, number]))
        return kept[number]

    def _shuffled(self, random: np.random.Generator) -> list[list[int]]:
        order = random.permutation(len(self.lengths)).tolist()
        batches = []
        for start in range(0, len(order), self.size * POOL):
            pool = sorted(order[start : start + self.size * POOL], key=lambda row: self.lengths[row])
            batches += cut(pool, self.size)
        return [batches[place] for place in random.permutation(len(batches))]


def cut(rows: list[int], size: int) -> list[list[int]]:
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def weight(row: Encoded, kind: Kind) -> int:
    """How much a row counts in the loss of a batch: once, or once for each token that is asked about."""
    if not kind.per_token:
        return 1
    return len(row.first or ()) if row.label is None else sum(label >= 0 for label in row.label)
