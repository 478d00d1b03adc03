"""What every task of a benchmark shares: a folder, one file per split, columns by name, labels, metrics, a version."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from paredown.answers._columns import Columns
from paredown.errors import BadInput
from paredown.registry import answers
from paredown.tasks._reading import ExpectedLabels, gather
from paredown.tasks._table import SUFFIXES, Table, read_table
from paredown.tasks._task import Split

SPLITS = ("train", "dev", "test")


@dataclass(frozen=True)
class Files:
    folder: str  # as the benchmark names it; a|b: either
    text: tuple[str, ...] = ("text",)  # columns, joined by a space; a|b: either
    pair: str | None = None
    label: str = "label"
    labels: tuple[str, ...] = ("0", "1")
    spelled: tuple[str, ...] = ()  # what the files write instead, in the order of the labels
    limits: tuple[float, ...] = ()  # lowest and highest number
    kind: str = "single_label"
    metrics: tuple[str, ...] = ("accuracy",)  # the first is the headline
    dev: str = "dev"  # the files' names
    test: str = "test"
    columns: tuple[str, ...] = ()  # of files without a header line
    headless: tuple[str, ...] = ()  # splits whose files have none
    extra: tuple[str, ...] = ()  # further splits, named as their files
    version: int = 1  # grows when rows, labels or the headline change
    takes_file: ClassVar[bool] = False
    name: ClassVar[str]

    @property
    def metric(self) -> str:
        return self.metrics[0]

    def read(self, root: str | Path, split: str, skip_bad_rows: bool = False) -> Split:
        path = self.path(root, split)
        table = read_table(path, self.columns, header=split not in self.headless)
        return gather(table, self._chosen(table, split), self._wanted(), skip_bad_rows, self.metrics)

    def path(self, root: str | Path, split: str) -> Path:
        self._check(split)
        stem = {"dev": self.dev, "test": self.test}.get(split, split)
        return find_file(root, self.folder.split("|"), stem, f"{split} rows")

    def _check(self, split: str) -> None:
        answers.make(self.kind)
        if split not in (known := SPLITS + self.extra):
            raise BadInput(f"no split is called {split!r}; known: {', '.join(known)}")

    def _wanted(self) -> ExpectedLabels:
        return ExpectedLabels(self.kind, self.labels, self.spelled, self.limits, required=True)

    def _chosen(self, table: Table, split: str) -> Columns:
        text = tuple(self._column(table, name) for name in self.text)
        pair = None if self.pair is None else self._column(table, self.pair)
        known = table.columns
        unlabelled = split == "test" and known is not None and not set(self.label.split("|")) & set(known)
        return Columns(text, pair, None if unlabelled else self._column(table, self.label))

    def _column(self, table: Table, names: str) -> str:
        if table.columns is None:  # json lines: every row is asked
            return names.split("|")[0]
        found = next((name for name in names.split("|") if name in table.columns), None)
        if found is None:
            wanted = " or ".join(map(repr, names.split("|")))
            raise BadInput(f"{table.source}, line 1: no column {wanted}; it has {', '.join(table.columns)}")
        return found


def find_file(root: str | Path, folders: Iterable[str], stem: str, what: str) -> Path:
    """The one file called `stem` with a known ending, in a folder below `root` or in `root` if that is the folder."""
    root, folders = Path(root), list(folders)
    roots = [root / folder for folder in folders] + [root] * (root.resolve().name in folders)
    found = [base / f"{stem}{suffix}" for base in roots for suffix in SUFFIXES]
    found = [path for path in found if path.is_file()]
    if len(found) > 1 and not all(path.samefile(found[0]) for path in found):
        raise BadInput(f"the {what} could be in {' or in '.join(map(str, found))}; keep one of them")
    if not found:
        where = " or ".join(str(base / stem) for base in roots)
        raise BadInput(f"{where} is missing; the {what} belong there, in a file that ends in {', '.join(SUFFIXES)}")
    return found[0]
