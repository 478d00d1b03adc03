"""The results of the first comparison of exits, as the page, its pictures and the cards need them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RESULTS = [Path(__file__).with_name(f"early_exit_{name}.json") for name in ("sst2", "sst2_combined", "mrpc")]
TARGETS = ("2x", "2.48x", "3.16x", "4.33x")
RULES = ("entropy", "confidence", "margin", "patience", "vote", "ensemble", "learned")  # of equals the first is named
NAMES = {"sst-2": "SST-2", "mrpc": "MRPC"}

# Okabe and Ito's colours, which colour-blind readers can tell apart; markers say the same again.
ATTENTION = {
    "fastbert": ("#0072B2", "o"),
    "fastbert, longer exits": ("#56B4E9", "s"),
    "self_distill + labels": ("#009E73", "^"),
    "joint, attention heads": ("#E69F00", "D"),
    "joint, attention heads, then distilled": ("#D55E00", "v"),
    "self_distill, then joint": ("#CC79A7", "p"),
}
FIRST_TOKEN = {
    "deebert": ("#0072B2", "o"),
    "elasticbert": ("#009E73", "^"),
    "berxit": ("#E69F00", "D"),
    "pabee": ("#CC79A7", "s"),
}
METHODS = {**ATTENTION, **FIRST_TOKEN}
REFERENCE = {  # dev accuracy; an independent plain script with attention heads and self-distillation, 3 epochs
    "sst-2": {"full": 92.2, "3.16x": 92.1, "4.33x": 91.7},
    "mrpc": {"full": 83.8, "2.48x": 83.6},
}

Found = dict[str, dict[str, dict[str, Any]]]  # task -> method -> its summary, with its runs


def read(paths: list[Path]) -> tuple[list[dict], Found]:
    files = [json.loads(path.read_text()) for path in paths]
    found: Found = {task: {} for task in NAMES}
    for results in files:
        for row in results["summary"]:
            runs = [run for run in results["runs"] if (run["task"], run["label"]) == (row["task"], row["method"])]
            found[row["task"]][row["method"]] = {**row, "runs": sorted(runs, key=lambda run: run["seed"])}
    return files, {task: {name: rows[name] for name in METHODS if name in rows} for task, rows in found.items()}


def best(row: dict, target: str) -> tuple[float, str]:
    """The best mean score over the rules, in percent, and the rule's name."""
    at = {rule: scores[target] for rule, scores in row["best_score_at_fewer_layers"].items()}
    reached = {rule: score for rule, score in at.items() if score is not None}
    top = max(reached.values())
    return 100 * top, next(rule for rule in RULES if reached.get(rule, 0.0) > top - 1e-9)


def full(found: Found, task: str, group: dict) -> list[float]:
    return [100 * found[task][method]["full_depth"] for method in group]


def rows(found: Found, task: str) -> int:
    return next(iter(found[task].values()))["runs"][0]["rows"]
