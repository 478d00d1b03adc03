"""Multi-exit pre-training on text, and what it is worth: the same fine-tuning with and without it.

    python -m benchmarks.elastic_pretrain --weights gte-small --text wiki_clean.txt --data glue --jobs 16

First `paredown pretrain` goes on from the weights; its loss at every exit is measured on held-out text before and
after. Then SST-2 and MRPC are learned from both: by the first layers alone (static) and with an exit after every layer
(dynamic), each through the poolers of its own layers where there are some. Scores are dev accuracies.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.commands import repeatable_command, run_all
from paredown.system.machine import machine

STARTS = ("without", "with")  # pre-training
DEPTHS = (3, 6)
TUNING = {"sst-2": "batch_size=128,lr=7e-5,epochs=2", "mrpc": "batch_size=32,lr=5e-5,epochs=6"}


def pretrain(args: argparse.Namespace) -> dict:
    """Run the command; returns what it wrote of its losses."""
    words = ["pretrain", str(args.weights), str(args.text), "-o", str(args.run), "--epochs", str(args.epochs)]
    words += ["--lr", str(args.lr), "--precision", args.precision, "--seed", "1", "--json"]
    words += ["--compile"] * args.compile
    subprocess.run([sys.executable, "-m", "paredown", *words], check=True, stdout=subprocess.DEVNULL)
    found = json.loads((args.run / "pretraining.json").read_text())
    metrics = json.loads((args.run / "metrics.json").read_text())
    (stage,) = metrics["stages"]
    facts = {"epochs": args.epochs, "lr": args.lr, "steps": len(stage["losses"]), "seconds": stage["seconds"]}
    return facts | {name: found[name] for name in ("rows", "before", "after")}


def run_one(job: dict, weights: Path, run: Path, data: Path, precision: str, limit: int | None) -> dict:
    """Fine-tune once; the dev score of every exit."""
    import torch

    from paredown import AdaptiveModel, Plan
    from paredown.registry import tasks
    from paredown.training import train

    torch.manual_seed(job["seed"])
    task, depth = tasks.make(job["task"]), job["depth"]
    settings: dict[str, Any] = {"task": job["task"]}
    if job["start"] == "with":
        weights = run / "elasticbert"
        settings |= {} if depth is None else {"depth": depth}
    model = AdaptiveModel.from_pretrained(weights, **settings)
    model.plan = Plan(depth=None if depth is None else tuple(range(depth)))
    rows, dev = (task.read(data, split).rows[:limit] for split in ("train", "dev"))
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        report = train(
            model.to("cuda" if torch.cuda.is_available() else "cpu"),
            job["method"],
            rows,
            dev,
            output=Path(folder) / "run",
            seed=job["seed"],
            metric="accuracy",
            max_length=128,
            precision=precision,
            checkpoint_every=10**9,  # a benchmark run is repeated, not resumed
            progress=False,
        )
    best = next(e for e in report.stages[-1].evaluations if e.step == report.stages[-1].best_step)
    return {**job, "seconds": time.perf_counter() - start, "per_layer": best.scores, "rows": [len(rows), len(dev)]}


def jobs(seeds: list[int]) -> list[dict]:
    found = []
    for task, tuning in TUNING.items():
        for start in STARTS:
            for depth in (None, *DEPTHS):
                method = f"elasticbert:{tuning}" if depth is None else f"finetune:{tuning}"
                use = "dynamic" if depth is None else f"static, {depth} layers"
                for seed in seeds:
                    job = {"task": task, "start": start, "use": use, "depth": depth, "seed": seed, "method": method}
                    found.append(job | {"label": f"{start} pre-training, {use}"})
    return found


def summarise(runs: list[dict]) -> list[dict]:
    """Mean over seeds of every exit."""
    groups: dict[tuple[str, str, str], list[dict]] = {}
    for run in runs:
        groups.setdefault((run["task"], run["use"], run["start"]), []).append(run)
    return [
        {
            "task": task,
            "use": use,
            "start": start,
            "seeds": len(members),
            "per_layer": {k: statistics.mean(run["per_layer"][k] for run in members) for k in members[0]["per_layer"]},
        }
        for (task, use, start), members in sorted(groups.items())
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--text", type=Path, help="text to pre-train on; without it --run must be there already")
    parser.add_argument("--run", type=Path, default=Path("elastic_pretrain"), help="folder of the pre-training")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"))
    parser.add_argument("--epochs", type=float, default=3.0)
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--seeds", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--limit", type=int, help="rows of every split, to try the script")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.job:
        job = json.loads(args.job)
        args.out.write_text(json.dumps(run_one(job, args.weights, args.run, args.data, args.precision, args.limit)))
        return
    facts = {"command": repeatable_command("-m benchmarks.elastic_pretrain"), "encoder": args.weights.name, **machine()}
    if args.text:
        facts["pretraining"] = pretrain(args)
        (args.run / "facts.json").write_text(json.dumps(facts))
    else:
        facts["pretraining"] = json.loads((args.run / "facts.json").read_text())["pretraining"]
    command = ["-m", "benchmarks.elastic_pretrain", "--weights", str(args.weights), "--data", str(args.data)]
    command += ["--run", str(args.run), "--precision", args.precision]
    command += [] if args.limit is None else ["--limit", str(args.limit)]
    runs: list[dict] = []
    for run in run_all(jobs(args.seeds), command, args.jobs):
        runs.append(run)
        args.out.write_text(json.dumps({**facts, "summary": summarise(runs), "runs": runs}, indent=1) + "\n")


if __name__ == "__main__":
    main()
