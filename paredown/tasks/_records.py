"""Files of questions, one per split: a JSON list or an object a line; what is wrong is named by its location."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

from paredown.answers import Choices, Question
from paredown.errors import BadInput
from paredown.tasks._files import SPLITS
from paredown.tasks._questions import JSON, Fault, Found, gather_questions, read_json
from paredown.tasks._table import numbered_lines, table_of
from paredown.tasks._task import Split

LINES = (".jsonl", ".jsonl.gz")


class QuestionTask(ABC):
    """A task of questions; a file in its format may stand in for its folder, whatever it is called."""

    labels: ClassVar[tuple[str, ...]] = ()
    spelled: ClassVar[tuple[str, ...]] = ()
    takes_file: ClassVar[bool] = True
    in_folders_of: ClassVar[str] = ""  # the ending of files, where a folder of them is read as one file is
    kind: ClassVar[str]
    name: ClassVar[str]

    @property
    @abstractmethod
    def metrics(self) -> tuple[str, ...]: ...

    @property
    def metric(self) -> str:
        return self.metrics[0]

    def read(self, root: str | Path, split: str, skip_bad_rows: bool = False) -> Split:
        if split not in SPLITS:
            raise BadInput(f"no split is called {split!r}; known: {', '.join(SPLITS)}")
        sources = [Path(root)] if Path(root).is_file() else self._sources(Path(root), split)
        found = (one for source in sources for one in self.questions(source))
        return gather_questions(" and ".join(map(str, sources)), found, self.kind, skip_bad_rows)

    @abstractmethod
    def questions(self, path: Path) -> Found:
        """Every question of a file by location, as it is read, or what is wrong with it."""

    @abstractmethod
    def _sources(self, root: Path, split: str) -> list[Path]:
        """What holds a split below `root`."""


@dataclass(frozen=True)
class QuestionFiles(QuestionTask):
    """One file for each split."""

    folder: str  # a|b: either
    train: str = "train"  # the files' names; a|b: either
    dev: str = "dev"
    test: str = "test"
    metrics: tuple[str, ...] = ("accuracy",)  # the first is the headline
    version: int = 1  # grows when rows, labels or the headline change

    def _sources(self, root: Path, split: str) -> list[Path]:
        stems = {"train": self.train, "dev": self.dev, "test": self.test}[split]
        return [find_records(root, self.folder, stems, f"{split} questions")]


class Records(QuestionFiles):
    """One question in each record."""

    def questions(self, path: Path) -> Found:
        for location, record in numbered_records(path):
            if isinstance(record, str):
                yield location, record
                continue
            if isinstance(name := self._name_of(record), str):
                location += f", question {name!r:.60}"
            try:
                yield location, self._asked(record)
            except Fault as fault:
                yield location, str(fault)

    def _name_of(self, record: dict[str, Any]) -> Any:
        """The id of a record that may be broken, for the message that says so."""
        return record.get("id")

    @abstractmethod
    def _asked(self, record: dict[str, Any]) -> Question | Choices:
        """The question a record holds; raises Fault where it does not hold one."""


def find_records(root: str | Path, folders: str, stems: str, what: str) -> Path:
    """The one file of JSON or JSON lines called so, in a folder below `root` or in `root` itself."""
    roots = [*(Path(root) / folder for folder in folders.split("|")), Path(root)]
    wanted = [base / stem for base in roots for stem in stems.split("|")]
    found = [path for stem in wanted for suffix in JSON + LINES if (path := Path(f"{stem}{suffix}")).is_file()]
    if len(found) > 1 and not all(path.samefile(found[0]) for path in found):
        raise BadInput(f"the {what} could be in {' or in '.join(map(str, found))}; keep one of them")
    if not found:
        where = " or ".join(map(str, wanted))
        raise BadInput(f"{where} is missing; the {what} belong there, in a file that ends in {', '.join(JSON + LINES)}")
    return found[0]


def numbered_records(path: Path) -> Iterator[tuple[str, dict[str, Any] | str]]:
    """The objects of a JSON list or of JSON lines by location; a text says what is wrong with one."""
    if path.name.lower().endswith(LINES) or _has_an_object_a_line(path):
        rows = table_of(str(path), numbered_lines(path), "jsonl").rows
        yield from ((f"line {number}", record) for number, record in rows)
        return
    items = read_json(path)
    if not isinstance(items, list):
        raise BadInput(f"{path}: expected a list of questions, got {items!r:.60}")
    for number, item in enumerate(items, 1):
        yield f"item {number}", item if isinstance(item, dict) else f"expected a JSON object, got {item!r:.40}"


def _has_an_object_a_line(path: Path) -> bool:
    """Whether it is JSON lines whatever its name says, as Transformer-XH's files are: the first two show it."""
    if not path.is_file():
        return False
    first = [line for _, line in islice(numbered_lines(path), 2)]
    return len(first) == 2 and all(line.startswith("{") and line.rstrip().endswith("}") for line in first)
