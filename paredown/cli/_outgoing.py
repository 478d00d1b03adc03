"""Predictions as they leave: chunk by chunk, each on the disk before the next, so that a run can go on where it was.

Beside an unfinished OUTPUT stands OUTPUT.progress.json: what is predicted with what, and how many rows and bytes are
safe. Bytes beyond that are cut off when the run goes on.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from paredown.answers._shape import Record, Shape, csv_of
from paredown.errors import BadSetting, Interrupted
from paredown.evaluation import HotpotPredictions
from paredown.system.saving import saving, sync

FORMATS = (".jsonl", ".csv", ".parquet")
OFFICIAL = ".json"  # of a task's questions: its official prediction file
GROUP = 10_000  # rows that a parquet file keeps together


@dataclass
class Done:
    """How far a run has come."""

    rows: int = 0
    bytes: int = 0
    digest: str = ""  # of the input rows
    layers: float = 0  # sum over the good rows; of a row of several windows, their mean
    bad: int = 0


class Outgoing(Protocol):
    done: Done
    resumes: bool  # whether another run can go on where this one stopped

    def open(self) -> None: ...

    def finish(self) -> None: ...

    def close(self) -> None: ...


class Growing(Outgoing, Protocol):
    """What takes rows in their order."""

    def write(self, data: bytes, done: Done) -> None:
        """Add rows, as `Shape.lines` makes them; `done` is how far the run has come with them."""


@dataclass
class ToPipe:
    """JSON lines to standard output; what is written cannot be taken back, so there is no going on."""

    done: Done = field(default_factory=Done)
    resumes: bool = False

    def open(self) -> None: ...

    def write(self, data: bytes, done: Done) -> None:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        self.done = done

    def finish(self) -> None: ...

    def close(self) -> None: ...


class ToFile:
    """A file that survives the death of the process that writes it."""

    resumes = True

    def __init__(self, path: Path, shape: Shape, task: dict[str, Any], restart: bool):
        """`task` is all that makes a difference to the rows; going on with another one is an error."""
        self.path, self.shape, self.task = path, shape, task
        self.part = part_of(path)
        self.progress = progress_of(path)
        self.done = Done() if restart else self._before()
        self._file: BinaryIO | None = None

    def _before(self) -> Done:
        if not self.progress.exists():
            return Done()
        try:
            saved = json.loads(self.progress.read_text(encoding="utf-8"))
            task, done = saved["task"], Done(**saved["done"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise BadSetting(f"{self.progress} is damaged ({error!r}); --restart begins anew") from None
        check_same(self.path, task, self.task)
        size = self.part.stat().st_size if self.part.exists() else 0
        if size < done.bytes:
            raise BadSetting(f"{self.part} has {size} bytes, but {done.bytes} were written; --restart begins anew")
        return done

    def open(self) -> None:
        """Make ready for the next row. A file without a progress file counts as finished, so that comes first."""
        with saving(self.path):
            if shards_of(self.path).exists():  # of a cluster, whose run begins anew here
                shutil.rmtree(shards_of(self.path))
            if not self.progress.exists():
                self._note()
            self._file = open(self.part, "ab")  # noqa: SIM115 (it stays open from chunk to chunk)
            lock(self._file, self.part)
            if not self.done.rows:
                self._note()
            self._file.truncate(self.done.bytes)
            if self.path.suffix == ".csv" and not self.done.bytes:
                self._append(csv_of([self.shape.names]), self.done)

    def write(self, data: bytes, done: Done) -> None:
        with saving(self.path):
            self._append(data, done)

    def _append(self, data: bytes, done: Done) -> None:
        assert self._file is not None
        self._file.write(data)
        self._file.flush()
        os.fsync(self._file.fileno())
        self.done = replace(done, bytes=self.done.bytes + len(data))
        self._note()

    def _note(self) -> None:
        fresh = self.progress.with_name(self.progress.name + ".new")
        with open(fresh, "w", encoding="utf-8") as file:
            json.dump({"task": self.task, "done": asdict(self.done)}, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self.progress)
        sync(self.progress.parent)

    def finish(self) -> None:
        """Make the file whole. The progress file goes before the part file: without it nothing is looked for."""
        self.close()
        with saving(self.path):
            if self.part != self.path:
                finish_from(self.part, self.path, self.shape)
            self.progress.unlink()
            if self.part != self.path:
                self.part.unlink()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def interrupted(out: Outgoing, number: int) -> Interrupted:
    """What a run that was asked to stop by a signal ends with."""
    how = "run it again, without --restart, to go on" if out.resumes else "a pipe cannot go on from there"
    return Interrupted(f"stopped after {out.done.rows:,} rows; {how}", number)


def part_of(path: Path) -> Path:
    """Where rows go as they come; what cannot grow row by row is written from there at the end."""
    return path.with_name(path.name + ".part.jsonl") if path.suffix in (".parquet", OFFICIAL) else path


def shards_of(path: Path) -> Path:
    """The folder of an unfinished output whose rows come from workers of a cluster."""
    return path.with_name(path.name + ".shards")


def progress_of(path: Path) -> Path:
    return path.with_name(path.name + ".progress.json")


def check_output(path: Path, restart: bool, named: bool = False, on_cluster: bool = False) -> None:
    """The checks that need no model."""
    formats = (*FORMATS, OFFICIAL) if named else FORMATS
    if path.suffix not in formats:
        raise BadSetting(f"{path}: the output's name must end in {', '.join(formats)}, or be - for standard output")
    if not path.parent.is_dir():
        raise BadSetting(f"{path}: there is no folder {path.parent}")
    if path.exists() and not path.is_file():
        raise BadSetting(f"{path} is not a file")
    if not restart and (progress_of(path) if on_cluster else shards_of(path)).exists():
        how = "without --ray" if on_cluster else "with --ray"
        raise BadSetting(f"{path} was begun {how} and goes on that way alone; --restart begins anew")
    begun = (shards_of(path) if on_cluster else progress_of(path)).exists()
    if path.exists() and not restart and not begun:
        raise BadSetting(f"{path} is there already, and finished; --restart writes it anew")


def check_same(path: Path, before: dict[str, Any], now: dict[str, Any]) -> None:
    """Whether what an output was begun with is what it goes on with."""
    names = [name for name in now | before if before.get(name) != now.get(name)]
    if names:
        each = [f"{name} was {_shortened(before.get(name))} and is now {_shortened(now.get(name))}" for name in names]
        raise BadSetting(f"{path} was begun with something else: {'; '.join(each)}. --restart begins anew")


def finish_from(part: Path, path: Path, shape: Shape) -> None:
    """Write a file of a format that cannot grow from one that did, in one move."""
    fresh = path.with_name(f"{path.name}.part{path.suffix}")
    (_to_official if path.suffix == OFFICIAL else _to_parquet)(part, fresh, shape)
    sync(fresh)
    fresh.replace(path)
    sync(path.parent)


def _shortened(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) < 100 else text[:12] + "…" + text[-60:]


def lock(file: BinaryIO, path: Path) -> None:
    """Lock the output: two runs would mix their rows."""
    try:
        import fcntl
    except ImportError:  # Windows
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise BadSetting(f"another run is writing {path}") from None
    except OSError:  # file systems without locks
        return


def _to_parquet(part: Path, path: Path, shape: Shape) -> None:
    from pyarrow.parquet import ParquetWriter

    schema = shape.schema(_kept_types(part, shape))
    with ParquetWriter(path, schema) as writer:
        for records in _groups(part):
            writer.write_table(shape.table(records, schema))


def _kept_types(part: Path, shape: Shape) -> dict[str, Any]:
    """The Arrow type of every column of the input that holds all its values; what has no such type is text."""
    import pyarrow

    known = {"int": pyarrow.int64(), "float": pyarrow.float64(), "bool": pyarrow.bool_()}
    seen: dict[str, set[str]] = {name: set() for name in shape.kept}
    with open(part, encoding="utf-8", newline="\n") as lines:
        for record in map(json.loads, lines):
            for name in seen:
                if (value := record[name]) is not None:
                    whole = type(value) is int and abs(value) >= 2**63
                    seen[name].add("large" if whole else type(value).__name__)
    numbers = {"int", "float"}
    found = {name: "float" if its == numbers else "".join(its) for name, its in seen.items()}
    return {name: known.get(its, pyarrow.string()) for name, its in found.items()}


def _to_official(part: Path, path: Path, shape: Shape) -> None:
    """Texts by id, as SQuAD wants them; with support, as HotpotQA does; of options letters, as RACE has them.

    Rows that are bad have no id.
    """
    with open(part, encoding="utf-8", newline="\n") as lines:
        answered = [record for record in map(json.loads, lines) if record["id"] is not None]
    texts = {record["id"]: record["letter" if "letter" in shape.fields else "answer"] for record in answered}
    if "facts" in shape.fields:
        return HotpotPredictions(texts, {record["id"]: record["facts"] for record in answered}).write(path)
    path.write_text(json.dumps(texts, ensure_ascii=False) + "\n", encoding="utf-8", newline="\n")


def _groups(part: Path) -> Iterator[list[Record]]:
    with open(part, encoding="utf-8", newline="\n") as lines:
        while records := [json.loads(line) for line in islice(lines, GROUP)]:
            yield records
