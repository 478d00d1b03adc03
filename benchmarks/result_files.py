"""The files of results: one for each experiment, with what made it; what is new in one beside the committed one."""

from __future__ import annotations

import hashlib
import json
import shlex
import statistics
import subprocess
from collections.abc import Iterator
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.experiment import Experiment, Recipe

ROOT = Path(__file__).parent.parent
COMMITTED = Path(__file__).parent / "results"
MADE = ("machines", "runs")  # of a file of results, what its runs have added
# Folders of the package that have a part in every figure, and its modules at the top.
PARTS = ". encoders answers heads exits reducers methods tasks training evaluation runtime".split()


def sha256(path: Path) -> str:
    whole = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(2**20):
            whole.update(piece)
    return whole.hexdigest()


@cache
def code() -> dict[str, str]:
    """The hash of every part of the source that figures depend on."""
    package = ROOT / "paredown"
    found = {}
    for part in PARTS:
        paths = sorted(package.glob("*.py") if part == "." else (package / part).rglob("*.py"))
        whole = hashlib.sha256()
        for path in paths:
            whole.update(path.relative_to(package).as_posix().encode() + path.read_bytes())
        found["core" if part == "." else part] = whole.hexdigest()[:16]
    return found


def changed_since(result: dict[str, Any]) -> list[str]:
    """The parts of the source that are others than those a run of a result was made with."""
    made_with = [run["code"] for run in result["runs"]]
    return [part for part, digest in code().items() if any(its.get(part) != digest for its in made_with)]


def commit() -> str:
    """Of the working tree; `+` where it has changes; empty where there is no repository."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()

    try:
        return git("rev-parse", "--short=12", "HEAD") + "+" * bool(git("status", "--porcelain", "--", "paredown"))
    except (OSError, subprocess.CalledProcessError):
        return ""


def spoken_commits(result: dict[str, Any]) -> str:
    """The commits that the runs of a result were made at."""
    return ", ".join(dict.fromkeys(run["commit"] or "an unnamed commit" for run in result["runs"]))


# A file


class Results:
    """The results of one experiment, written anew after every run, so that none is lost."""

    def __init__(self, experiment: Experiment, folder: Path, facts: dict[str, Any]):
        self.experiment, self.path = experiment, folder / f"{experiment.name}.json"
        self.data = {"name": experiment.name, "command": "", **facts}
        self._read()

    def _read(self) -> None:
        """The runs that are there by now: another command may have added some."""
        before = read(self.path) or {}
        self.data |= {key: before.get(key, []) for key in MADE}

    def has(self, recipe: Recipe, seed: int, limit: int | None) -> bool:
        """Whether the same run is there: the same recipe, seed and rows. By which source, the page says."""
        return any(self._same(run, recipe, seed) and run["limit"] == limit for run in self.data["runs"])

    def _same(self, run: dict[str, Any], recipe: Recipe, seed: int) -> bool:
        usual, wanted = (json.loads(json.dumps(asdict(one))) for one in (Recipe("", ()), recipe))
        return {**usual, **run["described"]} == wanted and run["seed"] == seed

    def add(self, run: dict[str, Any], machine: dict[str, Any]) -> None:
        """A new run, in the place of an older one; it names its machine by its number."""
        self._read()
        machines = self.data["machines"]
        if machine not in machines:
            machines.append(machine)
        run = {**run, "machine": machines.index(machine)}
        others = [its for its in self.data["runs"] if (its["recipe"], its["seed"]) != (run["recipe"], run["seed"])]
        labels = [recipe.label for recipe in self.experiment.recipes]
        order = sorted([*others, run], key=lambda its: (labels.index(its["recipe"]), its["seed"]))
        self.data["runs"] = [its for its in order if its["recipe"] in labels]
        self.data["command"] = self.command
        self.path.parent.mkdir(parents=True, exist_ok=True)
        staged = self.path.with_suffix(".part")
        staged.write_text(json.dumps(self.data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        staged.replace(self.path)

    @property
    def command(self) -> str:
        """What makes these runs: the experiment, less the recipes and seeds that are not there."""
        words, runs = ["python", "-m", "benchmarks.run", "--only", self.experiment.name], self.data["runs"]
        labels, seeds = (list(dict.fromkeys(run[name] for run in runs)) for name in ("recipe", "seed"))
        words += ["--recipes", *labels] if len(labels) < len(self.experiment.recipes) else []
        words += ["--seeds", *map(str, sorted(seeds))] if set(seeds) != set(self.experiment.seeds) else []
        words += ["--limit", str(runs[0]["limit"])] if runs[0]["limit"] else []
        return shlex.join(words)


def machines(result: dict[str, Any]) -> list[dict[str, Any]]:
    """On which the runs of a result were made."""
    return [result["machines"][number] for number in dict.fromkeys(run["machine"] for run in result["runs"])]


def read(path: Path) -> dict[str, Any] | None:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def committed(name: str) -> dict[str, Any] | None:
    return read(COMMITTED / f"{name}.json")


# Figures


FULL = "full depth"
Key = tuple[str, str]  # a recipe and one of its plans
Point = dict[str, Any]  # the figures of a plan on test rows
BySeed = dict[Key, dict[int, Point]]


def figures(run: dict[str, Any]) -> Iterator[tuple[str, Point]]:
    """Every plan of a run that was measured: its name and its figures on test rows."""
    for reducer, plan in run["plans"].items():
        under = "" if reducer == "none" else f"{reducer}, "
        yield f"{under}{FULL}", plan["full"]["test"]
        for text, point in plan.get("fixed", {}).items():
            yield f"{under}{text}", point["test"]
        for rule, targets in plan.get("targets", {}).items():
            for target, point in targets.items():
                if point is not None:
                    yield f"{under}{rule} {target}", point["test"]


def by_seed(name: str) -> BySeed:
    """Of a committed result; empty where the experiment was not run."""
    found: BySeed = {}
    for run in (committed(name) or {"runs": []})["runs"]:
        for plan, point in figures(run):
            found.setdefault((run["recipe"], plan), {})[run["seed"]] = point
    return found


def paired(seen: BySeed, mine: Key, theirs: Key) -> list[tuple[Point, Point]]:
    """Of the seeds that have both plans, the figures of one and of the other."""
    here, there = seen.get(mine, {}), seen.get(theirs, {})
    return [(here[seed], there[seed]) for seed in sorted(here.keys() & there.keys())]


def means(result: dict[str, Any]) -> dict[Key, list[float]]:
    """By recipe and plan, the test scores of the seeds in percent."""
    found: dict[Key, list[float]] = {}
    for run in result["runs"]:
        for plan, point in figures(run):
            found.setdefault((run["recipe"], plan), []).append(100 * point["score"])
    return found


def difference(new: dict[str, Any], old: dict[str, Any]) -> list[str]:
    """A line for every figure that both have: the mean over the seeds now, before, and by how much it moved."""
    before = means(old)
    lines = []
    for key, scores in means(new).items():
        if key in before:
            now, then = statistics.mean(scores), statistics.mean(before[key])
            seeds = f"{len(scores)} and {len(before[key])} seeds"
            lines.append(f"{key[0]:28} {key[1]:28} {now:7.2f}  committed {then:7.2f}  {now - then:+.2f}  ({seeds})")
    return lines
