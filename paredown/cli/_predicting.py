"""The work of `predict`: chunks of rows are read in order, answered here or by several processes, written in order."""

from __future__ import annotations

import os
import signal
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from typing import Any

import torch

from paredown.answers._shape import Record
from paredown.cli._incoming import InputSource, digest_of
from paredown.cli._outgoing import Done, Growing, interrupted
from paredown.errors import BadInput, NonFiniteAnswer, OutOfMemory
from paredown.model import AdaptiveModel
from paredown.runtime.predictor import Predictor, layers_of
from paredown.system.memory import is_out_of_memory, spare_collections
from paredown.system.signals import Signals
from paredown.tasks._incoming import Incoming

CHUNK = 32  # batches between two writes
BATCH = {"cpu": 32, "cuda": 1024}  # rows of a batch in that sense, where nobody says

Raw = Sequence[tuple[int, Any]]  # rows as they were read, each with its line
Answered = tuple[bytes, float, int]  # lines of the output, layers run, bad rows
Show = Callable[[Done], None]  # tells how far the run has come
Submit = Callable[[Raw, int], Callable[[], Answered]]  # begins the work on rows, the first of which has that number


@dataclass(frozen=True)
class Chunks:
    predictor: Predictor
    device: str
    source: InputSource
    skip_bad_rows: bool
    flat: bool = False  # they are written as csv
    processes: int = 1
    load: Callable[[], AdaptiveModel] | None = None  # the model, in other processes

    # One

    @property
    def size(self) -> int:
        """Rows between two writes."""
        return CHUNK * (self.predictor.batch_size or BATCH[self.device])

    def prepare(self, raw: Raw) -> tuple[list[Incoming], Any]:
        """Rows parsed and tokenised: what no device is needed for."""
        rows = self.source.parsed(raw)
        bad = [one for one in rows if one.row is None]
        if bad and not self.skip_bad_rows:
            more = f"; and {len(bad) - 1} more up to {self.source.unit} {bad[-1].line}" if len(bad) > 1 else ""
            hint = "--skip-bad-rows gives such rows an error in place of a label"
            raise BadInput(f"{self.source.where(bad[0])}: {bad[0].error}{more} ({hint})")
        return rows, self.predictor.prepare(rows)

    def answer(self, rows: list[Incoming], prepared: Any, first: int) -> Answered:
        records = self._records(rows, prepared, first)
        bad = sum(one.row is None for one in rows)
        return self.predictor.shape.lines(records, self.flat), sum(map(layers_of, records)), bad

    def _records(self, rows: list[Incoming], prepared: Any, first: int) -> list[Record]:
        try:
            return self.predictor.records(rows, prepared, first)
        except NonFiniteAnswer as error:
            raise NonFiniteAnswer(f"{error}, counted from 0 at row {first} of {self.source.name}") from None
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            size = self.predictor.batch_size
            now = "so many rows" if size is None else f"a batch of {size} rows"
            less = max((size or 64) // 2, 1)
            raise OutOfMemory(f"{now} does not fit; run it again with --batch-size {less} to go on") from None

    # All

    def write_all(self, submit: Submit, out: Growing, signals: Signals, show: Show) -> None:
        """One after the other, while the next ones are at work. A signal lets the one that is due be finished, and
        drops the others."""
        waiting: deque[tuple[int, str, Callable[[], Answered]]] = deque()
        digest, first = out.done.digest, out.done.rows
        problem: Exception | None = None
        ended = False
        while waiting or not ended:
            while not ended and len(waiting) <= self._ahead:
                raw: list[tuple[int, Any]] = []
                if signals.asked is None:
                    try:
                        signals.finish(partial(self._read_into, raw))
                    except Exception as error:  # what was read before it is answered first
                        problem, raw = error, []
                if signals.asked is not None:
                    raise interrupted(out, signals.asked)
                if ended := not raw:
                    break
                digest = digest_of(raw, first, digest)
                waiting.append((len(raw), digest, submit(raw, first)))
                first += len(raw)
            if waiting:
                rows, so_far, result = waiting.popleft()
                data, layers, bad = result()
                done = out.done
                out.write(data, Done(done.rows + rows, done.bytes, so_far, done.layers + layers, done.bad + bad))
                show(out.done)
        if problem is not None:
            raise problem

    @property
    def _ahead(self) -> int:
        """How many are worked on beside the one that is due."""
        return 1 if self.processes == 1 else 2 * self.processes

    def _read_into(self, raw: list[tuple[int, Any]]) -> None:
        raw += self.source.take(self.size)


# Who works


@contextmanager
def working_here(chunks: Chunks) -> Iterator[Callable[[Growing, Signals, Show], None]]:
    """What writes all chunks. Several processes are started before this one shows its bar."""
    with _workers(chunks) as submit:
        yield partial(chunks.write_all, submit)


@contextmanager
def _workers(chunks: Chunks) -> Iterator[Submit]:
    """This process, which parses and tokenises a chunk while the one before runs; or several processes."""
    if chunks.processes > 1:
        with _several(chunks) as submit:
            yield submit
        return
    chunks.predictor.model.to(chunks.device)
    spare_collections()
    with ThreadPoolExecutor(1) as ahead:

        def begin(raw: Raw, first: int) -> Callable[[], Answered]:
            prepared = ahead.submit(chunks.prepare, raw)
            return lambda: chunks.answer(*prepared.result(), first)

        yield begin


@contextmanager
def _several(chunks: Chunks) -> Iterator[Submit]:
    """Processes that begin from nothing, since a GPU does not survive a fork, and load the bundle each."""
    nobody: Any = None
    bare = replace(chunks, source=chunks.source.read, predictor=replace(chunks.predictor, model=nobody))
    pool = ProcessPoolExecutor(chunks.processes, get_context("spawn"), _begin, (bare,))
    try:
        yield lambda raw, first: partial(_result, pool.submit(_work, raw, first))
    finally:
        pool.shutdown(cancel_futures=True)


_own: Chunks | None = None  # of a process that works for another


def _begin(bare: Chunks) -> None:
    """In a new process: signals are for its parent, cores are shared."""
    global _own
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    share = max(1, (os.cpu_count() or 1) // bare.processes)
    os.environ["RAYON_NUM_THREADS"] = str(share)  # of the tokenizer
    torch.set_num_threads(share)
    assert bare.load is not None
    _own = replace(bare, predictor=replace(bare.predictor, model=bare.load().to(bare.device)))
    spare_collections()


def _work(raw: Raw, first: int) -> Answered:
    assert _own is not None
    return _own.answer(*_own.prepare(raw), first)


def _result(future: Future[Answered]) -> Answered:
    try:
        return future.result()
    except BrokenProcessPool:
        killed = "a process was killed, by the system if memory ran out"
        raise OutOfMemory(f"{killed}; run it again, with fewer --processes, to go on") from None
