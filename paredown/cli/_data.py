"""Where a command's rows come from: a task of the catalogue in its own files, or any file or Hub dataset."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from paredown.cli import _options as options
from paredown.cli._loading import labels_to_read
from paredown.errors import BadInput, BadSetting
from paredown.evaluation.metrics import Metric, metric_named
from paredown.model import AdaptiveModel, Reading
from paredown.registry import answers, tasks
from paredown.tasks import Split, read_rows

FLAGS = {  # how the library's settings are called on the command line
    "text_column": "--text-column",
    "pair_column": "--pair-column",
    "label_column": "--label-column",
    "label_separator=": "--label-separator ",
    "a label_separator": "a --label-separator",
    "header=False": "--no-header",
    "skip_bad_rows=True": "--skip-bad-rows",
    "kind='": "--kind '",
}


@contextmanager
def as_flags() -> Iterator[None]:
    """Errors of the library in the command line's words."""
    try:
        yield
    except BadInput as error:
        message = str(error)
        for setting, flag in FLAGS.items():
            message = message.replace(setting, flag)
        raise BadInput(message) from None


@dataclass(frozen=True)
class Source:
    """One way to find rows for any split."""

    task: str | None = None
    data: Path | None = None
    files: Mapping[str, str | None] | None = None  # by split; with a task of questions, in its format
    reading: Reading = field(default_factory=Reading)
    skip_bad_rows: bool = False
    kind: str | None = None

    def __post_init__(self) -> None:
        given = [name for name, path in (self.files or {}).items() if path]
        if self.task is None and not given:
            how = "`paredown evaluate BUNDLE ROWS`, `paredown train --train ROWS`"
            raise BadSetting(f"no rows: give a file ({how}), or a --task with its folder as --data")
        if self.task is None:
            return
        if self.kind is not None:
            raise BadSetting(f"the task {self.task} has a kind of its own; leave --kind out")
        if given and not tasks.make(self.task).takes_file:
            raise BadSetting(f"the task {self.task} has files of its own; leave --{given[0]} out")
        if self.data is None and not given:
            raise BadSetting(f"the task {self.task} needs --data, the folder that holds its files")

    def has(self, split: str) -> bool:
        """Whether the rows of a split are given."""
        return bool(self._file(split)) or (self.task is not None and self.data is not None)

    def read(
        self, split: str, labels: tuple[str, ...] = (), kind: str | None = None, usual: Reading | None = None
    ) -> Split:
        """The rows of a split with their labels and kind, read as usual."""
        if not self.has(split):
            rows = "training" if split == "train" else split
            raise BadSetting(f"there are no {rows} rows: give --{split}, or --task and --data")
        kind, path = kind or self.kind, self._file(split)
        if self.task is not None:
            return self._of_task(self.task, path, split)
        if kind is not None and answers.make(kind).asks_questions:
            raise BadSetting(f"{path}: name the --task that reads its questions: squad, hotpotqa, race, wikihop, …")
        reading = self.reading
        with as_flags():
            return read_rows(
                path,
                text_column=reading.text_column,
                pair_column=reading.pair_column,
                label_column=reading.label_column,
                label_separator=reading.label_separator,
                header=reading.header,
                usual=usual,
                labels=labels,
                kind=kind,
                skip_bad_rows=self.skip_bad_rows,
            )

    def read_for(self, model: AdaptiveModel, split: str) -> Split:
        """The rows of a split with labels that the model knows, read as in its training."""
        return self.read(split, labels_to_read(model), model.kind.name, model.reading)

    def training(self, unlabelled: str | None) -> tuple[Split, Split | None, Split | None]:
        """Rows to train on, and those that are given of dev rows and of more text, read alike."""
        found = self.read("train")
        if self.task is None and found.rows and all(row.label is None for row in found.rows):
            other = "questions are read by a --task: squad, race, …"
            raise BadInput(f"{found.source}: which column holds the label? Say --label-column; {other}")
        held = self.read("dev", found.labels, found.kind, found.reading) if self.has("dev") else None
        return found, held, self.more(unlabelled, found) if unlabelled else None

    def more(self, path: str, like: Split) -> Split:
        """Rows that need no label: questions in the task's format, texts in any."""
        if answers.make(like.kind).asks_questions:
            return Source(self.task, None, {"train": path}, skip_bad_rows=self.skip_bad_rows).read("train")
        texts = replace(like.reading, label_column=None)
        kind = like.kind if answers.make(like.kind).per_word else None
        source = Source(None, None, {"train": path}, replace(self.reading, label_column=None), self.skip_bad_rows)
        return source.read("train", kind=kind, usual=texts)

    def _file(self, split: str) -> str | None:
        return (self.files or {}).get(split)

    def _of_task(self, task: str, path: str | None, split: str) -> Split:
        """From a file in the task's format, wherever it is, else from its folder."""
        if path and not Path(path).is_file():
            raise BadInput(f"{path} is missing")
        return tasks.make(task).read(path or self.data, split, self.skip_bad_rows)


@dataclass(frozen=True, kw_only=True)
class ColumnFlags:
    """Options that say what the columns of a file are."""

    text_column: options.TextColumn = None
    pair_column: options.PairColumn = None
    label_column: options.LabelColumn = None
    label_separator: options.LabelSeparator = None
    kind: options.AnswerKind = None
    header: options.Header = None

    def reading(self, max_length: int | None) -> Reading:
        columns = (self.text_column, self.pair_column, self.label_column)
        return Reading(max_length, *columns, self.header, self.label_separator)


@dataclass(frozen=True, kw_only=True)
class RowFlags(ColumnFlags):
    """The same, and what becomes of bad rows."""

    skip_bad_rows: options.SkipBadRows = False

    def source(
        self,
        task: str | None,
        data: Path | None,
        files: Mapping[str, str | None],
        max_length: int | None,
        kind: str | None = None,
    ) -> Source:
        return Source(task, data, files, self.reading(max_length), self.skip_bad_rows, kind)


def facts_of(rows: Split, model: AdaptiveModel, max_length: int | None) -> dict[str, Any]:
    """How rows are understood, for a dry run; columns only where they were looked for."""
    first = {name: value for name, value in asdict(rows.rows[0]).items() if value is not None}
    return {
        "source": rows.source,
        **rows.reading.to_json(),
        "kind": rows.kind,
        "labels": list(rows.labels),
        "max_length": model.kind.row_length(model, max_length),
        "first_row": first,
    }


def metric_of(rows: Split, ready: Any) -> Metric | None:
    """The headline metric of the dev rows: those read, or some of the training rows; None where there are none."""
    if not ready.dev:
        return None
    if rows.groups is not None and len(rows.groups) != len(ready.dev):
        raise BadSetting("rows are ranked in groups, which no row can be held out of: give --dev")
    return metric_named(rows.metric, rows.groups)
