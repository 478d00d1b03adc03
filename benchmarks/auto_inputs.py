"""The rows of `benchmarks/auto.py`: which files they come from, how many, drawn by a fixed seed.

    python -m benchmarks.auto_inputs --data DATA --out rows.json.xz

DATA holds the data sets in their own files, as `docs/data_formats.md` names them (SciTail and the parts of AG News and
SQuAD under the names given here). Train rows are at most 10,000, dev rows at most 1,000: dev rows choose weights and
thresholds, test rows are only reported on. Where a benchmark keeps its test labels back, its dev file is the test set
and dev rows are held out of train.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import lzma
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paredown.answers import Row
from paredown.registry import tasks
from paredown.tasks import Question, read_rows

TRAIN, DEV, TEST = 10_000, 1_000, 4_000


@dataclass(frozen=True)
class DataSet:
    encoder: str  # the folder of its weights
    metric: str
    max_length: int = 128
    held_out: int = 0  # rows of train that serve as dev rows
    reported: int = 0  # further rows of train that join the test rows, where those are few
    train: int = TRAIN
    like: str | None = None  # the set whose files it is a part of
    kind: str = "single_label"

    def source(self, name: str) -> str:
        return self.like or name


SETS = {
    "sst-2": DataSet("gte-small", "accuracy", held_out=DEV),
    "mrpc": DataSet("e5-small", "accuracy", held_out=400, reported=600),
    "rte": DataSet("gte-small", "accuracy", held_out=250, reported=500),
    "cola": DataSet("e5-small", "matthews", 64, held_out=DEV),
    "sts-b": DataSet("minilm-l6", "correlation", held_out=700, kind="regression"),
    "imdb": DataSet("gte-small", "accuracy", 256, held_out=DEV),
    "20news": DataSet("gte-small", "accuracy", 256, held_out=DEV),
    "ag_news": DataSet("minilm-l6", "accuracy", held_out=DEV),
    "book-review": DataSet("m3e-small", "accuracy"),
    "chnsenticorp": DataSet("m3e-small", "accuracy"),
    "scitail": DataSet("e5-small", "accuracy"),
    "squad": DataSet("gte-small", "span_f1", 384, held_out=DEV, kind="span"),
    "sst-2, 1,000 rows": DataSet("gte-small", "accuracy", held_out=DEV, train=1_000, like="sst-2"),
    "imdb, 1,000 rows": DataSet("e5-small", "accuracy", 256, held_out=DEV, train=1_000, like="imdb"),
    "20news, 1,000 rows": DataSet("minilm-l6", "accuracy", 256, held_out=DEV, train=1_000, like="20news"),
    "ag_news, 1,000 rows": DataSet("gte-small", "accuracy", held_out=DEV, train=1_000, like="ag_news"),
}
KEPT_BACK = ("sst-2", "mrpc", "rte", "cola", "sts-b")  # GLUE: test files have no labels
FEW = 200  # dev rows of a set of 1,000 rows


def draw(name: str, data: Path) -> dict[str, list[Any]]:
    """Train, dev and test rows of a set."""
    chosen, random_ = SETS[name], random.Random(0)
    splits = {split: rows for split in ("train", "dev", "test") if (rows := _read(chosen.source(name), data, split))}
    for rows in splits.values():
        random_.shuffle(rows)
    train, test = splits["train"], splits["test"]
    test = test[:TEST] + train[: chosen.reported]
    train = train[chosen.reported :]
    dev, train = (train[: chosen.held_out], train[chosen.held_out :]) if chosen.held_out else (splits["dev"], train)
    return {"train": train[: chosen.train], "dev": dev[: FEW if chosen.like else DEV], "test": test}


def _read(name: str, data: Path, split: str) -> list[Any]:
    """A split's rows; no dev rows where they are held out of train."""
    if name == "scitail":
        path = data / "SciTail" / ("train_partial.tsv" if split == "train" else f"{split}.tsv")
        return read_rows(path, text_column=0, pair_column=1, label_column=2, header=False).rows
    if split == "dev" and SETS[name].held_out:
        return []
    if name == "squad":
        return tasks.make("squad", train="train-v1.1-subset", test="dev-v1.1").read(data, split).rows
    if name == "ag_news" and split == "train":
        part = {"extra": ("train_partial",), "headless": ("train_partial",), "columns": ("label", "text", "source")}
        return tasks.make(name, text=("text",), **part).read(data, "train_partial").rows
    return tasks.make(name).read(data, "dev" if split == "test" and name in KEPT_BACK else split).rows


def _packed(row: Row | Question) -> Any:
    if isinstance(row, Row):
        return [row.text, row.pair, row.label]
    return dataclasses.asdict(row)


def unpacked(row: Any) -> Row | Question:
    if isinstance(row, list):
        return Row(*row)
    spans = {name: tuple(map(tuple, row[name])) for name in ("spans", "protected")}
    return Question(**row | spans | {"answers": tuple(row["answers"]), "sentences": ()})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    drawn = {name: draw(name, args.data) for name in SETS}
    for name, splits in drawn.items():
        print(f"{name:22}", {split: len(rows) for split, rows in splits.items()}, flush=True)
    packed = {
        name: {split: [_packed(row) for row in rows] for split, rows in its.items()} for name, its in drawn.items()
    }
    with lzma.open(args.out, "wt", encoding="utf-8", preset=6) as file:
        json.dump(packed, file, ensure_ascii=False)


if __name__ == "__main__":
    main()
