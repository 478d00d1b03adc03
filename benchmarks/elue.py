"""ELUE with one encoder: the curve of its first layers alone, and how far exits lie above that curve.

    python -m benchmarks.elue --weights gte-small --raw data --data elue --jobs 16

`--weights` is a Hugging Face folder. `--data` holds ELUE's files, as `paredown elue` reads them; `--raw`, a folder with
the original files of the six data sets, makes it first. Every run is a process of its own. Weights are chosen on dev,
scores are of test rows that nothing was chosen on.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.commands import repeatable_command, run_all
from paredown.system.machine import machine

DEPTHS = (1, 2, 3, 4, 6, 8, 10, 12)
RULES = ("entropy_nats", "patience")
MAX_LENGTH = 256  # only IMDb has rows that are longer
TOGETHER = "joint:{size},{tuning},head=attention,equilibrium=True,distill=1.0,rule=none"
EXITS = "exits"  # the label of a run with exits; the others are called by their depth


@dataclass(frozen=True)
class Setting:
    """How a task is trained, with exits and without, and which rows it has."""

    size: str
    tuning: str
    rows: str


# Batches are large for a GPU's sake and no setting was tuned on these tasks.
SETTINGS = {
    "SST-2": Setting(
        "batch_size=128",
        "lr=7e-5,epochs=2",
        "GLUE's SST-2, for ELUE's full sentences are not at hand: 20,000 of its train rows, 2,000 others as dev, and "
        "its dev as test, because its test has no public labels",
    ),
    "IMDb": Setting(
        "batch_size=64", "lr=5e-5,epochs=2", "10,000 train rows, 2,500 others as dev, 5,000 of the 25,000 test rows"
    ),
    "SNLI": Setting(
        "batch_size=128",
        "lr=7e-5,epochs=3",
        "20,000 of the first 100,000 train rows, 3,000 others with other premises as dev, all of test",
    ),
    "SciTail": Setting(
        "batch_size=64",
        "lr=5e-5,epochs=3",
        "9,321 of the 23,596 train rows; dev and test whole, with spaces around punctuation and without final stops",
    ),
    "MRPC": Setting("batch_size=64", "lr=7e-5,epochs=6", "all, with the labels of the original test file"),
    "STS-B": Setting("batch_size=64", "lr=7e-5,epochs=5", "all, with the scores of the original test file"),
}


# The files


def prepare(raw: Path, folder: Path) -> None:
    """Lay the six data sets out as ELUE does; the same rows every time."""
    source = random.Random(0)

    def drawn(rows: list, *numbers: int) -> list[list]:
        mixed = source.sample(rows, len(rows))
        starts = [sum(numbers[:index]) for index in range(len(numbers))]
        return [mixed[start : start + number] for start, number in zip(starts, numbers)]

    train, dev = drawn(cells(raw / "SST-2/train.tsv", 0, 1), 20_000, 2_000)
    write(folder / "SST-2", ("sentence", "label"), train, dev, cells(raw / "SST-2/dev.tsv", 0, 1))

    train, dev = drawn(cells(raw / "IMDb/train.tsv", 0, 1), 10_000, 2_500)
    (test,) = drawn(cells(raw / "IMDb/test.tsv", 0, 1), 5_000)
    write(folder / "IMDb", ("sentence", "label"), train, dev, test)

    names = {"entailment": "0", "neutral": "1", "contradiction": "2"}
    files = [raw / f"SNLI/{part}.tsv" for part in ("train", "test")]
    train, test = ([(*row[:2], names[row[2]]) for row in cells(file, 0, 1, 2)] for file in files)
    dev = train[-3_000:]
    held = {premise for premise, *_ in dev}
    (train,) = drawn([row for row in train if row[0] not in held], 20_000)
    write(folder / "SNLI", ("premise", "hypothesis", "label"), train, dev, test)

    files = [raw / f"SciTail/{part}.tsv" for part in ("train_partial", "dev", "test")]
    entails = [[(*row[:2], int(row[2] == "entails")) for row in cells(file, 0, 1, 2, header=0)] for file in files]
    write(folder / "SciTail", ("premise", "hypothesis", "label"), *entails)

    header = ("Quality", "#1 ID", "#2 ID", "#1 String", "#2 String")
    files = [raw / f"MRPC/{name}" for name in ("train.tsv", "dev.tsv", "msr_paraphrase_test.txt")]
    write(folder / "MRPC", header, *[cells(file, 0, 1, 2, 3, 4) for file in files])

    known = [cells(raw / f"STS-B/{part}.tsv", 7, 8, 9) for part in ("train", "dev")]
    test = cells(raw / "STS-B/original/sts-test.tsv", 5, 6, 4, header=0)
    write(folder / "STS-B", ("sentence1", "sentence2", "label"), *known, test)


def cells(path: Path, *columns: int, header: int = 1) -> list[tuple[str, ...]]:
    """Chosen columns of a tab-separated file."""
    with open(path, encoding="utf-8-sig", newline="\n") as file:
        rows = [line.rstrip("\r\n").split("\t") for line in file]
    return [tuple(row[column] for column in columns) for row in rows[header:]]


def write(folder: Path, header: tuple[str, ...], train: list, dev: list, test: list) -> None:
    """train, dev, test without labels, and test_full with them."""
    label = next(position for position, name in enumerate(header) if name in ("label", "Quality"))
    asked = [(number, *row[:label], *row[label + 1 :]) for number, row in enumerate(test)]
    open_header = ("index", *header[:label], *header[label + 1 :])
    folder.mkdir(parents=True, exist_ok=True)
    for split, names, rows in (
        ("train", header, train),
        ("dev", header, dev),
        ("test", open_header, asked),
        ("test_full", header, test),
    ):
        text = "".join("\t".join(map(str, row)) + "\n" for row in [names, *rows])
        (folder / f"{split}.tsv").write_text(text, encoding="utf-8", newline="\n")


# One run


def run_one(job: dict, weights: Path, data: Path, precision: str, limit: int | None) -> dict:
    """Train once and measure all points of it."""
    import torch

    from paredown import AdaptiveModel, Plan
    from paredown.evaluation import Cost, metric_named, record
    from paredown.evaluation.elue import STATIC, TASKS, dynamic_points, static_point
    from paredown.registry import exits, tasks
    from paredown.training import train

    name = TASKS[job["task"]]
    task, metric = tasks.make(name), metric_named(tasks.make(name).metric)
    rows = {split: task.read(data, split).rows[:limit] for split in ("train", "dev", "test_full")}
    torch.manual_seed(job["seed"])
    model = AdaptiveModel.from_pretrained(weights, task=name).to("cuda" if torch.cuda.is_available() else "cpu")
    if job["depth"]:
        model.plan = Plan(depth=tuple(range(job["depth"])))
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        train(
            model,
            job["method"],
            rows["train"],
            rows["dev"],
            output=folder,
            seed=job["seed"],
            metric=metric,
            max_length=MAX_LENGTH,
            precision=precision,
            checkpoint_every=10**9,  # a benchmark run is repeated, not resumed
            progress=False,
        )
    seconds = time.perf_counter() - start
    encoded = model.encode(rows["test_full"], MAX_LENGTH)
    seen, cost = record(model, encoded, batch_size=128), Cost.of(model)
    if job["depth"]:
        points, notes = {STATIC: [static_point(seen, metric, cost)]}, []
    else:
        points, notes = dynamic_points(seen, [exits.make(rule) for rule in RULES], metric, cost)
    facts = {"metric": task.metric, "rows": {split: len(its) for split, its in rows.items()}, "notes": notes}
    facts |= {"tokens": round(seen.lengths.double().mean().item(), 2), "device": machine()["device"]}
    return {**job, **facts, "seconds": round(seconds, 1), "per_layer": seen.scores(metric), "points": points}


def wanted(names: list[str], depths: list[int], seeds: list[int]) -> list[dict]:
    """All runs, the longest first, so that no device waits for the last."""
    found: list[dict[str, Any]] = []
    for depth in [None, *sorted(depths, reverse=True)]:
        for name in names:
            given = {"size": SETTINGS[name].size, "tuning": SETTINGS[name].tuning}
            # Rules are tried afterwards; none is needed to begin with.
            method = "finetune:{size},{tuning}" if depth else TOGETHER
            job = {"task": name, "label": f"{depth} layers" if depth else EXITS, "depth": depth}
            found += [{**job, "method": method.format(**given), "seed": seed} for seed in seeds]
    return found


# All together


def curves(runs: list[dict], encoder: str) -> dict[str, Any]:
    """By use, the mean over seeds at every setting."""
    from paredown.evaluation.elue import TASKS, Curve, Line

    lines: dict[str, dict[str, Line]] = {}
    for name in TASKS:
        members = [run for run in runs if run["task"] == name]
        found: dict[str, dict[Any, list[dict]]] = {}
        for run in members:
            for use, points in run["points"].items():
                for at in points:
                    found.setdefault(use, {}).setdefault((at.get("layers_kept"), at["rule"]), []).append(at)
        for use, settings in found.items():
            points = sorted((mean(its) for its in settings.values()), key=lambda at: at["flops"])
            facts = (members[0]["metric"], "test_full", members[0]["rows"]["test_full"], MAX_LENGTH)
            lines.setdefault(use, {})[name] = Line(points, *facts)
    return {use: Curve(encoder, its) for use, its in lines.items()}


def mean(points: list[dict]) -> dict:
    """One point from those of several seeds."""
    digits = {"flops": 0, "token_layers": 1}
    return {
        key: round(statistics.mean(at[key] for at in points), digits.get(key, 5)) if isinstance(value, float) else value
        for key, value in points[0].items()
    }


def report(runs: list[dict], args: argparse.Namespace) -> dict:
    from paredown.evaluation.elue import STATIC, Curve, Standing

    found = curves(runs, args.weights.name)
    alone = found.pop(STATIC, Curve(args.weights.name, {}))
    ready = {name: line for name, line in alone.tasks.items() if len(line.points) > 1}
    uses = {use: {name: line for name, line in its.tasks.items() if name in ready} for use, its in found.items()}
    standing = Standing.of(
        {use: Curve(args.weights.name, its) for use, its in uses.items() if its}, Curve(args.weights.name, ready)
    )
    notes = {f"{run['task']}: {note}" for run in runs for note in run["notes"]}
    return {
        "command": repeatable_command("-m benchmarks.elue"),
        "encoder": args.weights.name,
        **machine(),
        "precision": args.precision,
        "seeds": args.seeds,
        "limit": args.limit,
        "rows": {name: {**run["rows"], "which": SETTINGS[name].rows} for run in runs for name in [run["task"]]},
        **standing.to_json(),
        "notes": [*sorted(notes), *standing.notes],
        "runs": runs,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--raw", type=Path)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"), help="its runs are kept")
    parser.add_argument("--baseline", type=Path, help="where the curve goes; default: where `paredown elue` looks")
    parser.add_argument("--tasks", nargs="*", default=list(SETTINGS))
    parser.add_argument("--depths", type=int, nargs="*", default=DEPTHS)
    parser.add_argument("--seeds", type=int, nargs="*", default=[1])
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--limit", type=int, help="rows of every file, to try it out; no baseline is written")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.job:
        result = run_one(json.loads(args.job), args.weights, args.data, args.precision, args.limit)
        args.out.write_text(json.dumps(result))
        return
    if args.raw:
        prepare(args.raw, args.data)
    command = ["-m", "benchmarks.elue", "--weights", str(args.weights), "--data", str(args.data)]
    command += ["--precision", args.precision] + (["--limit", str(args.limit)] if args.limit else [])
    jobs = wanted(args.tasks, args.depths, args.seeds)
    runs = json.loads(args.out.read_text())["runs"] if args.out.is_file() else []
    runs = [run for run in runs if any(job.items() <= run.items() for job in jobs)]
    missing = [job for job in jobs if not any(job.items() <= run.items() for run in runs)]
    for run in run_all(missing, command, args.jobs):
        runs.append(run)
        args.out.write_text(json.dumps(report(runs, args), indent=1) + "\n")  # after each, so that none is lost
    if not args.limit and len(runs) == len(jobs):
        from paredown.evaluation.elue import BASELINE, STATIC

        curves(runs, args.weights.name)[STATIC].save(args.baseline or BASELINE)
    for use, score in report(runs, args)["scores"].items():
        print(use, {name: round(100 * gain, 2) for name, gain in score["tasks"].items()}, "average", score["average"])


if __name__ == "__main__":
    main()
