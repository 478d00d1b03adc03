"""The ELUE tasks (Liu et al., 2022, ElasticBERT): tab-separated with a header, some with BOM or CRLF.

ELUE's SST-2 has full sentences only and is not GLUE's. `test_full` is the labelled test set that HashEE published.
"""

from __future__ import annotations

from dataclasses import dataclass

from paredown.registry import tasks
from paredown.tasks._files import Files


@tasks.register("elue")
@dataclass(frozen=True)
class Elue(Files):
    extra: tuple[str, ...] = ("test_full",)


_PAIR = {"text": ("premise|sentence1",), "pair": "hypothesis|sentence2", "label": "label|gold_label"}

tasks.alias("elue-sst-2", "elue", folder="SST-2", text=("sentence",))
tasks.alias("elue-imdb", "elue", folder="IMDb", text=("sentence",))
tasks.alias(
    "elue-mrpc",
    "elue",
    folder="MRPC",
    text=("#1 String",),
    pair="#2 String",
    label="Quality",
    metrics=("accuracy_and_f1", "accuracy", "f1"),
)
tasks.alias(
    "elue-sts-b",
    "elue",
    folder="STS-B",
    text=("sentence1",),
    pair="sentence2",
    label="label|score",
    labels=("score",),
    kind="regression",
    limits=(0.0, 5.0),
    metrics=("correlation", "pearson", "spearman"),
)
_SNLI = {"labels": ("entailment", "neutral", "contradiction"), "spelled": ("0", "1", "2")}
tasks.alias("elue-snli", "elue", folder="SNLI", **_PAIR, **_SNLI)
tasks.alias("elue-scitail", "elue", folder="SciTail", **_PAIR, labels=("neutral", "entails"), spelled=("0", "1"))
