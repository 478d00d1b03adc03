"""`paredown predict --ray`: the chunks of a local run, answered by workers of a Ray cluster."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from paredown.cli._incoming import InputSource
from paredown.cli._outgoing import interrupted
from paredown.cli._predicting import Answered, Chunks, Raw, Show
from paredown.cli._shards import Shards
from paredown.cluster import PredictorSettings, Shard, Workers, answered, joined
from paredown.cluster.workers import nodes_of
from paredown.runtime.predictor import Predictor
from paredown.system.saving import sha256
from paredown.system.signals import Signals


@dataclass(frozen=True)
class ClusterRun:
    address: str
    workers: int | None
    device: str  # of the workers
    loading: tuple[str, str | None, str]  # of the model: bundle, dtype, runtime
    chunks: Chunks
    again: Callable[[], InputSource]  # opens the input, in another process too

    def output(self, path: str, task: dict[str, Any], restart: bool) -> Shards:
        task = task | {"sha256 of the input": _digest(Path(self.chunks.source.name))}
        return Shards(Path(path), self.chunks.predictor.shape, task, restart)

    def write_all(self, out: Shards, signals: Signals, show: Show) -> None:
        """Shards in the order in which workers finish them. A signal drops those at work."""
        settings = PredictorSettings.of(self.chunks.predictor, *self.loading)
        answer = partial(_answer, self.chunks.source.read, self.chunks.skip_bad_rows, self.chunks.flat)
        with joined(self.address, self.workers) as ray:
            workers = Workers.on(nodes_of(ray), self.workers, self.device)
            size = out.begin(replace(self.chunks, device=workers.device).size)
            read = partial(_read, self.again, size)
            found = answered(read, answer, size, frozenset(out.numbers), settings, workers)
            while (shard := _next(found, signals)) is not None:
                out.add(shard)
                show(out.done)
            if signals.asked is not None:
                raise interrupted(out, signals.asked)


def _read(again: Callable[[], InputSource], size: int) -> Iterator[Raw]:
    source = again()
    while raw := source.take(size):
        yield raw


def _answer(
    source: InputSource, skip_bad_rows: bool, flat: bool, predictor: Predictor, raw: Raw, first: int
) -> Answered:
    """What a local run makes of a chunk, on a worker."""
    chunks = Chunks(predictor, predictor.model.device.type, source, skip_bad_rows, flat)
    return chunks.answer(*chunks.prepare(raw), first)


def _next(found: Iterator[Shard], signals: Signals) -> Shard | None:
    """None at the end, and where a signal came."""
    got: list[Shard] = []
    if signals.asked is None:
        signals.finish(lambda: got.extend(islice(found, 1)))
    return got[0] if got else None


def _digest(path: Path) -> str:
    """Of a file, or of all files of a folder."""
    if path.is_file():
        return sha256(path)
    names = sorted(one for one in path.rglob("*") if one.is_file())
    each = [f"{one.relative_to(path).as_posix()} {sha256(one)}" for one in names]
    return hashlib.sha256("\n".join(each).encode()).hexdigest()
