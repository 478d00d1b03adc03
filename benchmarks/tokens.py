"""Fewer tokens, measured: TR-BERT's policy, gates, and attention with and without training; alone, and with exits.

    python -m benchmarks.tokens --weights gte-small --data data --kept kept --jobs 12

`--weights` is a Hugging Face folder; `--data` holds IMDb, 20news and SQuAD_v1.1 in their own files. First every task is
learned with all tokens; all else starts from there. Every run is a process of its own; its model stays in `--kept`,
where the same command with `--time` finds it to measure its speed. Rows for dev are held out of train; nothing is
chosen on test, of which every point is given beside that of dev.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.early_exit import repeatable_command, run_all
from paredown.system.machine import machine

TIMED = {1: 32, 128: 256}  # rows at once: rows in all
PLAIN, EXITS = "all tokens", "exits"


@dataclass(frozen=True)
class Setting:
    """How a task is learned; batches are large for a GPU's sake."""

    batch_size: int
    lr: float
    epochs: float  # with all tokens
    gate_epochs: float
    policy_epochs: tuple[float, float]  # selectors alone, then all together
    speedups: tuple[float, ...]  # fewer token-layers, of the methods that have a target
    attention: tuple[float, float]  # thresholds under which the model is trained further
    max_length: int = 512
    held_out: int = 1500  # rows of train that serve as dev
    speeds: int = 40  # of the exit rule that are tried


SETTINGS = {
    "imdb": Setting(64, 7e-5, 2, 3, (0.5, 3), (2.25, 3.5), (0.8, 1.0), held_out=2500),
    "20news": Setting(64, 1.4e-4, 5, 5, (1, 4), (3.9, 5.0), (0.8, 1.0)),
    "squad": Setting(32, 1e-4, 3, 3, (1, 2), (1.5,), (0.3, 0.5), max_length=384, speeds=6),
}
UNTRAINED = [
    *(f"attention:{threshold}" for threshold in (0.3, 0.6)),
    *(f"fixed_share:share={share},score=attention" for share in (0.8, 0.6, 0.45)),
]
LEARNED = ["selector:0.5", "selector:0.4", "selector:0.3", "fixed_share:0.5"]
EARLY = "(0,1,6)"  # layers that an early policy chooses before; all others choose before the second and the middle


def wanted(task: str, rate: float) -> list[dict]:
    """The runs of a task: label, the run they start from, methods, the reducer they train under, plans to measure."""
    its = SETTINGS[task]
    size, lr = f"batch_size={its.batch_size}", f"{its.lr * rate:g}"
    tune = f"finetune:{size},lr={lr},epochs={{}}"
    gate = f"token_gate:{size},epochs=0,gate_epochs={its.gate_epochs},gate_lr={lr},target_speedup={{}}"
    alone, joint = its.policy_epochs
    policy = f"token_policy:{size},epochs=0,policy_epochs={alone},joint_epochs={joint},joint_lr={lr},samples=4"
    policy += ",selector_lr=4e-3,target_speedup={}"
    heads = [  # what was best in benchmarks.early_exit: exits alone, then a little of all together
        f"self_distill:{size},epochs=0,teacher=stock,exit_epochs=1,exit_lr=5e-4",
        f"joint:{size},epochs=1,lr={0.4 * its.lr * rate:g},head=attention,equilibrium=True,distill=1.0,rule=none",
    ]
    found: list[tuple[str, str | None, str | list[str], str | None, list[str]]] = [
        (PLAIN, None, tune.format(its.epochs), None, ["none", *UNTRAINED]),
        (EXITS, PLAIN, heads, None, ["none"]),
    ]
    early = f"{policy},select_before={EARLY},start=0.85"  # three choices: each begins by keeping more
    for name, method in (("policy", policy), ("early policy", early), ("gate", gate)):
        for speedup in its.speedups:
            label, aimed = f"{name} {speedup:g}x", method.format(speedup)
            plans = LEARNED[:-1] if name == "early policy" else LEARNED  # three times a half would be too few
            found.append((label, PLAIN, aimed, None, plans))
            found.append((f"{label}, then exits", label, heads, LEARNED[0], LEARNED[:2]))
            found.append((f"exits, then {label}", EXITS, aimed, None, LEARNED[:2]))
    for threshold in its.attention:
        reducer = f"attention:{threshold}"
        found.append((f"trained with {reducer}", PLAIN, tune.format(its.epochs), reducer, [reducer]))
    names = ("label", "start", "methods", "reduce", "plans")
    return [{"task": task, **dict(zip(names, run))} for run in found]


# One run


@dataclass(frozen=True)
class Rows:
    """Rows of one split as the model reads them, and how answers to them are scored."""

    encoded: list[Any]
    score: Callable[[Any, Any], dict[str, float]]  # (record, logits) -> figures, `score` among them


def read(task: str, data: Path, model: Any, limit: int | None) -> tuple[Any, Any, Rows, Rows]:
    """Train and dev rows as they are, dev and test as they are scored; held-out rows are the same in every run."""
    from paredown.registry import tasks

    its = SETTINGS[task]
    if task == "squad":
        source = tasks.make(task, train="train-v1.1-subset")
        train, test = source.read(data, "train").rows, source.read(data, "dev").rows
        titles = sorted({row.context for row in train})  # no paragraph stands on both sides
        random.Random(0).shuffle(titles)
        order = {title: number for number, title in enumerate(titles)}
        train.sort(key=lambda row: order[row.context])
    else:
        source = tasks.make(task)
        train, test = source.read(data, "train").rows, source.read(data, "test").rows
        random.Random(0).shuffle(train)
    dev, train = train[: its.held_out][:limit], train[its.held_out :][:limit]
    made = questions if task == "squad" else texts
    return train, dev, *(made(model, rows[:limit], its.max_length) for rows in (dev, test))


def texts(model: Any, rows: list, max_length: int) -> Rows:
    from paredown.evaluation import metric_named

    metric = metric_named("accuracy")
    coded = model.encode(rows, max_length)
    return Rows(coded, lambda seen, logits: {"score": seen.score(logits, metric)})


def questions(model: Any, rows: list, max_length: int) -> Rows:
    from paredown.evaluation import score_spans

    kind, shown = model.kind, model.encode(rows, max_length)

    def score(seen: Any, logits: Any) -> dict[str, float]:
        parts = [its[: len(window)] for window, its in zip(shown, logits, strict=True)]
        groups = kind.by_unit(shown)
        predictions = [kind.decode([shown[at] for at in group], [parts[at] for at in group], ()) for group in groups]
        found = score_spans(rows, predictions)
        return {"score": found["f1"], "exact": found["exact"]}

    return Rows(shown, score)


def run_one(job: dict, weights: Path, data: Path, kept: Path, precision: str, limit: int | None) -> dict:
    """Train once, keep the model, and measure its plans on dev and test."""
    import torch

    from paredown import AdaptiveModel, Plan
    from paredown.training import train

    torch.set_float32_matmul_precision("high")  # of what is measured; training has its own precision
    torch.manual_seed(job["seed"])
    start = weights if job["start"] is None else kept / named(job, job["start"])
    model = AdaptiveModel.from_pretrained(start, **({"task": job["task"]} if job["start"] is None else {}))
    model.plan = Plan(reduce=job["reduce"])
    model.to("cuda" if torch.cuda.is_available() else "cpu")
    train_rows, dev_rows, dev, test = read(job["task"], data, model, limit)
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        report = train(
            model,
            job["methods"],
            train_rows,
            dev_rows,
            output=Path(folder) / "run",
            seed=job["seed"],
            max_length=SETTINGS[job["task"]].max_length,
            precision=precision,
            checkpoint_every=10**9,  # a benchmark run is repeated, not resumed
            progress=False,
        )
    seconds = time.perf_counter() - began
    model.save_pretrained(kept / named(job, job["label"]))
    torch.cuda.empty_cache()  # other runs share the device
    facts = {"seconds": round(seconds, 1), "steps": {stage.name: len(stage.losses) for stage in report.stages}}
    facts["rows"] = {"train": len(train_rows), "dev": len(dev.encoded), "test": len(test.encoded)}
    plans = [plan for plan in job["plans"] if "attention" not in plan or model.walk.shows_attention]
    points = [point for plan in plans for point in measure(model, plan, dev, test, job["task"])]
    facts["tokens"] = sum(map(len, test.encoded)) / len(test.encoded)
    per_layer = model.scores["per_layer"] if model.scores else {}
    return {**job, **facts, "plans": plans, "per_layer": per_layer, "points": points}


def named(job: dict, label: str) -> str:
    return f"{job['task']}-{label}-{job['seed']}".replace(" ", "_").replace(",", "")


def measure(model: Any, reducer: str, dev: Rows, test: Rows, task: str) -> list[dict]:
    """Score and cost of one reducer: to the end, and with every speed of the exit rule where there are exits."""
    from paredown import Plan
    from paredown.evaluation import Bill, Cost, record, replay, sweep
    from paredown.registry import exits

    plan = Plan(reduce=None if reducer == "none" else reducer)
    cost = Cost.of(model, plan)
    rules: list[Any] = [None]
    if model.heads:
        count = SETTINGS[task].speeds
        rules += [
            rule for _, rule in sweep(exits.make("entropy"), [round((k / count) ** 2, 6) for k in range(1, count)])
        ]
    points: list[dict] = [{"reduce": reducer, "exit": str(rule) if rule else None} for rule in rules]
    for split, rows in (("dev", dev), ("test", test)):
        seen = record(model, rows.encoded, 128, plan)
        bill = Bill(seen, cost)
        for point, rule in zip(points, rules):
            done = replay(seen, rule)
            figures = {**rows.score(seen, done.logits), **bill.mean(done.layers, rule is not None)}
            point[split] = {name: round(value, 5) for name, value in figures.items() if name != "flops"}
    return points


# Time


def clock(run: dict, data: Path, kept: Path) -> dict:
    """Milliseconds per row of the plans of a run that matter, alone on the machine."""
    import torch

    from paredown import AdaptiveModel, Plan
    from paredown.runtime.timing import spread, time_plans

    model = AdaptiveModel.from_pretrained(kept / named(run, run["label"]))
    model.to(*(("cuda", torch.bfloat16) if torch.cuda.is_available() else ()))
    _, _, _, test = read(run["task"], data, model, 4 * max(TIMED.values()))
    plans = {
        (reducer, rule): Plan(exit=rule, reduce=None if reducer == "none" else reducer)
        for reducer, rule in worth_timing(run)
    }
    taken = {
        size: time_plans(model, spread(test.encoded, rows), list(plans.values()), size) for size, rows in TIMED.items()
    }
    found = []
    for (reducer, rule), plan in plans.items():
        times = {size: round(1000 * its[plan].seconds_per_row, 3) for size, its in taken.items()}
        found.append({"reduce": reducer, "exit": rule, "milliseconds": times})
    return {**{name: run[name] for name in ("task", "label", "seed")}, "plans": found}


def worth_timing(run: dict) -> list[tuple[str, str | None]]:
    """The first plan of a run; with exits also the fastest rule that costs dev at most a point."""
    plans: list[tuple[str, str | None]] = [(run["plans"][0], None)]
    if run["label"] == PLAIN:
        plans += [(reducer, None) for reducer in UNTRAINED[1::2] if reducer in run["plans"]]
    if rule := best_exit(run, 0.01):
        plans.append((rule["reduce"], rule["exit"]))
    return plans


def best_exit(run: dict, loss: float) -> dict | None:
    """The point with an exit rule that saves most and scores on dev at most `loss` below the same reducer's end."""
    mine = [point for point in run["points"] if point["reduce"] == run["plans"][0]]
    end = next(point["dev"]["score"] for point in mine if point["exit"] is None)
    able = [point for point in mine if point["exit"] and point["dev"]["score"] >= end - loss]
    return max(able, key=lambda point: point["dev"]["flops_speedup"], default=None)


# All together


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--kept", type=Path, required=True, help="folder for the models")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"), help="runs in it are kept")
    parser.add_argument("--tasks", nargs="*", default=list(SETTINGS))
    parser.add_argument("--only", nargs="*", help="labels of runs; default: all")
    parser.add_argument("--seeds", type=int, nargs="*", default=[1])
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--limit", type=int, help="rows of every split, to try the script")
    parser.add_argument("--rate", type=float, default=1.0, help="of all learning rates; wide encoders want less than 1")
    parser.add_argument("--time", action="store_true", help="only measure the time of the runs in --out")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.job:
        result = run_one(json.loads(args.job), args.weights, args.data, args.kept, args.precision, args.limit)
        args.out.write_text(json.dumps(result))
        return
    known = json.loads(args.out.read_text()) if args.out.is_file() else {"runs": [], "times": []}
    runs, times = known["runs"], known["times"]

    def write() -> None:
        command = (
            known["command"] if args.time else repeatable_command("-m benchmarks.tokens")
        )  # with --time: what trained
        facts = {"command": command, "encoder": args.weights.name, **machine()}
        found = {**facts, "precision": args.precision, "runs": runs, "times": times}
        args.out.write_text(json.dumps(found, indent=1) + "\n")

    command = ["-m", "benchmarks.tokens", "--weights", str(args.weights), "--data", str(args.data)]
    command += ["--kept", str(args.kept), "--precision", args.precision]
    command += [] if args.limit is None else ["--limit", str(args.limit)]
    if args.time:
        times.clear()
        for run in runs:
            times.append(clock(run, args.data, args.kept))
            write()
        return
    jobs = [{**job, "seed": seed} for seed in args.seeds for task in args.tasks for job in wanted(task, args.rate)]
    jobs = [job for job in jobs if not args.only or job["label"] in args.only]
    done = [(run["task"], run["label"], run["seed"]) for run in runs]
    missing = [job for job in jobs if (job["task"], job["label"], job["seed"]) not in done]

    def ready(job: dict) -> bool:
        return job["start"] is None or (args.kept / named(job, job["start"])).is_dir()

    for run in run_all(missing, command, args.jobs, ready):
        runs.append(run)
        write()


if __name__ == "__main__":
    main()
