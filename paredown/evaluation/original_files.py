"""The files and lines that the original tools write, so that scripts which read them keep working.

DeeBERT's `run_highway_glue.py`, ElasticBERT's `run_elue_*.py`, and submissions to GLUE and ELUE.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from paredown.errors import BadInput, BadSetting
from paredown.evaluation.metrics import Metric, metric_for
from paredown.evaluation.record import Record
from paredown.evaluation.replay import Replay, replay
from paredown.exits import EntropyNats, Patience

# GLUE's names of the files in a submission.
GLUE = ("AX", "CoLA", "MNLI-m", "MNLI-mm", "MRPC", "QNLI", "QQP", "RTE", "SST-2", "STS-B", "WNLI")
ELUE = ("IMDb", "MRPC", "SNLI", "SST-2", "STS-B", "SciTail")


def write_deebert(
    folder: str | Path,
    record: Record,
    thresholds: Sequence[float],
    metric: Metric | None = None,
    seconds: Sequence[float | None] | None = None,
) -> list[str]:
    """entropy_{threshold}.json for each, and each_layer.npy; returns the lines DeeBERT prints.

    The originals' entropy_{threshold}.npy is a pickled list, and we write no pickle: the JSON file has the same four
    values. `seconds` are measured times of evaluation, one for each threshold.
    """
    folder, metric = _made(folder), metric or metric_for(record.kind)
    depth, lines = record.stops[-1], []
    for place, threshold in enumerate(thresholds):
        done = replay(record, EntropyNats(float(threshold)))
        counter = dict(enumerate(done.histogram(depth), 1))
        fraction = sum(layer * count for layer, count in counter.items()) / (len(record) * depth)
        score, time = record.score(done.logits, metric), None if seconds is None else seconds[place]
        _write_json(folder / f"entropy_{float(threshold)}.json", [counter, time, fraction, score])
        lines.append(f"{float(threshold)}")
        lines += [] if time is None else [f"Eval time: {time}"]
        # "Expected saving" is DeeBERT's word for the share of layers that run.
        lines += [f"Exit layer counter {counter}", f"Expected saving {fraction}", f"Result: {score}"]
    scores = record.scores(metric)
    each = np.array([scores.get(layer, np.nan) for layer in range(1, depth + 1)])  # NaN after a layer without a head
    np.save(folder / "each_layer.npy", each, allow_pickle=False)
    return lines


def write_elasticbert(
    folder: str | Path,
    record: Record,
    task: str,
    labels: Sequence[str],
    thresholds: Sequence[float] = (),
    patiences: Sequence[int] = (),
    split: str = "eval",
    metric: Metric | None = None,
    tolerance: float | None = None,
) -> list[str]:
    """<task>_{split}_exit_layer_<threshold>.tsv for each threshold of entropy in nats and each patience; of `split`
    "infer", the test rows, also <task>_<threshold>.tsv with predictions. Returns the lines ElasticBERT prints.
    """
    if split not in ("eval", "infer"):
        raise BadSetting(f'split must be "eval" (dev rows) or "infer" (test rows), not {split!r}')
    folder, measure, lines = _made(folder), metric or metric_for(record.kind), []
    rules: list[tuple[str, Any, Any]] = [("Early_exit_entropy", at, EntropyNats(float(at))) for at in thresholds]
    rules += [("Patience", at, Patience(int(at), tolerance) if at else None) for at in patiences]  # 0: full depth
    for name, threshold, rule in rules:
        done = replay(record, rule)
        _write_tsv(folder / f"{task}_{split}_exit_layer_{threshold}.tsv", "exit_layer", done.layers.tolist())
        if split == "infer":
            said = predictions(record, done.logits, labels)
            _write_tsv(folder / f"{task}_{threshold}.tsv", "prediction", said)
        if record.labels is not None:
            score = record.score(done.logits, measure)
            lines.append(f"  {getattr(measure, '__name__', 'metric')} = {score}")
        mean = done.layers.double().mean().item()
        speed_up = record.stops[-1] / mean
        lines.append(f"*** {name} = {threshold} Avg. Inference Layers = {mean:.2f} Speed Up = {speed_up:.2f} ***")
    return lines


def write_glue_submission(path: str | Path, predicted: Mapping[str, Sequence[Any]]) -> Path:
    """A zip of GLUE's `<task>.tsv` files; `predicted` holds each task's test predictions, in the order of its rows.

    GLUE's server wants all tasks but AX in one zip; those that are missing are left for you to add.
    """
    sheets = {}
    for task, said in predicted.items():
        name = _named(task, GLUE)
        if name == "STS-B":
            said = [f"{min(5.0, max(0.0, float(value))):.3f}" for value in said]  # outside 0..5 the server refuses
        sheets[f"{name}.tsv"] = _tsv("prediction", said)
    return _zip(path, sheets)


def write_elue_submission(
    path: str | Path, predicted: Mapping[str, Mapping[Any, tuple[Sequence[Any], Tensor]]]
) -> Path:
    """A zip of ELUE's files: of each task, for each threshold, test predictions and the layers run for each row.

    `predicted["SST-2"][0.3] = (predictions, layers)`.
    """
    sheets = {}
    for task, points in predicted.items():
        name = _named(task, ELUE)
        for threshold, (said, layers) in points.items():
            sheets[f"{name}_{threshold}.tsv"] = _tsv("prediction", said)
            sheets[f"{name}_infer_exit_layer_{threshold}.tsv"] = _tsv("exit_layer", layers.tolist())
    return _zip(path, sheets)


def predictions(record: Record, answers: Tensor | Replay, labels: Sequence[str]) -> list[Any]:
    """One label, or one number, for each row, as submissions want them."""
    logits = answers.logits if isinstance(answers, Replay) else answers
    predicted = record.kind.predicted(logits)
    if record.kind.name == "regression" and predicted.shape[1] == 1:
        return predicted.squeeze(1).tolist()
    if record.kind.name == "single_label":
        return [labels[place] for place in predicted.squeeze(1).tolist()]
    raise BadInput(f"these files hold one answer for each row; {record.kind.name} has several")


def _named(task: str, known: Sequence[str]) -> str:
    """The benchmark's own spelling of a task."""
    for name in known:
        if task.lower() in (name.lower(), name.lower().replace("-", "")):
            return name
    raise BadInput(f"no task of this benchmark is called {task!r}; its tasks: {', '.join(known)}")


def _tsv(column: str, values: Sequence[Any]) -> str:
    return "".join([f"index\t{column}\n", *[f"{place}\t{value}\n" for place, value in enumerate(values)]])


def _write_tsv(path: Path, column: str, values: Sequence[Any]) -> None:
    path.write_text(_tsv(column, values), encoding="utf-8", newline="\n")


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value) + "\n", encoding="utf-8")


def _made(folder: str | Path) -> Path:
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _zip(path: str | Path, sheets: Mapping[str, str]) -> Path:
    if not sheets:
        raise BadInput("a submission needs predictions of at least one task")
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in sorted(sheets.items()):
            # A fixed date: the same predictions are the same file.
            archive.writestr(zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0)), text, zipfile.ZIP_DEFLATED)
    return path
