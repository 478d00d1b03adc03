"""The files and lines that the original tools write, so that scripts which read them keep working.

DeeBERT's `run_highway_glue.py`, ElasticBERT's `run_elue_*.py`, and submissions to GLUE and ELUE.
"""

from __future__ import annotations

import os
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from paredown.errors import BadInput, BadSetting
from paredown.evaluation.metrics import Metric, metric_for
from paredown.evaluation.record import Record
from paredown.evaluation.replay import replay
from paredown.exits import EntropyNats, Patience

# The benchmarks' own names of their tasks, as in the files of a submission.
GLUE = ("AX", "CoLA", "MNLI-m", "MNLI-mm", "MRPC", "QNLI", "QQP", "RTE", "SST-2", "STS-B", "WNLI")
ELUE = ("IMDb", "MRPC", "SNLI", "SST-2", "STS-B", "SciTail")

# What the original scripts sweep.
DEEBERT_THRESHOLDS = (0.0, 0.001, 0.005, 0.01, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)
ELASTICBERT_THRESHOLDS = (0.3, 0.4, 0.5)
ELASTICBERT_PATIENCES = (2, 3, 4, 5, 6, 7)
ELASTICBERT_TOLERANCE = 0.94  # of STS-B's numbers

EACH_LAYER = "each_layer.npy"
SHORT = {"accuracy": "acc", "accuracy_and_f1": "acc_and_f1", "matthews": "mcc", "spearman": "spearmanr"}
SHORT |= {"correlation": "corr"}  # the other metrics have our names there too


@dataclass(frozen=True)
class Written:
    files: list[Path]
    lines: list[str]  # what the original tool prints


@dataclass(frozen=True)
class Point:
    """Where ElasticBERT is asked to work: its word for the setting, the value as file names spell it, the rule."""

    setting: str
    at: str
    rule: Any  # None: full depth


def elastic_points(
    thresholds: Sequence[float] = (), patiences: Sequence[int] = (), tolerance: float | None = None
) -> list[Point]:
    """Entropy in nats, then patience; `tolerance` is for numbers."""
    points = [Point("Early_exit_entropy", str(float(at)), EntropyNats(float(at))) for at in thresholds]
    return points + [Point("Patience", str(at), Patience(at, tolerance) if at else None) for at in patiences]


def deebert_name(threshold: float) -> str:
    return f"entropy_{float(threshold)}.npy"


def elastic_names(task: str, point: Point, split: str) -> list[str]:
    """The file of exit layers and, of test rows, that of the predictions."""
    layers = f"{task}_{split}_exit_layer_{point.at}.tsv"
    return [layers, f"{task}_{point.at}.tsv"] if split == "infer" else [layers]


def write_deebert(
    folder: str | Path,
    record: Record,
    thresholds: Sequence[float] = DEEBERT_THRESHOLDS,
    metric: Metric | None = None,
    seconds: Sequence[float] | None = None,
) -> Written:
    """entropy_{threshold}.npy for each, and each_layer.npy, the score after every layer.

    DeeBERT pickles a list of four: rows by exit layer (a dict), seconds, share of layers run, score. We write no pickle
    but numbers: rows, seconds, share, score, then how many rows left after 1, 2, … layers. So entries 1, 2 and 3 hold
    what they held there. `seconds` are measured times, one for each threshold (NaN: not measured).
    """
    folder, metric = _made(folder), metric or metric_for(record.kind)
    depth, files, lines = record.stops[-1], [], []
    for index, threshold in enumerate(map(float, thresholds)):
        done = replay(record, EntropyNats(threshold))
        counter = dict(enumerate(done.histogram(depth), 1))
        share = sum(layer * count for layer, count in counter.items()) / (len(record) * depth)
        score, time = record.score(done.logits, metric), float("nan") if seconds is None else seconds[index]
        files.append(folder / deebert_name(threshold))
        np.save(files[-1], np.array([len(record), time, share, score, *counter.values()]), allow_pickle=False)
        # "Expected saving" is DeeBERT's word for the share of layers that run.
        lines += [f"{threshold}", f"Eval time: {time}", f"Exit layer counter {counter}"]
        lines += [f"Expected saving {share}", f"Result: {score}"]
    scores = record.scores(metric)
    each = np.array([scores.get(layer, np.nan) for layer in range(1, depth + 1)])  # NaN after a layer without a head
    files.append(folder / EACH_LAYER)
    np.save(files[-1], each, allow_pickle=False)
    return Written(files, lines)


def deebert_metric(metrics: Sequence[str]) -> str:
    """The one of a task's metrics that DeeBERT reports."""
    return next((name for name in ("spearman", "f1", "matthews", "accuracy") if name in metrics), metrics[0])


def write_elasticbert(
    folder: str | Path,
    record: Record,
    task: str,
    labels: Sequence[str],
    points: Sequence[Point],
    split: str = "eval",
    metrics: Sequence[Metric] = (),
) -> Written:
    """<task>_{split}_exit_layer_<at>.tsv for each point; of `split` "infer", the test rows, also <task>_<at>.tsv with
    predictions. Rows that have labels are scored in the lines.
    """
    folder, files, lines = _made(folder), [], []
    for name, text in _elastic_sheets(record, task, labels, points, split).items():
        files.append(folder / name)
        files[-1].write_text(text, encoding="utf-8", newline="\n")
    for point in points:
        done = replay(record, point.rule)
        for name, metric in sorted((_short(metric), metric) for metric in metrics if record.labels is not None):
            lines.append(f"  {name} = {record.score(done.logits, metric)}")
        mean = done.layers.double().mean().item()
        times = record.stops[-1] / mean
        lines.append(f"*** {point.setting} = {point.at} Avg. Inference Layers = {mean:.2f} Speed Up = {times:.2f} ***")
    return Written(files, lines)


def write_glue_submission(path: str | Path, record: Record, task: str, labels: Sequence[str], rule: Any = None) -> Path:
    """Add GLUE's `<task>.tsv` to a zip: answers to the test rows, leaving by `rule` (None: full depth).

    What the zip holds of other tasks stays; GLUE's server wants all tasks but AX in one.
    """
    name = benchmark_name(task, GLUE)
    predicted = predictions(record, replay(record, rule).logits, labels)
    if name == "STS-B":
        # The server refuses what is outside 0..5.
        predicted = [f"{min(5.0, max(0.0, float(value))):.3f}" for value in predicted]
    return _add(path, {f"{name}.tsv": _tsv("prediction", predicted)}, lambda entry: entry == f"{name}.tsv")


def write_elue_submission(
    path: str | Path, record: Record, task: str, labels: Sequence[str], points: Sequence[Point]
) -> Path:
    """Add a task's files to a zip for ELUE: for each point, answers to the test rows and the layers each ran.

    What the zip holds of other tasks stays; older files of this one go.
    """
    name = benchmark_name(task, ELUE)
    sheets = _elastic_sheets(record, name, labels, points, "infer")
    return _add(path, sheets, lambda entry: entry.startswith(f"{name}_"))


def still_missing(path: str | Path) -> list[str]:
    """Tasks that GLUE's server wants and a zip does not hold."""
    with zipfile.ZipFile(path) as archive:
        return [name for name in GLUE if name != "AX" and f"{name}.tsv" not in archive.namelist()]


def predictions(record: Record, logits: Tensor, labels: Sequence[str]) -> list[Any]:
    """One label, or one number, for each row, as submissions want them."""
    return record.kind.submitted(logits, labels)


def benchmark_name(task: str, known: Sequence[str]) -> str:
    """The benchmark's own spelling of a task."""
    wanted = task.lower().removeprefix("elue-")
    for name in known:
        if wanted in (name.lower(), name.lower().replace("-", ""), name.lower().removesuffix("-m")):
            return name
    raise BadInput(f"no task of this benchmark is called {task!r}; its tasks: {', '.join(known)}")


def _elastic_sheets(
    record: Record, task: str, labels: Sequence[str], points: Sequence[Point], split: str
) -> dict[str, str]:
    if split not in ("eval", "infer"):
        raise BadSetting(f'split must be "eval" (dev rows) or "infer" (test rows), not {split!r}')
    sheets: dict[str, str] = {}
    for point in points:
        done = replay(record, point.rule)
        texts = [_tsv("exit_layer", done.layers.tolist())]
        if split == "infer":
            texts.append(_tsv("prediction", predictions(record, done.logits, labels)))
        sheets |= zip(elastic_names(task, point, split), texts, strict=True)
    return sheets


def _short(metric: Metric) -> str:
    name = getattr(metric, "__name__", "metric")
    return SHORT.get(name, name)


def _tsv(column: str, values: Sequence[Any]) -> str:
    return "".join([f"index\t{column}\n", *[f"{index}\t{value}\n" for index, value in enumerate(values)]])


def _made(folder: str | Path) -> Path:
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _add(path: str | Path, sheets: Mapping[str, str], replaced: Callable[[str], bool]) -> Path:
    """A zip with these files and what it held before, less what they replace. The old one stays until then."""
    path = _made(Path(path).parent) / Path(path).name
    entries = {name: text.encode() for name, text in sheets.items()}
    if path.exists():
        entries |= {name: content for name, content in _held(path).items() if not replaced(name)}
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with zipfile.ZipFile(fresh, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in sorted(entries.items()):
                # A fixed date: the same predictions are the same file.
                archive.writestr(zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0)), content, zipfile.ZIP_DEFLATED)
        os.replace(fresh, path)
    finally:
        fresh.unlink(missing_ok=True)
    return path


def _held(path: Path) -> dict[str, bytes]:
    try:
        with zipfile.ZipFile(path) as archive:
            return {name: archive.read(name) for name in archive.namelist()}
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:  # the last: encrypted or packed otherwise
        raise BadInput(f"{path} is no zip to add predictions to ({error}); move it away") from None
