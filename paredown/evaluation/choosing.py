"""choose(): the exit rule that saves most on labelled rows for a given loss of score, and what its speeds save."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from paredown.evaluation.cost import Bill
from paredown.evaluation.intervals import standard_error
from paredown.evaluation.metrics import Metric
from paredown.evaluation.record import Record
from paredown.evaluation.replay import point, points, replay, sweep
from paredown.evaluation.report import suits
from paredown.exits import Entropy, Patience

# How near two numbers must be to agree, as shares of the deviation of all answers.
TOLERANCES = (0.05, 0.1, 0.2, 0.4)


@dataclass(frozen=True)
class ChosenRule:
    rule: Any  # None: no threshold saves work at that price
    speeds: list[dict[str, Any]]  # the rule from cautious to fast: its text, the share of the FLOPs it saves, its score


def choose(record: Record, metric: Metric, bill: Bill, max_drop: float) -> ChosenRule:
    """The cheapest of one rule's thresholds at which the loss of score, with its standard error on top, is at most
    `max_drop`: what so few rows cannot tell from a larger loss is not taken."""
    full = point(record, None, metric, bill)
    best, chosen = None, ChosenRule(None, [])
    for rule in _candidates(record):
        points = _points(record, rule, metric, bill)
        able = sorted((one for one in points if one["flops"] < full["flops"]), key=lambda one: one["flops"])
        cheapest = next((one for one in able if _costs_at_most(max_drop, record, one, full, metric)), None)
        if best is None or (cheapest is not None and cheapest["flops"] < best["flops"]):
            best = cheapest or full
            chosen = ChosenRule(None if cheapest is None else cheapest["at"], _saving(points, full))
    return chosen


def _costs_at_most(drop: float, record: Record, one: dict[str, Any], full: dict[str, Any], metric: Metric) -> bool:
    lost = full["score"] - one["score"]
    if lost > drop:
        return False
    ours, theirs = (replay(record, rule).logits for rule in (one["at"], None))
    return lost + standard_error(record, ours, theirs, metric) <= drop


def speeds(record: Record, rule: Any, metric: Metric, bill: Bill) -> list[dict[str, Any]]:
    """What a rule saves from cautious to fast."""
    return _saving(_points(record, rule, metric, bill), point(record, None, metric, bill))


def _points(record: Record, rule: Any, metric: Metric, bill: Bill) -> list[dict[str, Any]]:
    rules = [at for _, at in sweep(rule)]
    return [{"at": at, **found} for at, found in zip(rules, points(record, rules, metric, bill), strict=True)]


def _candidates(record: Record) -> list[Any]:
    """One rule, because the best of many on some rows is seldom the best on others: entropy where answers have
    probabilities, else patience at several tolerances."""
    if suits(Entropy(), record.kind, tuple(record.stops[:-1]), bool(record.error_probability)):
        return [Entropy()]
    return tolerant_rules(record, range(len(record)))


def tolerant_rules(record: Record, rows: Sequence[int]) -> list[Any]:
    """Patience with numbers, at tolerances by how far the answers of some rows lie apart."""
    spread = record.logits[record.stops[-1]][list(rows)].std().item()
    return [Patience(1, tolerance=max(share * spread, 1e-6)) for share in TOLERANCES]


def _saving(points: list[dict[str, Any]], full: dict[str, Any]) -> list[dict[str, Any]]:
    """Only thresholds that save more than all before them."""
    found: list[dict[str, Any]] = []
    for one in points:
        saved = round(1 - one["flops"] / full["flops"], 6)
        if saved > (found[-1]["saved"] if found else 0.0):
            found.append({"rule": one["rule"], "saved": saved, "score": one["score"]})
    return found


@torch.no_grad()
def suspicion(record: Record, metric: Metric) -> str | None:
    """Why the answers at full depth look as if nothing had been learnt; None where they do not."""
    if getattr(metric, "of_scores", False) or len(record) < 2:
        return None
    predicted, labels, _ = record.answers(record.logits[record.stops[-1]], metric)
    if len(labels) and (predicted == predicted[:1]).all() and not (labels == labels[:1]).all():
        return "every dev row gets the same answer"
    if predicted.ndim == 1 and labels.dtype.kind in "iu":
        share = (labels == _most_common(labels)).mean()
        if (right := (predicted == labels).mean()) <= share < 1:
            return f"{right:.1%} of the dev answers are right, no more than if all were the commonest one"
    return None


def _most_common(labels: Any) -> Any:
    values, counts = torch.as_tensor(labels).unique(return_counts=True)
    return values[counts.argmax()].item()
