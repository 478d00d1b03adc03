"""The rows of every experiment: which files they come from, how many, drawn by a fixed seed.

Train rows learn, dev rows choose weights and thresholds, test rows are only reported on. Where a benchmark keeps its
test labels back, its dev file is the test set and dev rows are held out of train.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from paredown.registry import tasks

TRAIN, DEV, TEST = 10_000, 1_000, 4_000
GLUE = {"test": "dev"}  # test files have no labels


@dataclass(frozen=True)
class Source:
    """A task of the catalogue, and which of its splits each of ours is read from."""

    task: str
    settings: dict[str, Any] = field(default_factory=dict)
    splits: dict[str, str] = field(default_factory=dict)  # ours -> the task's, where they differ
    train_settings: dict[str, Any] | None = None  # of a train file in another layout

    def read(self, data: Path, split: str) -> Any:
        alike = self.settings if split != "train" or self.train_settings is None else self.train_settings
        return tasks.make(self.task, **alike).read(data, self.splits.get(split, split))


@dataclass(frozen=True)
class RowSet:
    """Rows for one kind of training: at most so many of each split."""

    source: Source
    files: tuple[str, ...]  # that are read
    metric: str = "accuracy"
    kind: str = "single_label"
    max_length: int = 128
    train: int = TRAIN
    dev: int = DEV
    test: int = TEST
    held_out: int = 0  # rows of train that serve as dev rows
    reported: int = 0  # further rows of train that join the test rows, where those are few
    apart: str | None = None  # rows with the same value of this field stand on one side of held out and train
    parts: bool = False  # one file holds all: its rows are cut into test, dev and train

    def limited(self, limit: int | None) -> dict[str, int]:
        most = {"train": self.train, "dev": self.dev, "test": self.test}
        return most if limit is None else {split: min(count, limit) for split, count in most.items()}


@dataclass(frozen=True)
class Drawn:
    """Rows of the three splits, and the labels that may occur."""

    train: list[Any]
    dev: list[Any]
    test: list[Any]
    labels: tuple[str, ...]

    @property
    def counts(self) -> dict[str, int]:
        return {"train": len(self.train), "dev": len(self.dev), "test": len(self.test)}


def draw(chosen: RowSet, data: Path, limit: int | None = None) -> Drawn:
    """The same rows every time; `limit`: at most so many of each split, for a try."""
    dice, most = random.Random(0), chosen.limited(limit)
    if chosen.parts:
        whole = chosen.source.read(data, "train")
        rows = _mixed(whole.rows, dice, chosen.apart)
        test, rows = _cut(rows, chosen.test, chosen.apart)
        dev, train = _cut(rows, chosen.held_out, chosen.apart)
        labels = whole.labels
    else:
        wanted = ["train", *([] if chosen.held_out else ["dev"]), "test"]
        splits = {split: chosen.source.read(data, split) for split in wanted}
        labels = splits["train"].labels
        mixed = {split: _mixed(found.rows, dice, chosen.apart) for split, found in splits.items()}
        train, test = mixed["train"], mixed["test"]
        test, train = test[: chosen.test] + train[: chosen.reported], train[chosen.reported :]
        dev, train = _cut(train, chosen.held_out, chosen.apart) if chosen.held_out else (mixed["dev"], train)
    test = test if limit is None else test[:limit]
    return Drawn(train[: most["train"]], dev[: most["dev"]], test, tuple(labels))


def _mixed(rows: Iterable[Any], dice: random.Random, apart: str | None) -> list[Any]:
    """Shuffled; rows that must stay together stay neighbours."""
    rows = list(rows)
    if apart is None:
        dice.shuffle(rows)
        return rows
    values = sorted({getattr(row, apart) for row in rows})
    dice.shuffle(values)
    order = {value: number for number, value in enumerate(values)}
    return sorted(rows, key=lambda row: order[getattr(row, apart)])


def _cut(rows: list[Any], number: int, apart: str | None) -> tuple[list[Any], list[Any]]:
    """The first `number` rows and the others; none of the others is of the same paragraph as the last of the first."""
    end = number
    while apart and 0 < end < len(rows) and getattr(rows[end], apart) == getattr(rows[end - 1], apart):
        end += 1
    return rows[:end], rows[end:]


def both(folder: str, *names: str) -> tuple[str, ...]:
    return tuple(f"{folder}/{name}" for name in names)


def glue(task: str, folder: str, **settings: Any) -> RowSet:
    return RowSet(Source(task, splits=GLUE), both(folder, "train.tsv", "dev.tsv"), **settings)


# Of AG News' 120,000 training rows a part is at hand, in a file of its own with title and description in one column.
_PART = {"text": ("text",), "extra": ("train_partial",), "headless": ("train_partial",)}
_AG_NEWS = Source(
    "ag_news", splits={"train": "train_partial"}, train_settings={**_PART, "columns": ("label", "text", "source")}
)
_PAIR = ("premise", "hypothesis", "label")
_SCITAIL = {"folder": "SciTail", "text": _PAIR[:1], "pair": _PAIR[1], "labels": ("entails", "neutral")}
_SCITAIL |= {"columns": _PAIR, "headless": ("train_partial", "dev", "test"), "extra": ("train_partial",)}
_SNLI = {"folder": "SNLI", "text": ("sentence1",), "pair": "sentence2", "label": "gold_label"}
_SNLI |= {"labels": ("contradiction", "entailment", "neutral")}
_SQUAD = Source("squad", {"train": "train-v1.1-subset", "test": "dev-v1.1"})
_SQUAD_2 = Source("squad_v2", {"dev": "dev-v2.0-half"}, {"train": "dev"})
_RACE = Source("race-middle", {"folder": "RACE_middle"}, {"train": "dev"})
_CHINESE = ("train.tsv", "dev.tsv", "test.tsv")
_NEWS_FILES, _IMDB_FILES = both("20news", "train.jsonl", "test.jsonl"), both("IMDb", "train.tsv", "test.tsv")
_LONG: dict[str, Any] = {"max_length": 512, "train": 6_000, "held_out": DEV}

_HYPERPARTISAN = RowSet(
    Source("hyperpartisan"),
    both("Hyperpartisan", *(f"{kind}-training-byarticle-20181122.xml" for kind in ("articles", "ground-truth"))),
    max_length=512,
)

SETS: dict[str, RowSet] = {
    "sst-2": glue("sst-2", "SST-2", held_out=DEV),
    "sst-2-all": glue("sst-2", "SST-2", held_out=DEV, train=70_000),
    "mrpc": glue("mrpc", "MRPC", held_out=400, reported=600),
    "rte": glue("rte", "RTE", held_out=250, reported=500),
    "cola": glue("cola", "CoLA", metric="matthews", max_length=64, held_out=DEV),
    "sts-b": glue("sts-b", "STS-B", metric="correlation", kind="regression", held_out=700),
    "imdb": RowSet(Source("imdb"), _IMDB_FILES, max_length=256, held_out=DEV),
    "20news": RowSet(Source("20news"), _NEWS_FILES, max_length=256, held_out=DEV),
    "ag_news": RowSet(_AG_NEWS, both("AG_News", "train_partial.csv", "test.csv"), held_out=DEV),
    "book-review": RowSet(Source("book-review"), both("Book_review_douban", *_CHINESE)),
    "book-review-all": RowSet(
        Source("book-review"), both("Book_review_douban", *_CHINESE), train=20_000, dev=4_000, test=10_000
    ),
    "chnsenticorp": RowSet(Source("chnsenticorp"), both("ChnSentiCorp", *_CHINESE)),
    "scitail": RowSet(
        Source("elue", _SCITAIL, {"train": "train_partial"}),
        both("SciTail", "train_partial.tsv", "dev.tsv", "test.tsv"),
    ),
    "snli": RowSet(Source("glue", _SNLI), both("SNLI", "train.tsv", "test.tsv"), held_out=DEV, apart="text"),
    "squad": RowSet(
        _SQUAD, both("SQuAD_v1.1", "train-v1.1-subset.json", "dev-v1.1.json"), "span_f1", "span", 384, held_out=DEV
    ),
    "squad_v2": RowSet(
        _SQUAD_2,
        both("SQuAD_v2.0", "dev-v2.0-half.json"),
        "span_f1",
        "span",
        384,
        test=1_500,
        held_out=500,
        apart="context",
        parts=True,
    ),
    "race": RowSet(
        _RACE,
        both("RACE_middle", "validation_middle.jsonl", "test_middle.jsonl"),
        kind="choice",
        max_length=512,
        held_out=200,
        apart="context",
    ),
    "hyperpartisan": _HYPERPARTISAN,
    "hyperpartisan-1024": replace(_HYPERPARTISAN, max_length=1024),
    "imdb-512": RowSet(Source("imdb"), _IMDB_FILES, **_LONG),
    "20news-512": RowSet(Source("20news"), _NEWS_FILES, **_LONG),
    "imdb-512-all": RowSet(Source("imdb"), _IMDB_FILES, **{**_LONG, "train": 14_000}),
    "20news-512-all": RowSet(Source("20news"), _NEWS_FILES, **{**_LONG, "train": 10_314}),
    "sst-2-1000": glue("sst-2", "SST-2", held_out=DEV, train=1_000, dev=200),
    "imdb-1000": RowSet(Source("imdb"), _IMDB_FILES, max_length=256, held_out=DEV, train=1_000, dev=200),
    "20news-1000": RowSet(Source("20news"), _NEWS_FILES, max_length=256, held_out=DEV, train=1_000, dev=200),
    "ag_news-1000": RowSet(
        _AG_NEWS, both("AG_News", "train_partial.csv", "test.csv"), held_out=DEV, train=1_000, dev=200
    ),
}
