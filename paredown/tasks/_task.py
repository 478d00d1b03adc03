"""What a task is, and what it reads: every entry of the catalogue is a Task, and each of its splits is a Split."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from paredown.model import Reading


@dataclass(frozen=True)
class Problem:
    """What is wrong with one row or question of a file."""

    location: str  # `line 3`, `article 1, paragraph 2, question 'a7'`
    reason: str


@dataclass(frozen=True)
class Split:
    """The rows of one split, and what there is to know of them."""

    source: str
    rows: list[Any]  # what models of the kind are asked: Row, Question or Choices, with labels where they are known
    kind: str
    metrics: tuple[str, ...]  # what the rows are scored by, the headline first
    labels: tuple[str, ...] = ()  # all that may occur; sorted (whole numbers as numbers) where nobody named them
    bad: tuple[Problem, ...] = ()  # rows left out on request
    noted: tuple[Problem, ...] = ()  # rows kept, though the file contradicts itself about them
    groups: tuple[str, ...] | None = None  # the question every row answers, where rows are ranked
    reading: Reading = field(default_factory=Reading)  # how to read others alike

    @property
    def metric(self) -> str:
        return self.metrics[0]


@runtime_checkable
class Task(Protocol):
    """Data in a layout of its own. What a task says of itself is known before any file is read."""

    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> str | None: ...  # None: as found in the files
    @property
    def labels(self) -> tuple[str, ...]: ...  # none: as found in the files, or the kind has none
    @property
    def spelled(self) -> tuple[str, ...]: ...  # what the files write instead, in the order of the labels
    @property
    def metrics(self) -> tuple[str, ...]: ...  # of the benchmark, the headline first; none: the kind's usual one
    @property
    def metric(self) -> str: ...  # the headline
    @property
    def version(self) -> int: ...  # grows when rows, labels or the headline change
    @property
    def takes_file(self) -> bool: ...  # whether a file in the task's format may stand in for its folder

    def read(self, root: str | Path, split: str, skip_bad_rows: bool = False) -> Split:
        """A split (`train`, `dev`, `test`) below `root`; labels are missing where the makers keep them back.

        A file that is not as its makers say is an error that names the location, or its bad rows are left out.
        """
        ...
