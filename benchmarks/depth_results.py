"""The results of fewer layers and of benchmarks.elastic_pretrain, as the page and its pictures need them."""

from __future__ import annotations

import json
import re
import statistics
from pathlib import Path

RESULTS = [
    Path(__file__).with_name(f"{name}.json") for name in ("theseus", "elastic_pretrain", "elastic_pretrain_short")
]
NAMES = {"cola": "CoLA", "mrpc": "MRPC", "rte": "RTE", "sst-2": "SST-2", "sts-b": "STS-B"}
BEFORE = "predecessor"
# BERT-of-Theseus, its GLUE dev table: median of 5 runs, in the order of NAMES, then its macro average over 8 tasks.
PAPER = {
    "BERT-base": (54.3, 89.5, 71.1, 91.5, 88.9, 82.5),
    "first 6 layers": (43.4, 86.0, 62.1, 89.6, 81.9, 77.2),
    "theseus 6": (51.1, 89.0, 68.2, 91.5, 88.7, 81.2),
    "first 4 layers": (33.9, 86.0, 58.2, 87.2, 78.4, 73.9),
    "theseus 4": (41.3, 87.5, 61.9, 89.1, 82.5, 77.2),
    "first 3 layers": (27.5, 81.9, 57.7, 85.9, 76.8, 71.9),
    "theseus 3": (35.0, 84.3, 59.5, 87.2, 78.9, 74.1),
}
CHANCE = {"sst-2": 50.9, "mrpc": 68.4}  # dev accuracy of always predicting the larger class
WORDS = 30522  # in the encoder's vocabulary

Scores = dict[str, dict[str, float]]  # variant -> task -> median of its seeds, in percent


def read(paths: list[Path]) -> list[dict]:
    return [json.loads(path.read_text()) for path in paths]


def medians(theseus: dict) -> Scores:
    return {
        entry["variant"]: {task: 100 * entry["median"][task] for task in NAMES}
        for entry in theseus["summary"]
        if entry["median"].keys() >= NAMES.keys()
    }


def macro(scores: dict[str, float], *without: str) -> float:
    return statistics.mean(score for task, score in scores.items() if task not in without)


def depths(found: Scores) -> list[int]:
    """The depths at which both uses were run, deepest first."""
    return sorted((int(name.split()[1]) for name in found if re.fullmatch(r"theseus \d+", name)), reverse=True)


def pair(found: Scores, layers: int) -> tuple[dict[str, float], dict[str, float]]:
    return found[f"first {layers} layers"], found[f"theseus {layers}"]


def kept(found: Scores, row: dict[str, float], *without: str) -> float:
    return 100 * macro(row, *without) / macro(found[BEFORE], *without)


def of_seeds(theseus: dict, variant: str, task: str) -> list[float]:
    found = {
        run["seed"]: 100 * run["score"] for run in theseus["runs"] if (run["variant"], run["task"]) == (variant, task)
    }
    return [found[seed] for seed in sorted(found)]


def each_seed(elastic: dict, task: str, start: str, use: str = "dynamic") -> list[dict[int, float]]:
    """For every seed: layers run -> accuracy in percent."""
    runs = [run for run in elastic["runs"] if (run["task"], run["start"], run["use"]) == (task, start, use)]
    return [
        {int(k): 100 * score for k, score in run["per_layer"].items()}
        for run in sorted(runs, key=lambda run: run["seed"])
    ]


def scores(elastic: dict, task: str, start: str) -> dict[int, float]:
    found = each_seed(elastic, task, start)
    return {k: statistics.mean(one[k] for one in found) for k in found[0]}


def differences(one: dict[str, float], other: dict[str, float]) -> str:
    return ", ".join(f"{NAMES[task]} {other[task] - one[task]:+.1f}" for task in NAMES)


def seeds_of(elastic: dict) -> str:
    return str(len({run["seed"] for run in elastic["runs"]}))
