"""The GLUE tasks (Wang et al., 2018) in GLUE's own files: tab-separated, no quotes, one folder per task."""

from __future__ import annotations

from dataclasses import dataclass

from paredown.registry import tasks
from paredown.tasks._files import Files


@tasks.register("glue")
@dataclass(frozen=True)
class Glue(Files):
    pass


_BOTH = ("sentence1", "sentence2")
_ENTAILMENT = {"labels": ("entailment", "not_entailment")}
_NLI = {
    "labels": ("contradiction", "entailment", "neutral"),
    "text": _BOTH[:1],
    "pair": _BOTH[1],
    "label": "gold_label",
}
_PARAPHRASE = {"metrics": ("accuracy_and_f1", "accuracy", "f1"), "version": 2}
_COLA = ("source", "label", "mark", "sentence")

tasks.alias(
    "cola", "glue", folder="CoLA", text=("sentence",), metrics=("matthews",), columns=_COLA, headless=("train", "dev")
)
tasks.alias("sst-2", "glue", folder="SST-2", text=("sentence",))
tasks.alias("mrpc", "glue", folder="MRPC", text=("#1 String",), pair="#2 String", label="Quality", **_PARAPHRASE)
tasks.alias("qqp", "glue", folder="QQP", text=("question1",), pair="question2", label="is_duplicate", **_PARAPHRASE)
tasks.alias(
    "sts-b",
    "glue",
    folder="STS-B",
    text=_BOTH[:1],
    pair=_BOTH[1],
    label="score",
    labels=("score",),
    kind="regression",
    limits=(0.0, 5.0),
    metrics=("correlation", "pearson", "spearman"),
)
tasks.alias("mnli", "glue", folder="MNLI", dev="dev_matched", test="test_matched", **_NLI)
tasks.alias("mnli-mm", "glue", folder="MNLI", dev="dev_mismatched", test="test_mismatched", **_NLI)
tasks.alias("qnli", "glue", folder="QNLI", text=("question",), pair="sentence", **_ENTAILMENT)
tasks.alias("rte", "glue", folder="RTE", text=_BOTH[:1], pair=_BOTH[1], **_ENTAILMENT)
tasks.alias("wnli", "glue", folder="WNLI", text=_BOTH[:1], pair=_BOTH[1])
# The diagnostic set has a test split only and is scored by Matthews' correlation; a model of mnli answers it.
tasks.alias("ax", "glue", folder="diagnostic|GLUE_diagnostic", test="diagnostic", metrics=("matthews",), **_NLI)
