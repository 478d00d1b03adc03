"""The runner of all experiments: trains, lets dev rows choose, judges on test rows, writes a file of results each.

    python -m benchmarks.run --list
    python -m benchmarks.run --only 'exits-*' --weights inputs/weights --data inputs/data --jobs 12

The table is `benchmarks.experiments`; `benchmarks.inputs` makes weights and data. Results go to `--out`; a run that is
there already is not made again, so a command that was cut goes on when it is given again. What differs from the
committed figures is printed. `--out benchmarks/results` is where committed ones live.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks.experiment import Experiment, Recipe
from benchmarks.experiments import chosen
from benchmarks.inputs import check, hashes, others
from benchmarks.result_files import COMMITTED, Results, code, commit, committed, difference, figures, spoken_commits
from benchmarks.rows import SETS, draw
from paredown.errors import ParedownError

SHARED = ("memory", "CUDA", "mha_graph", "killed")  # in the error of a run that others may have left no room for
PACKAGES = ("accelerate", "safetensors", "tokenizers", "numpy", "scipy", "scikit-learn")


@dataclass(frozen=True)
class Job:
    experiment: Experiment
    recipe: Recipe
    seed: int

    def __str__(self) -> str:
        return f"{self.experiment.name}: {self.recipe.label}, seed {self.seed}"

    @property
    def start(self) -> Job | None:
        label = self.recipe.after
        return None if label is None else Job(self.experiment, self.experiment.recipe(label), self.seed)


def main(words: list[str] | None = None) -> int:
    args = arguments().parse_args(words)
    try:
        experiments = chosen(args.only)
        if args.list:
            for one in experiments:
                print(f"{one.name:26} {one.rows:20} {one.encoder:14} {', '.join(its.label for its in one.recipes)}")
            return 0
        check(args.weights, args.data, experiments)
    except ParedownError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for name in others(args.weights, args.data, experiments):
        print(f"note: {name} is not what committed figures are made from", flush=True)
    files = {one.name: Results(one, args.out, facts(one, args)) for one in experiments}
    pairs = [(one, seed) for one in experiments for seed in args.seeds or one.seeds]
    wanted = [Job(one, recipe, seed) for one, seed in pairs for recipe in one.recipes]
    failed = Running(args, files).all(todo(wanted, files, args))
    for one in experiments:
        compare(one, files[one.name])
    return 1 if failed else 0


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", nargs="*", default=[], help="names or patterns of experiments, the first ones first; default: all"
    )
    parser.add_argument("--list", action="store_true", help="the experiments, and nothing else")
    parser.add_argument("--weights", type=Path, default=Path("inputs/weights"), help="folder of the encoders' folders")
    parser.add_argument("--data", type=Path, default=Path("inputs/data"), help="folder of the data sets' folders")
    parser.add_argument("--out", type=Path, default=Path("runs/benchmarks"), help="folder of the results")
    parser.add_argument("--kept", type=Path, help="folder of models that others go on from; default: in --out")
    parser.add_argument("--seeds", type=int, nargs="*", help="default: those of the experiment")
    parser.add_argument("--recipes", nargs="*", help="labels of recipes; default: all")
    parser.add_argument("--limit", type=int, help="at most so many rows of each split, to try it out")
    parser.add_argument("--jobs", type=int, default=1, help="runs side by side, each a process")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="end after so long; what is done is kept")
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--commit", default="", help="of the source, where there is no repository to ask")
    return parser


def facts(experiment: Experiment, args: argparse.Namespace) -> dict[str, Any]:
    """What a reader must know of a result, whichever runs it has."""
    return {
        "experiment": {**asdict(experiment), "recipes": [its.label for its in experiment.recipes]},
        "set": {key: value for key, value in asdict(SETS[experiment.rows]).items() if key != "source"},
        "inputs": hashes(args.weights, args.data, experiment),
    }


def todo(wanted: list[Job], files: dict[str, Results], args: argparse.Namespace) -> list[Job]:
    """The runs that are missing, and those whose models they go on from where these are gone: experiments in the order
    of the patterns that name them, long runs first."""
    missing: dict[Job, None] = {}
    for job in wanted:
        if args.recipes and job.recipe.label not in args.recipes:
            continue
        if files[job.experiment.name].has(job.recipe, job.seed, args.limit):
            continue
        missing[job] = None
        before = job.start
        while before is not None and not model_of(before, args).is_dir():
            missing[before] = None
            before = before.start

    def turn(job: Job) -> tuple[int, float]:
        its, wide = SETS[job.experiment.rows], 4 if "base" in job.experiment.encoder else 1
        named = next((at for at, pattern in enumerate(args.only) if fnmatchcase(job.experiment.name, pattern)), 0)
        return named, -its.train * its.max_length * wide * chain(job.experiment, job.recipe)

    return sorted(missing, key=turn)


def chain(experiment: Experiment, recipe: Recipe) -> int:
    """How many recipes run one after another from this one on."""
    return 1 + max((chain(experiment, its) for its in experiment.recipes if its.after == recipe.label), default=0)


def model_of(job: Job, args: argparse.Namespace) -> Path:
    from benchmarks.one_run import kept

    return kept(args.kept or args.out / "kept", job.experiment, job.recipe.label, job.seed)


class Running:
    """Runs side by side, each in a process of its own."""

    def __init__(self, args: argparse.Namespace, files: dict[str, Results]):
        self.args, self.files, self.began = args, files, time.monotonic()
        self.failed: list[Job] = []
        self.again: list[Job] = []  # failed for lack of room, and are tried once more
        self.commit = args.commit or commit()
        self.started = self.done = 0

    def all(self, waiting: list[Job]) -> list[Job]:
        """Those that failed. A job waits for the one whose model it goes on from; when that fails, it is left."""
        if not waiting:
            return []
        import paredown.training  # noqa: F401  (imported once, before the processes are forked)

        self.place, self.total = self._place(waiting), len(waiting)
        running: dict[Any, tuple[Job, Path]] = {}
        with tempfile.TemporaryDirectory() as folder:
            while (waiting or running) and not self._late():
                while len(running) < self.args.jobs and (job := self._able(waiting, running)) is not None:
                    waiting.remove(job)
                    out = Path(folder) / str(self.started)
                    self.started += 1
                    process = get_context("fork").Process(target=work, args=(job, self.place, out), daemon=True)
                    process.start()
                    running[process] = (job, out)
                if not running:
                    break
                time.sleep(0.2)
                for process in [process for process in running if not process.is_alive()]:
                    job, out = running.pop(process)
                    if self._end(job, out):
                        waiting.append(job)
            for process in running:
                process.terminate()
        if left := [*waiting, *(job for job, _ in running.values())]:
            print(f"LEFT {len(left)} runs; the same command goes on with them", flush=True)
        return self.failed

    def _place(self, jobs: list[Job]) -> Any:
        from benchmarks.one_run import Place

        names = {job.experiment.rows for job in jobs} | {its for job in jobs if (its := job.recipe.more_text)}
        rows = {name: draw(SETS[name], self.args.data, self.args.limit) for name in sorted(names)}
        return Place(self.args.weights, self.args.kept or self.args.out / "kept", rows, self.args.precision)

    def _late(self) -> bool:
        return time.monotonic() - self.began > self.args.seconds

    def _able(self, waiting: list[Job], running: dict[Any, tuple[Job, Path]]) -> Job | None:
        pending = {*waiting, *(job for job, _ in running.values())}
        return next(
            (
                job
                for job in waiting
                if job.start is None or (job.start not in pending and model_of(job.start, self.args).is_dir())
            ),
            None,
        )

    def _end(self, job: Job, out: Path) -> bool:
        """Keep what came of a run; True where it shall be tried again."""
        log = out.with_suffix(".log")
        last = log.read_text(errors="replace")[-2000:] if log.is_file() else ""
        found: dict[str, Any] = (
            json.loads(out.read_text()) if out.is_file() else {"error": f"the process was killed\n{last}"}
        )
        self.done += 1
        at = f"[{self.done}/{self.total}, {time.monotonic() - self.began:.0f} s]"
        if "error" in found:
            again = self.args.jobs > 1 and job not in self.again and any(word in found["error"] for word in SHARED)
            (self.again if again else self.failed).append(job)
            self.total += again
            print(f"{at} {'AGAIN, after it ' * again}FAILED {job}: {found['error']}", flush=True)
            return again
        args = self.args
        made = {"commit": self.commit, "code": code(), "limit": args.limit, "precision": args.precision}
        run = {**found, "described": asdict(job.recipe), **made, "jobs_side_by_side": args.jobs}
        self.files[job.experiment.name].add(run, run.pop("machine"))
        scores = ", ".join(f"{plan} {100 * point['score']:.1f}" for plan, point in figures(found))
        print(f"{at} {job}, {found['seconds']['all']:.0f} s: {scores}", flush=True)
        return False


def work(job: Job, place: Any, out: Path) -> None:
    """A failure is a result too. What the machine is can only be asked here: a process that has spoken to a GPU cannot
    be forked."""
    import traceback

    from benchmarks.one_run import run_one
    from paredown.system.machine import machine

    with open(out.with_suffix(".log"), "w") as log:
        for stream in (1, 2):  # what trainings say side by side nobody could read
            os.dup2(log.fileno(), stream)
    try:
        found = run_one(job.experiment, job.recipe, job.seed, place)
        found |= {"machine": {**machine(packages=PACKAGES), "python": sys.version.split()[0]}}
    except Exception as error:
        found = {"error": f"{type(error).__name__}: {error}\n{traceback.format_exc()}"[-3000:]}
    staged = out.with_suffix(".part")
    staged.write_text(json.dumps(found))
    staged.replace(out)


def compare(experiment: Experiment, mine: Results) -> None:
    """Print how the figures differ from the committed ones."""
    theirs = committed(experiment.name)
    if theirs is None or mine.path.parent.resolve() == COMMITTED.resolve():
        return
    print(f"\n{experiment.name}: test scores now and as committed (made at {spoken_commits(theirs)})")
    print("\n".join(difference(mine.data, theirs)) or "no figure in common")


if __name__ == "__main__":
    sys.exit(main())
