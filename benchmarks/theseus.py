"""Twelve layers into six, four and three: BERT-of-Theseus beside fine-tuning the first layers and plain distillation.

    python -m benchmarks.theseus --weights gte-small --data glue --out benchmarks/theseus.json --jobs 16

`--weights` is a Hugging Face folder, `--data` a folder with GLUE's own files. First the predecessors are fine-tuned,
then every variant starts from the one of its task and seed. Every run is a process of its own. Scores are GLUE's dev
scores, as in the paper; the best epoch is chosen on dev, for every variant alike.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.early_exit import repeatable_command, run_all
from paredown.system.machine import machine

MACRO = ("cola", "mrpc", "rte", "sst-2", "sts-b")


@dataclass(frozen=True)
class Tuning:
    """The same for all variants of a task; the papers' batch of 32 at 2e-5 would leave a GPU idle."""

    batch_size: int
    lr: float
    epochs: float  # of the predecessor, and again of every variant in all its stages together


TASKS = {
    "cola": Tuning(128, 1e-4, 8),
    "mrpc": Tuning(64, 7e-5, 8),
    "rte": Tuning(64, 7e-5, 8),
    "sst-2": Tuning(256, 1e-4, 3),
    "sts-b": Tuning(128, 1e-4, 8),
}
SHARE = 0.8  # of the epochs of a variant that are spent replacing; the rest is for the successors alone
PREDECESSOR = "predecessor"
REPLACING = "module_replacing:epochs=0,into={layers},batch_size={batch_size}"
VARIANTS: dict[str, dict[str, Any]] = {
    "first {layers} layers": {"depth": True},
    "first {layers} layers, distilled": {"depth": True, "distill": True},
    "theseus {layers}": {"settings": ""},
    "theseus {layers}, distilled": {"settings": ",successor_trains=everything,distill=1.0,temperature=2.0"},
}


def run_one(job: dict, weights: Path, data: Path, kept: Path, precision: str, limit: int | None) -> dict:
    """Train one variant; the predecessor is kept for the others."""
    import torch

    from paredown import AdaptiveModel, Plan
    from paredown.evaluation import metric_named
    from paredown.registry import tasks
    from paredown.training import train

    torch.manual_seed(job["seed"])
    task, tuning = tasks.make(job["task"]), TASKS[job["task"]]
    rows, dev = (task.read(data, split).rows[:limit] for split in ("train", "dev"))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    mine = kept / named(job)
    from_scratch = job["variant"] == PREDECESSOR or job["depth"]
    model = AdaptiveModel.from_pretrained(weights, task=job["task"]) if from_scratch else load(mine)
    if job["depth"]:
        model.plan = Plan(depth=tuple(range(job["layers"])))
    method: Any = job["method"]
    if job["distill"]:
        method = Distilled(method, load(mine).to(device))
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        report = train(
            model.to(device),
            method,
            rows,
            dev,
            output=Path(folder) / "run",
            seed=job["seed"],
            metric=metric_named(task.metric),
            max_length=128,
            precision=precision,
            checkpoint_every=10**9,  # a benchmark run is repeated, not resumed
            progress=False,
        )
    steps = sum(len(stage.losses) for stage in report.stages)
    facts = {"seconds": time.perf_counter() - start, "steps": steps, "rows": [len(rows), len(dev)]}
    scores = {len(model.depth): report.stages[-1].best}
    result = {**job, "tuning": vars(tuning), **facts, "score": report.stages[-1].best, "per_layer": scores}
    if job["variant"] == PREDECESSOR:
        model.save_pretrained(mine)
    return result


def named(job: dict) -> str:
    """The folder of the predecessor."""
    return f"{job['task']}-{job['seed']}"


def same(job: dict) -> tuple:
    """What makes two runs one."""
    return job["task"], job["seed"], job["method"], job["variant"]


def load(folder: Path) -> Any:
    from paredown import AdaptiveModel

    return AdaptiveModel.from_pretrained(folder)


class Distilled:
    """Plain fine-tuning that also imitates a teacher's answers: half labels, half teacher, at temperature 2."""

    def __init__(self, text: str, teacher: Any):
        from paredown.registry import methods

        self.usual, self.teacher = methods.parse(text), teacher.eval()
        self.name = "distilled"

    def __getattr__(self, name: str) -> Any:  # all but the loss is fine-tuning's
        return getattr(self.usual, name)

    def stages(self, model: Any) -> list[Any]:
        import dataclasses

        return [dataclasses.replace(stage, loss=self._loss) for stage in self.usual.stages(model)]

    def _loss(self, model: Any, batch: Any, progress: Any) -> Any:
        import torch

        trace = model.trace(batch)
        with torch.no_grad():
            taught = self.teacher.trace(batch).final
        imitation = model.kind.distill(trace.final, taught, trace.answer_mask, 2.0)
        return 0.5 * self.usual.task_loss(model, trace.final, batch) + 0.5 * imitation


def job(task: str, seed: int, variant: str, layers: int = 12) -> dict:
    tuning = TASKS[task]
    plain = f"finetune:batch_size={tuning.batch_size},lr={tuning.lr}"
    facts = {"task": task, "seed": seed, "variant": variant.format(layers=layers), "layers": layers}
    facts |= {"label": facts["variant"], "depth": False, "distill": False}
    if variant == PREDECESSOR:
        return facts | {"method": f"{plain},epochs={tuning.epochs}"}
    kind = VARIANTS[variant]
    if kind.get("depth"):
        return facts | {"method": f"{plain},epochs={tuning.epochs}", **{"distill": False, **kind}}
    epochs = f",replacing_epochs={SHARE * tuning.epochs:g},successor_epochs={(1 - SHARE) * tuning.epochs:g}"
    rates = f",replacing_lr={2 * tuning.lr},successor_lr={tuning.lr}"  # a module learns only in steps that draw it
    method = REPLACING.format(layers=layers, batch_size=tuning.batch_size) + epochs + rates + kind["settings"]
    return facts | {"method": method}


def summarise(runs: list[dict]) -> list[dict]:
    """Median over seeds of every variant and task, the mean of those, and its share of the predecessor's."""
    table = []
    for variant in dict.fromkeys(run["variant"] for run in runs):
        scores = {
            task: [run["score"] for run in runs if (run["variant"], run["task"]) == (variant, task)] for task in MACRO
        }
        medians = {task: statistics.median(found) for task, found in scores.items() if found}
        entry = {"variant": variant, "median": medians, "seeds": {task: len(found) for task, found in scores.items()}}
        if len(medians) == len(MACRO):
            entry["macro"] = statistics.mean(medians.values())
        table.append(entry)
    before = next((entry["macro"] for entry in table if entry["variant"] == PREDECESSOR and "macro" in entry), None)
    for entry in table:
        if before and "macro" in entry:
            entry["kept"] = entry["macro"] / before
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument(
        "--kept",
        type=Path,
        help="folder for the predecessors; those that are there are not made again, nor runs in --out",
    )
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"))
    parser.add_argument("--tasks", nargs="*", default=list(MACRO))
    parser.add_argument("--seeds", type=int, nargs="*", default=[1, 2, 3])
    parser.add_argument("--layers", type=int, nargs="*", default=[6, 4, 3])
    parser.add_argument("--only", nargs="*", default=list(VARIANTS), help="variants; the predecessor is always there")
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--limit", type=int, help="rows of every split, to try the script")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.job:
        result = run_one(json.loads(args.job), args.weights, args.data, args.kept, args.precision, args.limit)
        args.out.write_text(json.dumps(result))
        return
    with tempfile.TemporaryDirectory() as folder:
        kept = args.kept or Path(folder)
        command = ["-m", "benchmarks.theseus", "--weights", str(args.weights), "--data", str(args.data)]
        command += ["--kept", str(kept), "--precision", args.precision]
        command += [] if args.limit is None else ["--limit", str(args.limit)]
        pairs = [(task, seed) for task in sorted(args.tasks, key="sst-2".__ne__) for seed in args.seeds]
        known: list[dict] = json.loads(args.out.read_text())["runs"] if args.out.is_file() else []
        runs = {same(run): run for run in known}
        then = [job(*pair, variant, layers) for layers in args.layers for pair in pairs for variant in args.only]
        then = [job for job in then if same(job) not in runs]
        asked_for = [(job["task"], job["seed"]) for job in then]
        first = [
            predecessor
            for predecessor in (job(*pair, PREDECESSOR) for pair in pairs)
            if not (kept / named(predecessor)).is_dir()
            and (same(predecessor) not in runs or (predecessor["task"], predecessor["seed"]) in asked_for)
        ]
        for jobs in (first, then):
            for run in run_all(jobs, command, args.jobs):
                runs[same(run)] = run
                args.out.write_text(json.dumps(report([*runs.values()], args), indent=1) + "\n")  # none is lost
    for entry in report([*runs.values()], args)["summary"]:
        scores = {task: round(100 * score, 1) for task, score in entry["median"].items()}
        macro = f"{100 * entry['macro']:.1f} ({entry['kept']:.1%})" if "kept" in entry else ""
        print(f"{entry['variant']:40} {scores} {macro}")


def report(runs: list[dict], args: argparse.Namespace) -> dict:
    return {
        "command": repeatable_command("-m benchmarks.theseus"),
        "encoder": args.weights.name,
        **machine(),
        "precision": args.precision,
        "score": "GLUE dev: Matthews (CoLA), mean of accuracy and F1 (MRPC), of Pearson and Spearman (STS-B), accuracy",
        "summary": summarise(runs),
        "runs": runs,
    }


if __name__ == "__main__":
    main()
