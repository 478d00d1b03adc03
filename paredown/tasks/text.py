"""Any file or Hub dataset of texts: csv, tsv, json lines, parquet, CoNLL; columns and kind are guessed."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from paredown.answers._columns import TEXT_NAMES, Column, Columns, find_columns
from paredown.errors import BadInput, BadSetting
from paredown.model import Reading
from paredown.registry import answers, tasks
from paredown.tasks._reading import ExpectedLabels, gather, tell_several
from paredown.tasks._sentences import TAGS, TOKENS
from paredown.tasks._table import SUFFIXES, WORD_SUFFIXES, Table, read_table, suffix_of
from paredown.tasks._task import Split

LOOKED_AT = 100  # records that tell whether a column holds text
MORE_TEXT = TEXT_NAMES | {"title", "headline", "subject", "summary", "description", "abstract", "context", "answer"}
SPLIT_NAMES = {"dev": ("dev", "validation", "valid", "val")}  # how others call a split

log = logging.getLogger(__name__)


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
    label_separator: str | None = None,
    header: bool | None = None,
    quoted: bool | None = None,
    usual: Reading | None = None,
    skip_bad_rows: bool = False,
) -> Split:
    """Rows from a file, a folder with a file per split, a Hub dataset's id, or a dataset already loaded.

    Columns by name, or by number in files without a header. Give the `labels` of the training rows when reading others,
    so that an unknown label is an error, and as `usual` their `reading`, so that the same columns are read. Rows with
    the same value in `group_column` are ranked. `config` is the Hub's name for a part of a dataset.
    """
    if kind is not None and answers.make(kind).asks_questions:
        tabular = [name for name in answers.names() if not answers.make(name).asks_questions]
        raise BadSetting(f"{kind} rows are not read from tables; known: {', '.join(tabular)}")
    usual = usual or Reading()
    header = header if header is not None else usual.header is not False
    separator = label_separator or usual.label_separator
    kind = kind or ("multi_label" if label_separator else None)
    per_word = None if kind is None else answers.make(kind).per_word
    if isinstance(source, (str, Path)):
        path = _file(Path(source), split)
        if path is None:
            table, names = _hub_table(_from_hub(str(source), split, config), str(source))
        else:
            table, names = read_table(path, header=header, quoted=quoted, per_word=per_word), {}
    else:
        table, names = _hub_table(source, "dataset")
    table = _known_columns(table)
    known = table.columns or ()
    if not known:
        raise BadInput(f"{table.source}: the file has no rows")
    named = (text_column, pair_column, label_column, group_column)
    columns = find_columns(table.source, known, *named, usual=usual, per_word=per_word)
    if text_column is None and usual.text_column is None:
        table = _without_unused(table, columns)
    if not labels and columns.label in names:
        labels = names[columns.label]
    wanted = ExpectedLabels(
        kind or ("token_label" if columns.of_words else None), tuple(map(str, labels)), separator=separator
    )
    found = gather(table, columns, wanted, skip_bad_rows)
    if kind is None and not labels and found.kind == "single_label":
        tell_several(found.source, found.labels)
    return replace(found, reading=_reading(columns, header, separator))


def _reading(columns: Columns, header: bool, separator: str | None) -> Reading:
    """How to read other files alike. In CoNLL's format there are no columns to remember."""
    if columns.text == (TOKENS,) and columns.label == TAGS:
        return Reading()
    said = None if header else False
    return Reading(None, columns.text[0], columns.pair, columns.label, said, separator)


def _without_unused(table: Table, columns: Columns) -> Table:
    """The table; columns that look like more text, and are not read, are named first."""
    first, table = table.peeked(LOOKED_AT)
    records = [record for _, record in first if isinstance(record, dict)]
    read = {*columns.text, columns.pair, columns.label, columns.group}
    unused = [name for name in table.columns or () if name not in read and _looks_like_text(name, records)]
    if unused:
        log.warning(
            "%s: text is read from column %r; not used: %s (pair_column, --pair-column: a second text)",
            *(table.source, columns.text[0], ", ".join(map(repr, unused))),
        )
    return table


def _looks_like_text(name: str, records: list[dict[str, Any]]) -> bool:
    """By its name, or because it holds three words or more on average."""
    values = [record.get(name) for record in records]
    texts = [value for value in values if isinstance(value, str) and value.strip()]
    if not texts:
        return False
    return name.lower() in MORE_TEXT or sum(len(text.split()) for text in texts) >= 3 * len(texts)


def _known_columns(table: Table) -> Table:
    """Json lines have no header: all records are looked at, so that a column the first one lacks is not missed."""
    if table.columns is not None:
        return table
    records = list(table.rows)
    columns = {str(name): None for _, record in records if isinstance(record, dict) for name in record}
    if records and not columns:
        gather(Table(table.source, None, iter(records)), Columns(("text",)), ExpectedLabels())  # raises what is wrong
    return Table(table.source, tuple(columns), iter(records), table.unit)


def _file(path: Path, split: str | None) -> Path | None:
    """The file that holds the split; None if this must be a Hub dataset."""
    if "{split}" in str(path):
        if split is None:
            raise BadInput(f"{path}: say which split")
        return Path(str(path).replace("{split}", split))
    if path.is_dir():
        stems = SPLIT_NAMES.get(split or "", (split,))
        found = [path / f"{stem}{suffix}" for stem in stems for suffix in SUFFIXES + WORD_SUFFIXES]
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
    label_separator: str | None = None  # between the labels of a cell, where there are several
    header: bool = True  # False: no header line, columns are numbered
    quoted: bool | None = None  # None: csv is, tsv is not
    version: int = 1
    spelled: ClassVar[tuple[str, ...]] = ()
    takes_file: ClassVar[bool] = False  # the file is its setting
    name: ClassVar[str]

    @property
    def metric(self) -> str:
        return self.metrics[0] if self.metrics else answers.make(self.kind or "single_label").metric

    def read(self, root: str | Path = ".", split: str | None = None, skip_bad_rows: bool = False) -> Split:
        """Rows, the labels found, the kind guessed, and what was left out."""
        inside = Path(root) / self.path
        here = inside.exists() or "{split}" in self.path or suffix_of(inside) is not None
        found = read_rows(
            inside if here else self.path,
            text_column=self.text_column,
            pair_column=self.pair_column,
            label_column=self.label_column,
            split=split,
            config=self.config,
            kind=self.kind,
            labels=self.labels,
            label_separator=self.label_separator,
            header=self.header,
            quoted=self.quoted,
            skip_bad_rows=skip_bad_rows,
        )
        return replace(found, metrics=self.metrics or found.metrics)
