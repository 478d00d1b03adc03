"""What is in the results of fewer tokens: runs by encoder, task and seed, and what dev says to choose of them."""

from __future__ import annotations

import json
import re
from pathlib import Path

PLAIN, EXITS = "all tokens", "exits"
NAMES = {"imdb": "IMDb", "20news": "20 Newsgroups", "squad": "SQuAD 1.1"}
TOKENS = ("trained with attention", "policy", "early policy", "gate")
CHOSEN = TOKENS[1:]  # by selectors
BOTH = (*(f"{name}, then exits" for name in CHOSEN), *(f"exits, then {name}" for name in CHOSEN))

Runs = dict[str, dict]  # by label, of one seed
Found = dict[tuple[str, str], dict[int, Runs]]  # (encoder, task) -> seed -> runs
Chosen = tuple[str, dict] | None  # label and point


def read(paths: list[Path]) -> tuple[list[dict], Found]:
    files = [json.loads(path.read_text()) for path in paths]
    found: Found = {}
    for file in files:
        for run in file["runs"]:
            found.setdefault((file["encoder"], run["task"]), {}).setdefault(run["seed"], {})[run["label"]] = run
    for key, seeds in found.items():
        found[key] = {seed: dict(sorted(runs.items(), key=place)) for seed, runs in sorted(seeds.items())}
    return files, found


def place(entry: tuple[str, dict]) -> tuple[int, str]:
    """Where a run stands in a table: the plain ones, then those that choose tokens, then the others."""
    label = entry[0]
    return 0 if label == PLAIN else 1 if label == EXITS else 2 if "policy" in label or "gate" in label else 3, label


# Points


def end(run: dict, reduce: str | None = None) -> dict:
    """The point without exits of a reducer; by default of the run's first plan."""
    wanted = run["plans"][0] if reduce is None else reduce
    return next(point for point in run["points"] if point["reduce"] == wanted and point["exit"] is None)


def full(runs: Runs) -> dict:
    """All tokens, all layers."""
    return end(runs[PLAIN])


def fastest(runs: Runs, labels: list[str], loss: float) -> Chosen:
    """What saves most of all that costs dev at most `loss` beside the model with all tokens and layers."""
    least = full(runs)["dev"]["score"] - loss
    able = [entry for entry in points(runs, labels) if entry[1]["dev"]["score"] >= least]
    return max(able, key=lambda entry: entry[1]["dev"]["flops_speedup"], default=None)


def best(runs: Runs, labels: list[str], speed: float) -> Chosen:
    """What scores best on dev of all that is at least so fast."""
    able = [entry for entry in points(runs, labels) if entry[1]["dev"]["flops_speedup"] >= speed]
    return max(able, key=lambda entry: entry[1]["dev"]["score"], default=None)


def points(runs: Runs, labels: list[str]) -> list[tuple[str, dict]]:
    return [(label, point) for label in labels for point in runs[label]["points"]]


def sorts(runs: Runs) -> dict[str, list[str]]:
    """Labels of the runs, by what is saved."""
    tokens, both = ([label for name in names for label in called(runs, name)] for names in (TOKENS, BOTH))
    return {"tokens, untrained": [PLAIN], "tokens": tokens, "exits": called(runs, EXITS), "both": both}


def called(runs: Runs, name: str) -> list[str]:
    """Labels that are this name but for their number."""
    return [label for label in runs if re.sub(r"[ :][\d.]+x?", "", label) == name]


def loss_of(point: dict, runs: Runs, split: str = "test") -> float:
    return 100 * (point[split]["score"] - full(runs)[split]["score"])


def at(point: dict) -> float:
    return point["test"]["flops_speedup"]


def best_exit(run: dict, loss: float) -> dict | None:
    """The point with an exit rule that saves most and scores on dev at most `loss` below the same reducer's end."""
    mine = [point for point in run["points"] if point["reduce"] == run["plans"][0]]
    end = next(point["dev"]["score"] for point in mine if point["exit"] is None)
    able = [point for point in mine if point["exit"] and point["dev"]["score"] >= end - loss]
    return max(able, key=lambda point: point["dev"]["flops_speedup"], default=None)
