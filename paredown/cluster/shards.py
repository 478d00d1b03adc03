"""Rows in numbered shards, answered by workers in any order: the bytes of each shard are those of a local run.

What rounding does to an answer depends on the rows it shared a batch with, so a shard is what runs together locally.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from paredown import errors
from paredown.cluster.session import first_line, import_ray
from paredown.cluster.workers import PredictorSettings, Workers
from paredown.errors import ClusterFailed, ParedownError
from paredown.runtime.predictor import Predictor

if TYPE_CHECKING:
    import pandas
    import pyarrow

Rows = Sequence[Any]  # as they were read
Read = Callable[[], Iterable[Rows]]  # the rows of shard 0, of shard 1, …; called on the driver's machine
# With the number of the first row; lines of the output, layers run, bad rows.
Answer = Callable[[Predictor, Rows, int], tuple[bytes, float, int]]


@dataclass(frozen=True)
class Shard:
    """The records of some rows, as they stand in a file. The one after the last has no rows."""

    number: int
    rows: int
    data: bytes = b""
    layers: float = 0  # sum over the good rows; of a row of several windows, their mean
    bad: int = 0
    problem: str = ""  # the name of an error and what it says


def answered(
    read: Read, answer: Answer, size: int, done: frozenset[int], settings: PredictorSettings, workers: Workers
) -> Iterator[Shard]:
    """Shards of `size` rows as workers finish them, but those that are done; an error that a user can cause is raised
    as it would be here."""
    ray = import_ray()
    dataset = ray.data.read_datasource(_source(read, done), override_num_blocks=1, num_cpus=0)
    dataset.context.target_max_block_size = 1  # bytes: a shard is a block, and whoever is free takes the next
    dataset.context.enable_progress_bars = False
    given = (settings, workers, answer, size)
    made = workers.mapped(dataset, ShardWorker, given, batch_size=None, batch_format="pandas")
    try:
        for row in made.iter_rows():
            shard = Shard(**row)
            if shard.problem:
                name, _, message = shard.problem.partition(": ")
                raise getattr(errors, name)(message)
            yield shard
    except ray.exceptions.RayError as error:
        raise ClusterFailed(f"the cluster failed: {first_line(error)}; run it again to go on") from error


def _source(read: Read, done: frozenset[int]) -> Any:
    """A source of Ray Data that reads all rows in one task, as they are needed, on the machine of the driver."""
    from ray.data import Datasource, ReadTask
    from ray.data.block import BlockMetadata

    class Input(Datasource):
        supports_distributed_reads = False

        def estimate_inmemory_data_size(self) -> int | None:
            return None

        def get_read_tasks(self, parallelism: int, *others: Any, **settings: Any) -> list[ReadTask]:
            unknown = BlockMetadata(num_rows=None, size_bytes=None, input_files=None, exec_stats=None)
            return [ReadTask(lambda: _blocks(read, done), unknown)]

    return Input()


def _blocks(read: Read, done: frozenset[int]) -> Iterator[pandas.DataFrame]:
    import pandas

    def block(number: int, rows: Rows, problem: str = "") -> pandas.DataFrame:
        return pandas.DataFrame({"number": [number], "rows": [rows], "problem": [problem]})

    number = 0
    try:
        for rows in read():
            if number not in done:
                yield block(number, rows)
            number += 1
    except ParedownError as error:
        yield block(number, [], _told(error))
    else:
        yield block(number, [])


class ShardWorker:
    """Called by Ray Data with blocks of shards."""

    def __init__(self, settings: PredictorSettings, workers: Workers, answer: Answer, size: int):
        self.settings, self.workers, self.answer, self.size = settings, workers, answer, size
        self.predictor: Predictor | None = None

    def __call__(self, shards: pandas.DataFrame) -> pyarrow.Table:
        import pyarrow

        text, whole = pyarrow.string(), pyarrow.int64()
        schema = {"number": whole, "rows": whole, "data": pyarrow.large_binary()}
        schema |= {"layers": pyarrow.float64(), "bad": whole, "problem": text}
        found = [asdict(self._shard(one.number, one.rows, one.problem)) for one in shards.itertuples()]
        return pyarrow.Table.from_pylist(found, pyarrow.schema(schema.items()))

    def _shard(self, number: int, rows: Rows, problem: str) -> Shard:
        if problem or not len(rows):
            return Shard(number, 0, problem=problem)
        try:
            self.predictor = self.predictor or self.settings.load(self.workers)
            return Shard(number, len(rows), *self.answer(self.predictor, rows, number * self.size))
        except ParedownError as error:  # a user can do something about it, and Ray would bury it
            return Shard(number, len(rows), problem=_told(error))


def _told(error: ParedownError) -> str:
    return f"{type(error).__name__}: {error}"
