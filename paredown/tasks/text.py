"""Any file or Hub dataset of texts: csv, tsv, json lines, parquet, gzipped or not; columns and kind are guessed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from paredown.errors import BadInput, BadSetting
from paredown.kinds import kind_named
from paredown.registry import tasks
from paredown.rows import Row
from paredown.tasks._columns import Column, find_columns
from paredown.tasks._reading import METRIC, Columns, Read, Wanted, gather
from paredown.tasks._table import SUFFIXES, Table, read_table, suffix_of

SPLIT_NAMES = {"dev": ("dev", "validation", "valid", "val")}  # how others call a split


def read_rows(
    source: Any,
    *,
    text_column: Column = None,
    pair_column: Column = None,
    label_column: Column = None,
    group_column: Column = None,
    split: str | None = None,
    config: str | None = None,
    kind: str | None = None,
    labels: tuple[str, ...] = (),
    header: bool = True,
    quoted: bool | None = None,
    skip_bad_rows: bool = False,
) -> Read:
    """Rows from a file, a folder with a file per split, a Hub dataset's id, or a dataset already loaded.

    Columns by name, or by number in files without a header. Give the `labels` of the training rows when reading others,
    so that an unknown label is an error. Rows with the same value in `group_column` are ranked. `config` is the Hub's
    name for a part of a dataset.
    """
    if kind is not None and kind_named(kind).name not in METRIC:
        raise BadSetting(f"{kind} rows are not read from tables; known: {', '.join(METRIC)}")
    if isinstance(source, (str, Path)):
        path = _file(Path(source), split)
        if path is None:
            table, names = _hub_table(_from_hub(str(source), split, config), str(source))
        else:
            table, names = read_table(path, header=header, quoted=quoted), {}
    else:
        table, names = _hub_table(source, "dataset")
    table = _known_columns(table)
    known = table.columns or ()
    if not known:
        raise BadInput(f"{table.source}: the file has no rows")
    columns = find_columns(table.source, known, text_column, pair_column, label_column, group_column)
    if not labels and columns.label in names:
        labels = names[columns.label]
    return gather(table, columns, Wanted(kind, tuple(map(str, labels))), skip_bad_rows)


def _known_columns(table: Table) -> Table:
    """Json lines have no header: all records are looked at, so that a column the first one lacks is not missed."""
    if table.columns is not None:
        return table
    records = list(table.rows)
    columns = {str(name): None for _, record in records if isinstance(record, dict) for name in record}
    if records and not columns:
        gather(Table(table.source, None, iter(records)), Columns(("text",)), Wanted())  # raises what is wrong
    return Table(table.source, tuple(columns), iter(records), table.unit)


def _file(path: Path, split: str | None) -> Path | None:
    """The file that holds the split; None if this must be a Hub dataset."""
    if "{split}" in str(path):
        if split is None:
            raise BadInput(f"{path}: say which split")
        return Path(str(path).replace("{split}", split))
    if path.is_dir():
        stems = SPLIT_NAMES.get(split or "", (split,))
        found = [path / f"{stem}{suffix}" for stem in stems for suffix in SUFFIXES]
        found = [file for file in found if file.is_file()]
        if len(found) != 1:
            there = ", ".join(sorted(file.name for file in path.iterdir() if suffix_of(file))) or "no file we can read"
            problem = "say which split" if split is None else f"{len(found)} files for the split {split!r}"
            raise BadInput(f"{path}: {problem}; the folder has {there}")
        return found[0]
    if not path.exists() and suffix_of(path) is None and len(path.parts) <= 2 and not path.is_absolute():
        return None
    if split not in (None, "train") and split not in path.name:
        raise BadInput(f"{path} is one file; for the split {split!r} give a folder, or {{split}} in the file's name")
    return path


def _from_hub(name: str, split: str | None, config: str | None) -> Any:
    import datasets

    try:
        found = datasets.load_dataset(name, config, split=None if split == "dev" else split)
    except Exception as error:  # whatever the Hub, the net or a builder says
        raise BadInput(f"{name} is neither a file here nor a dataset of the Hub that can be read: {error}") from error
    if not isinstance(found, dict):
        return found
    stems = SPLIT_NAMES.get(split or "", (split,))
    chosen = [stem for stem in stems if stem in found] or (list(found) if split is None and len(found) == 1 else [])
    if len(chosen) != 1:
        raise BadInput(f"{name} has the splits {', '.join(found)}; say which")
    return found[chosen[0]]


def _hub_table(dataset: Any, source: str) -> tuple[Table, dict[str, tuple[str, ...]]]:
    """A dataset as a table, with the names of its class labels; -1 is the Hub's way to keep a label back."""
    known = getattr(dataset, "column_names", None)
    if not known or isinstance(known, dict):
        raise BadInput(f"expected a file, a Hub id or one split of a dataset, got {type(dataset).__name__}")
    features = {name: getattr(feature, "feature", feature) for name, feature in (dataset.features or {}).items()}
    names = {name: tuple(feature.names) for name, feature in features.items() if hasattr(feature, "names")}

    def named(value: Any, of: tuple[str, ...]) -> Any:
        if isinstance(value, list):
            return [named(one, of) for one in value]
        if isinstance(value, int) and -1 <= value < len(of):
            return None if value == -1 else of[value]
        return value

    def rows() -> Iterator[tuple[int, dict[str, Any]]]:
        for number, record in enumerate(dataset, 1):
            yield number, record | {name: named(record[name], of) for name, of in names.items()}

    return Table(source, tuple(known), rows(), "row"), names


@tasks.register("text")
@dataclass(frozen=True)
class Text:
    path: str  # a file, a folder with a file per split, a name with {split} in it, or a Hub id
    text_column: str | int | None = None  # None: guessed
    pair_column: str | int | None = None
    label_column: str | int | None = None
    labels: tuple[str, ...] = ()  # none: as found in the file
    kind: str | None = None  # None: guessed from the labels
    metrics: tuple[str, ...] = ()  # none: the kind's usual one
    config: str | None = None  # the Hub's name for a part of a dataset
    header: bool = True  # False: no header line, columns are numbered
    quoted: bool | None = None  # None: csv is, tsv is not
    version: int = 1
    name: ClassVar[str]

    @property
    def metric(self) -> str:
        return self.metrics[0] if self.metrics else METRIC.get(self.kind or "", "accuracy")

    def read(self, root: str | Path = ".", split: str | None = None, skip_bad_rows: bool = False) -> list[Row]:
        return self.load(root, split, skip_bad_rows).rows

    def load(self, root: str | Path = ".", split: str | None = None, skip_bad_rows: bool = False) -> Read:
        """Rows, the labels found, the kind guessed, and what was left out."""
        inside = Path(root) / self.path
        here = inside.exists() or "{split}" in self.path or suffix_of(inside) is not None
        return read_rows(
            inside if here else self.path,
            text_column=self.text_column,
            pair_column=self.pair_column,
            label_column=self.label_column,
            split=split,
            config=self.config,
            kind=self.kind,
            labels=self.labels,
            header=self.header,
            quoted=self.quoted,
            skip_bad_rows=skip_bad_rows,
        )
