"""Where a command's rows come from: a task of the catalogue in its own files, or any file or Hub dataset."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from paredown.errors import BadSetting
from paredown.registry import tasks
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
    files: dict[str, str] | None = None  # by split, where there is no task
    columns: dict[str, str | None] | None = None
    skip_bad_rows: bool = False

    def __post_init__(self) -> None:
        given = [name for name, path in (self.files or {}).items() if path]
        if self.task is None and not given:
            raise BadSetting("no rows: name a --task with its --data folder, or give files")
        if self.task is not None and given:
            raise BadSetting(f"the task {self.task} has files of its own; leave --{given[0]} out")
        if self.task is not None and self.data is None:
            raise BadSetting(f"the task {self.task} needs --data, the folder that holds its files")

    def read(self, split: str, labels: tuple[str, ...] = (), kind: str | None = None) -> Any:
        """The rows of a split with their labels and kind, or None where no file was given."""
        if self.task is not None:
            return tasks.make(self.task).load(self.data, split, skip_bad_rows=self.skip_bad_rows)
        if not (path := (self.files or {}).get(split)):
            return None
        columns: dict[str, Any] = self.columns or {}
        return read_rows(path, **columns, labels=labels, kind=kind, skip_bad_rows=self.skip_bad_rows)


def metrics_of(rows: Any, task: str | None) -> list[str]:
    """The metrics of rows, the headline first; ranked rows have one of their own."""
    own = () if task is None or rows.groups is not None else tasks.make(task).metrics
    return list(own) or [rows.metric]
