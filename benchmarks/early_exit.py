"""Early-exit methods on real data with one encoder: dev score of every layer, and score against layers run.

    python benchmarks/early_exit.py --weights gte-small --data glue --out benchmarks/early_exit.json

`--weights` is a Hugging Face folder, `--data` a folder with GLUE's own SST-2 and MRPC. Every run is a process of its
own and `--jobs` of them share the device. Thresholds are chosen on the dev set, as the papers do.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paredown.system.machine import machine

if TYPE_CHECKING:
    from paredown import AdaptiveModel

SPEEDS = [(index / 100) ** 3 for index in range(101)]  # dense at the cautious end
RULES = ("entropy", "confidence", "margin", "patience", "vote", "ensemble", "learned")
TARGETS = (1.0, 2.0, 2.48, 3.16, 4.33, 6.0)  # fewer layers; 2.48, 3.16 and 4.33 are where the reference was measured

# The aliases keep their papers' heads, losses and rules; batch, learning rate and epochs are the benchmark's own and
# the same for all, because the papers' batches of 8 would leave a GPU idle.
SIZE = {"sst-2": "batch_size=128", "mrpc": "batch_size=32"}
TUNING = {"sst-2": "lr=7e-5,epochs=3", "mrpc": "lr=5e-5,epochs=8"}
EXITS = "exit_epochs=3,exit_lr=5e-4"
TOGETHER = "joint:{size},{tuning},head=attention,equilibrium=True,distill=1.0"
RUNS: dict[str, list[str]] = {
    "fastbert": ["fastbert:{size},{tuning},{exits}"],
    "deebert": ["deebert:{size},{tuning},{exits}"],
    "elasticbert": ["elasticbert:{size},{tuning}"],
    "pabee": ["pabee:{size},{tuning}"],
    "berxit": ["berxit:{size},{tuning}"],
    "self_distill + labels": ["self_distill:{size},{tuning},{exits},gold=1.0"],
    "joint, attention heads": [TOGETHER],
    "joint, attention heads, then distilled": [
        TOGETHER,
        "self_distill:{size},{exits},epochs=0,teacher=stock,gold=0.5",
    ],
    "fastbert, longer exits": ["fastbert:{size},{tuning},exit_epochs=5,exit_lr=1e-3"],
    "self_distill, then joint": [
        "self_distill:{size},{tuning},teacher=stock,exit_epochs=1,exit_lr=5e-4",
        "joint:{size},epochs=2,lr=3e-5,head=attention,equilibrium=True,distill=1.0",
    ],
}


def run_one(job: dict, weights: Path, data: Path, precision: str, compile_layers: bool) -> dict:
    """Train once and record the dev set."""
    from paredown.evaluation import curve, metric_named, record
    from paredown.registry import exits, tasks

    task = tasks.make(job["task"])
    dev = task.read(data, "dev").rows
    metric = metric_named("accuracy")
    model, seconds = fit(job, weights, task.read(data, "train").rows, dev, precision, compile=compile_layers)
    seen = record(model, model.encode(dev, 128), batch_size=256)
    names = [name for name in RULES if name != "learned" or seen.error_probability]
    curves = {name: curve(seen, [exits.make(name).at_speed(s) for s in SPEEDS], metric) for name in names}
    return {**job, "seconds": seconds, "per_layer": seen.scores(metric), "curves": curves, "rows": len(dev)}


def fit(
    job: dict, weights: Path, train_rows: list, dev_rows: list, precision: str, max_length: int = 128, **settings: Any
) -> tuple[AdaptiveModel, float]:
    """A model of the job's task, trained by its methods, and the seconds that took."""
    import torch

    from paredown import AdaptiveModel
    from paredown.training import train

    torch.manual_seed(job["seed"])
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = AdaptiveModel.from_pretrained(weights, task=job["task"]).to(device)
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        train(
            model,
            job["methods"],
            train_rows,
            dev_rows,
            output=Path(folder) / "run",
            seed=job["seed"],
            metric="accuracy",
            max_length=max_length,
            precision=precision,
            checkpoint_every=10**9,  # a benchmark run is repeated, not resumed
            progress=False,
            **settings,
        )
    return model, time.perf_counter() - start


def summarise(runs: list[dict]) -> list[dict]:
    """For each task and method: mean over seeds of the scores, and the best score at so many times fewer layers."""
    groups: dict[tuple[str, str], list[dict]] = {}
    for run in runs:
        groups.setdefault((run["task"], run["label"]), []).append(run)
    table = []
    for (task, label), members in groups.items():
        layers = [str(layer) for layer in sorted(map(int, members[0]["per_layer"]))]
        per_layer = {k: statistics.mean(run["per_layer"][k] for run in members) for k in layers}
        at = {
            rule: {f"{target:g}x": mean_of_best([run["curves"][rule] for run in members], target) for target in TARGETS}
            for rule in members[0]["curves"]
        }
        table.append(
            {
                "task": task,
                "method": label,
                "seeds": len(members),
                "per_layer": per_layer,
                "full_depth": per_layer[layers[-1]],
                "best_score_at_fewer_layers": at,
            }
        )
    return table


def mean_of_best(curves: list[list[dict]], target: float) -> float | None:
    """Mean over seeds of the best score at `target` times fewer layers or more; None where a seed is never so fast."""
    best = [max((p["score"] for p in points if p["speedup"] >= target), default=None) for points in curves]
    return None if None in best else statistics.mean(best)


def thin(points: list[dict]) -> list[dict]:
    """The points worth keeping: no other is both faster and better."""
    front, top = [], -1.0
    for point in sorted(points, key=lambda point: (-point["speedup"], -point["score"])):
        if point["score"] > top:
            front.append({key: round(v, 5) if isinstance(v, float) else v for key, v in point.items()})
            top = point["score"]
    return front[::-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"))
    parser.add_argument("--only", nargs="*", help="labels of runs; default: all")
    parser.add_argument("--tasks", nargs="*", default=["sst-2", "mrpc"])
    parser.add_argument("--seeds", type=int, nargs="*", default=[1])
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.job:
        job = json.loads(args.job)
        result = run_one(job, args.weights, args.data, args.precision, args.compile)
        args.out.write_text(json.dumps(result))
        return
    jobs = [
        {
            "task": task,
            "label": label,
            "methods": [text.format(size=SIZE[task], tuning=TUNING[task], exits=EXITS) for text in RUNS[label]],
            "seed": seed,
        }
        for task in args.tasks
        for label in args.only or RUNS
        for seed in args.seeds
    ]
    command = [__file__, "--weights", str(args.weights), "--data", str(args.data), "--precision", args.precision]
    runs = []
    for run in run_all(jobs, command + ["--compile"] * args.compile, args.jobs):
        runs.append(run)
        args.out.write_text(json.dumps(report(runs, args), indent=1) + "\n")  # after each, so that none is lost
    for row in report(runs, args)["summary"]:
        at = row["best_score_at_fewer_layers"].values()
        top = {target: round(max(scores[target] or 0 for scores in at), 4) for target in ("2.48x", "3.16x", "4.33x")}
        print(f"{row['task']:6} {row['method']:34} full {row['full_depth']:.4f}", top)


def report(runs: list[dict], args: argparse.Namespace) -> dict:
    return {
        "command": repeatable_command("benchmarks/early_exit.py"),
        "encoder": args.weights.name,
        **machine(),
        "precision": args.precision,
        "score": "dev accuracy; thresholds chosen on dev",
        "summary": summarise(runs),
        "runs": [{**run, "curves": {rule: thin(points) for rule, points in run["curves"].items()}} for run in runs],
    }


def repeatable_command(script: str) -> str:
    """The command as a reader can repeat it: folders and absolute paths by their last part, phrases quoted."""

    def shown(word: str) -> str:
        word = Path(word).absolute().name if word.startswith("/") or Path(word).is_dir() else word
        return f'"{word}"' if " " in word else word

    return " ".join(["python", script, *map(shown, sys.argv[1:])])


def run_all(
    jobs: list[dict], command: list[str], at_once: int, ready: Callable[[dict], bool] = lambda job: True
) -> Iterator[dict]:
    """Run the jobs, several at a time, each as `command` in its own process; their results as they come.

    A job waits until it is `ready`; those that never are, because another failed, are left.
    """
    with tempfile.TemporaryDirectory() as folder:
        waiting, running = list(enumerate(jobs)), {}
        while waiting or running:
            while len(running) < at_once and (able := [entry for entry in waiting if ready(entry[1])]):
                number, job = able[0]
                waiting.remove(able[0])
                out = Path(folder) / f"{number}.json"
                words = [sys.executable, *command, "--out", str(out), "--job", json.dumps(job)]
                with open(out.with_suffix(".log"), "w") as log:
                    running[subprocess.Popen(words, stdout=log, stderr=subprocess.STDOUT)] = (job, out)
            if not running:
                print(f"LEFT {len(waiting)} runs that start from others", flush=True)
                return
            time.sleep(0.5)
            for process in [process for process in running if process.poll() is not None]:
                job, out = running.pop(process)
                name = f"{job['task']} {job['label']} seed {job['seed']}"
                if process.returncode:
                    print(f"FAILED {name}\n" + out.with_suffix(".log").read_text()[-3000:], flush=True)
                    continue
                result = json.loads(out.read_text())
                scores = [round(100 * score, 1) for score in result["per_layer"].values()]
                print(f"{name}: {result['seconds']:.0f} s, {scores}", flush=True)
                yield result


if __name__ == "__main__":
    main()
