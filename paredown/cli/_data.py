"""Where a command's rows come from: a task of the catalogue in its own files, or any file or Hub dataset."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from paredown.errors import BadInput, BadSetting
from paredown.evaluation.metrics import USUAL
from paredown.evaluation.questions import ASKED
from paredown.kinds import kind_named
from paredown.reading import Reading
from paredown.registry import tasks
from paredown.tasks import Bad, Questions, Read
from paredown.tasks._records import QuestionFiles
from paredown.tasks.race import Race
from paredown.tasks.text import read_rows

Task = Annotated[str | None, typer.Option(help="A task of the catalogue, read from its own files in --data.")]
Data = Annotated[Path | None, typer.Option(help="The folder that holds the task's files.")]
TextColumn = Annotated[str | None, typer.Option(help="Column of the text; guessed when obvious.")]
PairColumn = Annotated[str | None, typer.Option(help="Column of the second text of a pair.")]
LabelColumn = Annotated[str | None, typer.Option(help="Column of the label.")]
SkipBadRows = Annotated[bool, typer.Option(help="Leave out rows that cannot be read, and say how many.")]


@dataclass(frozen=True)
class Source:
    """One way to find rows for any split."""

    task: str | None = None
    data: Path | None = None
    files: dict[str, str] | None = None  # by split; with a task of questions, in its format
    reading: Reading = field(default_factory=Reading)
    skip_bad_rows: bool = False

    def __post_init__(self) -> None:
        given = [name for name, path in (self.files or {}).items() if path]
        if self.task is None and not given:
            raise BadSetting("no rows: name a --task with its --data folder, or give files")
        if self.task is None:
            return
        if given and not isinstance(tasks.make(self.task), (QuestionFiles, Race)):
            raise BadSetting(f"the task {self.task} has files of its own; leave --{given[0]} out")
        if self.data is None and not given:
            raise BadSetting(f"the task {self.task} needs --data, the folder that holds its files")

    def read(self, split: str, labels: tuple[str, ...] = (), kind: str | None = None) -> Any:
        """The rows of a split with their labels and kind, or None where no file was given."""
        path = (self.files or {}).get(split)
        if self.task is not None:
            return self._of_task(tasks.make(self.task), path, split)
        if not path:
            return None
        if kind in ASKED:
            raise BadSetting(f"{path}: name the --task that reads its questions: squad, hotpotqa, race, wikihop, …")
        return read_rows(
            path,
            text_column=self.reading.text_column,
            pair_column=self.reading.pair_column,
            label_column=self.reading.label_column,
            labels=labels,
            kind=kind,
            skip_bad_rows=self.skip_bad_rows,
        )

    def more(self, path: str, kind: str) -> Any:
        """Rows that need no label: questions in the task's format, texts in any."""
        task = self.task if kind in ASKED else None
        return Source(task, None, {"train": path}, self.reading, self.skip_bad_rows).read("train")

    def _of_task(self, task: Any, path: str | None, split: str) -> Any:
        """From a file in the task's format, wherever it is, else from its folder."""
        if path and not Path(path).is_file():
            raise BadInput(f"{path} is missing")
        if (place := path or self.data) is None:
            return None
        found = task.load(place, split, skip_bad_rows=self.skip_bad_rows)
        if not isinstance(found, Questions):
            return found
        bad = tuple(Bad(place, f"{one.place}: {one.reason}") for place, one in enumerate(found.bad))
        return Read(found.source, found.rows, (), found.kind, bad)


def metrics_of(rows: Any, task: str | None) -> list[str]:
    """The metrics of rows, the headline first; ranked rows have one of their own."""
    if (kind := kind_named(rows.kind)).windowed:
        return [USUAL[kind.name]]  # of windows; the tasks' own figures are of whole questions
    own = () if task is None or rows.groups is not None else tasks.make(task).metrics
    return list(own) or [rows.metric]
