"""FastBERT's own benchmark: test accuracy and FLOPs at the paper's speeds, beside what the paper says.

    python -m benchmarks.fastbert_paper --weights-zh bert-base-zh --weights-en gte-small --data data --seeds 1 2

Weights are Hugging Face folders; `--data` holds Book_review_douban, IMDb and AG_News in their own files. Every run is a
process of its own. Nothing is chosen on test: weights and the thresholds that reach a given speed-up are chosen on dev.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.early_exit import fit, repeatable_command, run_all
from paredown.system.machine import machine

FINEST = 10**6  # steps of the thresholds among which the one that reaches a speed-up is sought
CURVE = [(index / 40) ** 3 for index in range(41)]  # thresholds, dense at the cautious end
SPEEDS = (0.1, 0.5, 0.8)


@dataclass(frozen=True)
class DataSet:
    language: str  # whose weights
    max_length: int
    # Heads, loss and rule are FastBERT's. Its batch of 32 at 2e-5 would leave a GPU idle: both are larger here.
    method: str
    held_out: int = 0  # rows of train that serve as dev where there is no dev file


SETS = {
    "book-review": DataSet("zh", 128, "fastbert:batch_size=64,lr=3e-5,epochs=3,exit_epochs=3,exit_lr=3e-4"),
    "imdb": DataSet("en", 256, "fastbert:batch_size=64,lr=5e-5,epochs=3,exit_epochs=2,exit_lr=5e-4", 2500),
    "ag_news": DataSet("en", 128, "fastbert:batch_size=128,lr=7e-5,epochs=3,exit_epochs=3,exit_lr=5e-4", 1500),
}
# Of AG News' 120,000 training rows a part is used, in a file of its own with title and description in one column.
PART = {"extra": ("train_partial",), "headless": ("train_partial",), "columns": ("label", "text", "source")}

# Test accuracy in percent, FLOPs speed-up and mean layers (their FLOPs / those of a layer with its head), by speed, of
# BERT-base trained on all rows, as the paper and its repository print them. IMDb is not in the paper; of AG News only
# what the repository repeats is taken.
PAPER: dict[str, dict[str, dict[str, float]]] = {
    "book-review": {
        "full": {"score": 86.88, "speedup": 1.0, "layers": 12},
        "0.1": {"score": 86.88, "speedup": 1.60, "layers": 7.34},
        "0.5": {"score": 86.64, "speedup": 4.21, "layers": 2.79},
        "0.8": {"score": 85.14, "speedup": 7.23, "layers": 1.62},
    },
    "imdb": {},
    "ag_news": {
        "full": {"score": 94.47, "speedup": 1.0, "layers": 12},
        "0.5": {"score": 93.14, "speedup": 10.33, "layers": 1.14},
    },
}
TARGETS = sorted({point["speedup"] for speeds in PAPER.values() for at, point in speeds.items() if at != "full"})


def read(name: str, data: Path, limit: int | None) -> tuple[list, list, list]:
    """Train, dev and test rows; held-out and limited rows are drawn by a fixed seed, the same for every run."""
    from paredown.registry import tasks

    task = tasks.make(name)
    if name == "ag_news":
        train = tasks.make(name, text=("text",), **PART).read(data, "train_partial").rows
    else:
        train = task.read(data, "train").rows
    test = task.read(data, "test").rows
    if held_out := SETS[name].held_out:
        random.Random(0).shuffle(train)
        dev, train = train[:held_out], train[held_out:]
    else:
        dev = task.read(data, "dev").rows
    train, dev, test = (
        rows if limit is None else random.Random(0).sample(rows, min(limit, len(rows))) for rows in (train, dev, test)
    )
    return train, dev, test


def run_one(job: dict, weights: Path, data: Path, precision: str, limit: int | None) -> dict:
    """Train once, record dev and test, and replay."""
    from paredown.evaluation import Bill, Cost, metric_named, record
    from paredown.registry import exits

    chosen = SETS[job["task"]]
    train_rows, dev_rows, test_rows = read(job["task"], data, limit)
    model, seconds = fit(job, weights, train_rows, dev_rows, precision, chosen.max_length)

    def recorded(rows: list) -> Any:
        coded = model.encode(rows, chosen.max_length)
        return record(model, coded, batch_size=256)

    dev, test, metric = recorded(dev_rows), recorded(test_rows), metric_named("accuracy")
    paper = Cost.of_paper("fastbert", model.config, padded_to=chosen.max_length)
    bills = {"paper": Bill(test, paper), "own": Bill(test, Cost.of(model))}

    def entropy(threshold: float) -> Any:
        return exits.make("entropy", threshold=threshold)

    matched = {}
    for target in TARGETS:
        threshold = threshold_for(target, Bill(dev, paper), entropy)
        matched[f"{target:g}x"] = None if threshold is None else measure(test, entropy(threshold), bills, metric)
    return {
        **job,
        "seconds": seconds,
        "max_length": chosen.max_length,
        "rows": {"train": len(train_rows), "dev": len(dev_rows), "test": len(test_rows)},
        "train_labels": Counter(row.label for row in train_rows),
        "mean_tokens": test.lengths.double().mean().item(),
        "per_layer": test.scores(metric),
        "speeds": {
            "full": measure(test, None, bills, metric),
            **{f"{speed:g}": measure(test, entropy(speed), bills, metric) for speed in SPEEDS},
        },
        "matched": matched,
        "curve": [measure(test, entropy(threshold), bills, metric, exits=False) for threshold in CURVE],
    }


def threshold_for(target: float, bill: Any, rule_at: Any) -> float | None:
    """The most cautious threshold at which these rows cost `target` times fewer FLOPs; None if none is fast enough."""
    from paredown.evaluation import replay

    def reached(step: int) -> bool:
        done = replay(bill.record, rule_at(step / FINEST))
        return bill.mean(done.layers)["flops_speedup"] >= target

    step = bisect_left(range(FINEST + 1), True, key=reached)
    return step / FINEST if step <= FINEST else None


def measure(record: Any, rule: Any, bills: dict, metric: Any, exits: bool = True) -> dict:
    """Accuracy, mean layers and FLOPs speed-ups of one rule; `exits`: also how many rows leave after each layer."""
    from paredown.evaluation import replay

    done = replay(record, rule)
    found = {name: bill.mean(done.layers, rule is not None) for name, bill in bills.items()}
    point = {
        "threshold": None if rule is None else rule.threshold,
        "score": record.score(done.logits, metric),
        "layers": found["own"]["layers"],
        **{f"{name}_speedup": mean["flops_speedup"] for name, mean in found.items()},
    }
    point = {key: round(value, 6) if isinstance(value, float) else value for key, value in point.items()}
    return point | {"exits": done.histogram(record.stops[-1])} if exits else point


def summarise(runs: list[dict]) -> dict[str, dict]:
    """For each set, means over seeds; a speed-up that a seed cannot reach is None."""
    found = {}
    for name in dict.fromkeys(run["task"] for run in runs):
        members = [run for run in runs if run["task"] == name]
        first = members[0]
        found[name] = {
            "seeds": len(members),
            "per_layer": {k: statistics.mean(run["per_layer"][k] for run in members) for k in first["per_layer"]},
            **{
                table: {at: mean_point([run[table][at] for run in members]) for at in first[table]}
                for table in ("speeds", "matched")
            },
            "curve": [mean_point(list(points)) for points in zip(*(run["curve"] for run in members))],
        }
    return found


def mean_point(points: list[dict | None]) -> dict | None:
    """The mean of every number; exits as shares of the rows. Thresholds that differ from seed to seed are left out."""
    known = [point for point in points if point is not None]
    if len(known) < len(points):
        return None
    mean: dict[str, Any] = {
        key: statistics.mean(point[key] for point in known)
        for key in ("score", "layers", "paper_speedup", "own_speedup")
    }
    if "exits" in known[0]:
        total = sum(sum(point["exits"]) for point in known)
        mean["exits"] = [sum(counts) / total for counts in zip(*(point["exits"] for point in known))]
    if len({point["threshold"] for point in known}) == 1:
        mean["threshold"] = known[0]["threshold"]
    return mean


def report(runs: list[dict], args: argparse.Namespace, weights: dict[str, Path]) -> dict:
    return {
        "command": repeatable_command("-m benchmarks.fastbert_paper"),
        "encoders": {name: weights[SETS[name].language].name for name in args.sets},
        **machine(),
        "precision": args.precision,
        "score": "test accuracy; weights and matched thresholds chosen on dev",
        "paper_count": "linear maps alone, every row as long as the maximum; own count: all products, true lengths",
        "ag_news_train": "train_partial.csv, 28,073 of 120,000 rows, about as many of each class; some without title",
        "paper": PAPER,
        "summary": summarise(runs),
        "runs": runs,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights-zh", type=Path)
    parser.add_argument("--weights-en", type=Path)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"))
    parser.add_argument("--sets", nargs="*", default=list(SETS), help=f"of {', '.join(SETS)}")
    parser.add_argument("--seeds", type=int, nargs="*", default=[1])
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--limit", type=int, help="rows of each split, for a try")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.sets = [name.replace("ag-news", "ag_news") for name in args.sets]
    if unknown := set(args.sets) - set(SETS):
        parser.error(f"no set is called {', '.join(sorted(unknown))}; known: {', '.join(SETS)}")
    weights = {"zh": args.weights_zh, "en": args.weights_en}
    if args.job:
        job = json.loads(args.job)
        result = run_one(job, weights[SETS[job["task"]].language], args.data, args.precision, args.limit)
        args.out.write_text(json.dumps(result))
        return
    if missing := {language for name in args.sets if weights[language := SETS[name].language] is None}:
        parser.error(f"these sets need {', '.join(f'--weights-{language}' for language in sorted(missing))}")
    jobs = [
        {"task": name, "label": "fastbert", "methods": [SETS[name].method], "seed": seed}
        for name in args.sets
        for seed in args.seeds
    ]
    command = ["-m", "benchmarks.fastbert_paper", "--data", str(args.data), "--precision", args.precision]
    for language, folder in weights.items():
        command += [f"--weights-{language}", str(folder)] if folder else []
    command += ["--limit", str(args.limit)] if args.limit else []
    runs: list[dict] = []
    for run in run_all(jobs, command, args.jobs):
        runs.append(run)
        args.out.write_text(json.dumps(report(runs, args, weights), indent=1) + "\n")  # after each, so none is lost
    for name, row in summarise(runs).items():
        for at, point in {**row["speeds"], **row["matched"]}.items():
            if point:
                print(f"{name:11} {at:>6}: {100 * point['score']:.2f} at {point['paper_speedup']:.2f}x")


if __name__ == "__main__":
    main()
