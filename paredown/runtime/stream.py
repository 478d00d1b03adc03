"""Stream: rows go in, answers come out when they are ready. Batches are packed while others run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from paredown.errors import NonFiniteAnswer
from paredown.route import Route, row_bounds
from paredown.runtime.packed import Packed
from paredown.runtime.pools import Pools
from paredown.state import joined, not_a_number

if TYPE_CHECKING:
    from paredown.answers import Encoded
    from paredown.runtime.executor import Executor


@dataclass(frozen=True)
class Answered:
    """Rows that are back, in any order, on the host."""

    rows: Tensor  # [rows]  their numbers
    logits: Tensor  # [rows, …]  padded where every token is answered
    layers: Tensor  # [rows]  layers run
    tokens: Tensor  # [rows]  token-layers run


class Stream:
    """`full` tokens make a batch, or as many as `rows` of the longest rows have; None: `rows` rows do, padded, and none
    waits for others."""

    def __init__(self, executor: Executor, rows: int | None, full: int | None):
        self.executor, self.model, self.rows, self.full = executor, executor.model, rows, full
        self.count = 0  # rows that came
        self.pools: dict[Any, Pools] = {}

    @torch.inference_mode()
    def put(self, rows: Sequence[Encoded], routes: Sequence[Route]) -> range:
        """Rows with the route of each; their numbers. Work is done until what is left waits for more rows."""
        self.model.check_mode()
        numbers = range(self.count, self.count + len(rows))
        self.count += len(rows)
        if self.full is not None and self.rows is not None and rows:
            self.full = min(self.full, self.rows * max(map(len, rows)))
        for indexes, batch in self._batches(rows, routes):
            chosen = [routes[index] for index in indexes]
            pools = self._pools(chosen[0])
            bounds = row_bounds(chosen, self.model.device)
            state = pools.runner.embed(batch, bounds)
            units = torch.tensor([numbers[index] for index in indexes], device=self.model.device)
            pools.submit(state.numbered(units))
            while pools.advance():
                pass
        return numbers

    @torch.inference_mode()
    def finish(self) -> None:
        """Answer all rows that still wait."""
        for pools in self.pools.values():
            while pools.advance(hurry=True):
                pass

    def take(self) -> Answered | None:
        """The rows that were answered since this was last asked."""
        found = [part for pools in self.pools.values() if (part := pools.drain()) is not None]
        if not found:
            return None
        answered = Answered(*map(joined, zip(*found, strict=True)))
        if bool((bad := not_a_number(answered.logits)).any()):
            numbers = sorted(answered.rows[bad].tolist())
            raise NonFiniteAnswer(f"the model answered NaN or infinity for rows {numbers[:10]}")
        return answered

    def _pools(self, route: Route) -> Pools:
        if route.key not in self.pools:
            self.pools[route.key] = Pools(self.executor.runner(route), self.full or 0)
        return self.pools[route.key]

    def _batches(
        self, rows: Sequence[Encoded], routes: Sequence[Route]
    ) -> Iterator[tuple[list[int], dict[str, Tensor]]]:
        """Indexes of rows that may share a batch, and the batch. The next one is made while the last one runs."""
        pad, kind, backend = self.model.tokenizer.pad_token_id, self.model.kind, self.model.backend

        def made(indexes: list[int]) -> tuple[list[int], dict[str, Tensor]]:
            chosen = [rows[index] for index in indexes]
            if isinstance(backend, Packed) and all(row.plain for row in chosen):
                return indexes, backend.batch(chosen)
            return indexes, kind.collate(chosen, pad, self.model.device if self.full is None else None)

        if self.model.device.type == "cpu":  # there is nobody to work meanwhile
            yield from map(made, self._parts(rows, routes))
            return
        with ThreadPoolExecutor(1) as ahead:
            following = None
            for indexes in self._parts(rows, routes):
                ready, following = following, ahead.submit(made, indexes)
                if ready is not None:
                    yield ready.result()
            if following is not None:
                yield following.result()

    def _parts(self, rows: Sequence[Encoded], routes: Sequence[Route]) -> Iterator[list[int]]:
        """Indexes of rows whose routes differ in their bounds alone, about equally long: a batch each."""
        alike: dict[Any, list[int]] = {}
        for index in sorted(range(len(rows)), key=lambda index: len(rows[index])):
            alike.setdefault(routes[index].key, []).append(index)
        for order in alike.values():
            part: list[int] = []
            tokens = 0
            for index in order:
                part.append(index)
                tokens += len(rows[index])
                if len(part) == self.rows or (self.full and tokens >= self.full):
                    yield part
                    part, tokens = [], 0
            if part:
                yield part
