"""The method `auto` beside an independent recipe on many data sets: test scores at full depth and 2, 3, 4 times fewer
layers.

    python -m benchmarks.auto --weights WEIGHTS --rows rows.json.xz --seeds 1 2 3 --jobs 12

WEIGHTS holds the encoders' folders, `rows.json.xz` comes from `benchmarks.auto_inputs`. Weights and thresholds are
chosen on dev rows; scores are of test rows. Runs that the output file has already are not made again.
"""

from __future__ import annotations

import argparse
import json
import lzma
import tempfile
import time
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks.auto_inputs import SETS, unpacked
from benchmarks.early_exit import repeatable_command
from paredown.system.machine import machine

# Fine-tune with the model's own classifier for 3 epochs at 5e-5, then attention heads by self-distillation for 3 epochs
# at 5e-4, 64 rows a step: what a script of an afternoon does.
RECIPES = {
    "independent": "self_distill:teacher=stock,epochs=3,lr=5e-5,exit_epochs=3,exit_lr=5e-4,batch_size=64,rule=none",
    "auto": "auto",
}
TARGETS = (2, 3, 4)  # times fewer layers
THRESHOLDS = 60  # of the curve that is interpolated


def run_one(job: dict[str, Any], weights: Path, rows: dict[str, list]) -> dict[str, Any]:
    """Train once; score the test rows at full depth and at fewer layers."""
    import torch

    from paredown import AdaptiveModel
    from paredown.evaluation import metric_named, record, worth
    from paredown.training import train

    torch.set_num_threads(1)
    torch.set_float32_matmul_precision("high")
    chosen, began = SETS[job["set"]], time.perf_counter()
    train_rows, dev_rows, test_rows = ([unpacked(row) for row in rows[split]] for split in ("train", "dev", "test"))
    labels = None if chosen.kind != "single_label" else sorted({row.label for row in train_rows})
    torch.manual_seed(job["seed"])
    model = AdaptiveModel.from_pretrained(weights / chosen.encoder, task=chosen.kind, labels=labels)
    metric = metric_named(chosen.metric)
    with tempfile.TemporaryDirectory() as folder:
        report = train(
            model,
            job["method"],
            train_rows,
            dev_rows,
            output=Path(folder) / "run",
            metric=metric,
            seed=job["seed"],
            max_length=chosen.max_length,
            precision=job["precision"],
            checkpoint_every=10**9,  # a benchmark run is repeated, not resumed
            progress=False,
        )
    coded = model.encode(test_rows, chosen.max_length)
    seen = record(model, coded, batch_size=256)
    return {
        **job,
        "encoder": chosen.encoder,
        "metric": chosen.metric,
        "rows": {split: len(its) for split, its in rows.items()},
        "steps": {stage.name: len(stage.losses) for stage in report.stages},
        "dev": {stage.name: stage.best for stage in report.stages},
        "per_layer": seen.scores(metric),
        "scores": {"1": seen.scores(metric)[seen.stops[-1]], **at_fewer_layers(seen, metric)},
        "plan": {"dev": report.worth, "test": worth(model, coded, metric, batch_size=256).to_json()},
        "warnings": report.warnings,
        "seconds": round(time.perf_counter() - began, 1),
    }


def at_fewer_layers(seen: Any, metric: Any) -> dict[str, float]:
    """The score where rows run 2, 3, 4 times fewer layers on average, interpolated between two thresholds of entropy
    (numbers have none: between two layers after which all rows leave). No label takes part in finding that layer."""
    from paredown.evaluation import replay
    from paredown.registry import exits

    full = seen.stops[-1]
    if seen.kind.numeric:
        points = sorted((float(layers), score) for layers, score in seen.scores(metric).items())
    else:
        found = [replay(seen, exits.make("entropy", threshold=(n / THRESHOLDS) ** 3)) for n in range(THRESHOLDS + 1)]
        found.append(replay(seen, exits.make("entropy", threshold=1.01)))
        points = sorted((one.layers.double().mean().item(), seen.score(one.logits, metric)) for one in found)
    return {str(target): _interpolated(points, full / target) for target in TARGETS}


def _interpolated(points: list[tuple[float, float]], layers: float) -> float:
    below = max((point for point in points if point[0] <= layers), default=points[0])
    above = min((point for point in points if point[0] >= layers), default=points[-1])
    if above[0] == below[0]:
        return below[1]
    share = (layers - below[0]) / (above[0] - below[0])
    return below[1] + share * (above[1] - below[1])


# Many runs on one device


def work(jobs: Any, results: Any, weights: Path, rows: dict[str, Any]) -> None:
    """Run jobs until there are none left; a failure is a result too."""
    while (job := jobs.get()) is not None:
        try:
            results.put(run_one(job, weights, rows[job["set"]]))
        except Exception as error:
            results.put({**job, "error": f"{type(error).__name__}: {error}"[:2000]})


def run_all(todo: list[dict], weights: Path, rows: dict[str, Any], at_once: int, seconds: float) -> Any:
    """Results as they come; no job is started after `seconds`."""
    import paredown.training  # noqa: F401  (imported once, before the workers are forked)

    context, began = get_context("fork"), time.monotonic()
    jobs, results = context.Queue(), context.Queue()
    workers = [
        context.Process(target=work, args=(jobs, results, weights, rows), daemon=True)
        for _ in range(min(at_once, len(todo)))
    ]
    for worker in workers:
        worker.start()
    waiting, running = list(todo), 0
    while waiting or running:
        while waiting and running < len(workers) and time.monotonic() - began < seconds:
            jobs.put(waiting.pop(0))
            running += 1
        if not running:
            break
        yield results.get()
        running -= 1
    for _ in workers:
        jobs.put(None)
    print(f"{len(waiting)} runs left", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--rows", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"))
    parser.add_argument("--sets", nargs="*", default=list(SETS))
    parser.add_argument("--recipes", nargs="*", default=[f"{name}={method}" for name, method in RECIPES.items()])
    parser.add_argument("--seeds", type=int, nargs="*", default=[1, 2, 3])
    parser.add_argument("--jobs", type=int, default=2, help="runs at once")
    parser.add_argument("--precision", default="no")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="start no run after so many seconds")
    args = parser.parse_args()
    recipes = dict(recipe.split("=", 1) for recipe in args.recipes)
    known = json.loads(args.out.read_text())["runs"] if args.out.exists() else []
    done = {(run["set"], run["recipe"], run["seed"]) for run in known}
    todo = [
        {"set": name, "recipe": recipe, "method": method, "seed": seed, "precision": args.precision}
        for seed in args.seeds
        for name in sorted(args.sets, key=lambda name: -SETS[name].max_length * SETS[name].train)
        for recipe, method in recipes.items()
        if (name, recipe, seed) not in done
    ]
    with lzma.open(args.rows, "rt", encoding="utf-8") as file:
        rows = {name: its for name, its in json.load(file).items() if name in args.sets}
    for run in run_all(todo, args.weights, rows, args.jobs, args.seconds):
        name = f"{run['set']:20} {run['recipe']:14} seed {run['seed']}"
        if "error" in run:
            print(f"FAILED {name}: {run['error']}", flush=True)
            continue
        known.append(run)
        scores = " ".join(f"{100 * score:6.2f}" for score in run["scores"].values())
        print(f"{name} {scores}  {run['seconds']:.0f} s {sum(run['steps'].values())} steps", flush=True)
        facts = {"command": repeatable_command("-m benchmarks.auto"), **machine(), "recipes": recipes, "runs": known}
        args.out.write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
