"""Predictions of a cluster as they leave: a file for every shard in OUTPUT.shards, each whole or not there at all.

The first line of a shard counts what follows; the output is what follows in all of them, in their order.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from paredown.answers._shape import Shape, csv_of
from paredown.cli._outgoing import Done, check_same, finish_from, lock, part_of, progress_of, shards_of
from paredown.cluster import Shard
from paredown.errors import BadSetting, ClusterFailed
from paredown.system.saving import saving, sync, write_bytes, write_json

FACTS, ENDING = "run.json", ".shard"


class Shards:
    """A file that is put together when the last shard is there."""

    resumes = True

    def __init__(self, path: Path, shape: Shape, task: dict[str, Any], restart: bool):
        """`task` is all that makes a difference to the rows; going on with another one is an error."""
        self.path, self.shape, self.task = path, shape, task
        self.folder = shards_of(path)
        self.size: int | None = None  # rows of a shard; None: nothing was begun
        self.done = Done()
        self.numbers: set[int] = set()  # of the shards that are there
        self.total: int | None = None  # of the shards there are to be; None: not known yet
        self._restart = restart
        self._lock: BinaryIO | None = None
        if not restart and (self.folder / FACTS).exists():
            self._resume()

    def _resume(self) -> None:
        facts = self.folder / FACTS
        try:
            saved = json.loads(facts.read_text(encoding="utf-8"))
            task, self.size = saved["task"], int(saved["size"])
            numbers = [int(path.stem) for path in self.folder.glob(f"*{ENDING}")]
            found = [(number, json.loads(file.readline())) for number, file in self._files(numbers)]
            counted = [(number, its["rows"], its["layers"], its["bad"]) for number, its in found]
        except (ValueError, KeyError, TypeError) as error:
            raise BadSetting(f"{self.folder} is damaged ({error!r}); --restart begins anew") from None
        check_same(self.path, task, self.task)
        for number, rows, layers, bad in counted:
            self._count(number, rows, layers, bad)

    def _file(self, number: int) -> Path:
        return self.folder / f"{number:09}{ENDING}"

    def _files(self, numbers: Iterable[int]) -> Iterator[tuple[int, BinaryIO]]:
        for number in sorted(numbers):
            with open(self._file(number), "rb") as file:
                yield number, file

    def _count(self, number: int, rows: int, layers: float, bad: int) -> None:
        self.numbers.add(number)
        self.done = Done(self.done.rows + rows, layers=self.done.layers + layers, bad=self.done.bad + bad)

    def open(self) -> None:
        """Make ready for the next shard. What a local run has left unfinished goes; it would look finished."""
        with saving(self.folder):
            self.folder.mkdir(exist_ok=True)
            self._lock = open(self.folder / "lock", "wb")  # noqa: SIM115 (held until the run ends)
            lock(self._lock, self.folder)
            if self._restart:
                (self.folder / FACTS).unlink(missing_ok=True)
            if progress_of(self.path).exists():
                part_of(self.path).unlink(missing_ok=True)
                progress_of(self.path).unlink()

    def begin(self, size: int) -> int:
        """Rows of a shard: as many as where the run was begun."""
        if self.size is None:
            for old in self.folder.glob(f"*{ENDING}"):
                old.unlink()
            self.size = size
            write_json(self.folder / FACTS, {"task": self.task, "size": size})
        return self.size

    def add(self, shard: Shard) -> None:
        """Write a shard, once; the one without rows tells how many there are."""
        if not shard.rows:
            self.total = shard.number
            return
        if shard.number not in self.numbers:
            counts = {"rows": shard.rows, "layers": shard.layers, "bad": shard.bad}
            with saving(self.folder):
                write_bytes(self._file(shard.number), json.dumps(counts).encode() + b"\n", shard.data)
            self._count(shard.number, shard.rows, shard.layers, shard.bad)

    def finish(self) -> None:
        """Make the file whole, in one move, and let go of the shards."""
        if self.total is None or self.numbers != set(range(self.total)):
            raise ClusterFailed(f"only {len(self.numbers)} shards of {self.path} came back; run it again to go on")
        with saving(self.path):
            whole = self.folder / "whole"
            with open(whole, "wb") as file:
                if self.path.suffix == ".csv":
                    file.write(csv_of([self.shape.names]))
                for _, shard in self._files(self.numbers):
                    shard.readline()
                    shutil.copyfileobj(shard, file)
            if part_of(self.path) == self.path:
                sync(whole)
                whole.replace(self.path)
                sync(self.path.parent)
            else:
                finish_from(whole, self.path, self.shape)
            self.close()
            shutil.rmtree(self.folder)

    def close(self) -> None:
        if self._lock is not None:
            self._lock.close()
