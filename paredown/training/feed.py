"""Batches on their way to the device: padded from one table of token ids, copied while the step before is at work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor

from paredown.answers import Encoded, collate
from paredown.training.batches import lengths


@dataclass(frozen=True, eq=False)
class Feed:
    """Makes batches of the rows of a stage. No device is waited for: with steps that do not wait either, the host
    prepares a batch while the device learns from those before."""

    rows: Sequence[Encoded]
    pad_id: int
    device: torch.device
    multiple: int = 1  # of which batch widths are

    def batch(self, indexes: Sequence[int]) -> dict[str, Tensor]:
        if self._table is None:
            made = collate([self.rows[index] for index in indexes], self.pad_id, None, self.multiple)
        else:
            made = self._table.padded(np.asarray(indexes), self.pad_id, self.multiple)
        if self.device.type != "cuda":
            return {name: value.to(self.device) for name, value in made.items()}
        return {name: value.pin_memory().to(self.device, non_blocking=True) for name, value in made.items()}

    @cached_property
    def _table(self) -> TokenTable | None:
        """None where rows are more than token ids, or are made when asked for: all of them may not fit."""
        sources = getattr(self.rows, "sources", (self.rows,))
        if not all(isinstance(source, list) for source in sources) or not all(row.plain for row in self.rows):
            return None
        return TokenTable.of(self.rows)


@dataclass(frozen=True, eq=False)
class TokenTable:
    """The token ids of all rows one after the other: a batch is one gather, not a list for each row."""

    ids: dict[str, np.ndarray]  # [tokens of all rows], by name
    starts: np.ndarray  # [rows]
    lengths: np.ndarray  # [rows]
    labels: list[Any]

    @classmethod
    def of(cls, rows: Sequence[Encoded]) -> TokenTable:
        rows = list(rows)
        long = np.asarray(lengths(rows), dtype=np.int64)
        ids = {
            name: np.fromiter(chain.from_iterable(row.ids[name] for row in rows), np.int32, int(long.sum()))
            for name in rows[0].ids
        }
        return cls(ids, long.cumsum() - long, long, [row.label for row in rows])

    def padded(self, rows: np.ndarray, pad_id: int, multiple: int) -> dict[str, Tensor]:
        """What `collate` makes of these rows."""
        long = self.lengths[rows, None]
        width = int(long.max())
        position = np.arange(width + -width % multiple)
        real = position < long  # [rows, tokens]
        where = np.where(real, self.starts[rows, None] + position, 0)
        batch = {}
        for name, values in self.ids.items():
            fill = pad_id if name == "input_ids" else 0
            batch[name] = torch.from_numpy(np.where(real, values[where], fill).astype(np.int64))
        batch["attention_mask"] = torch.from_numpy(real.astype(np.int64))
        labels = [self.labels[row] for row in rows.tolist()]
        if all(label is not None for label in labels):
            batch["labels"] = torch.tensor(labels)
        return batch
