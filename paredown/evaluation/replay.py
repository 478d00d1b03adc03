"""Any exit rule on recorded logits: what running the model with it would answer, in milliseconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from paredown.errors import BadPlan
from paredown.evaluation.cost import Bill, Cost
from paredown.evaluation.metrics import Metric
from paredown.evaluation.record import Record

SPEEDS = tuple(round((place / 100) ** 3, 6) for place in range(1, 101))  # dense at the cautious end


@dataclass(frozen=True)
class Replay:
    logits: Tensor  # what each row left with
    layers: Tensor  # [rows] layers run

    def histogram(self, depth: int) -> list[int]:
        """Rows that left after 1, 2, … layers."""
        return torch.bincount(self.layers - 1, minlength=depth).tolist()


@torch.no_grad()
def replay(record: Record, rule: Any) -> Replay:
    """Answers and exits of every row under `rule` (None: full depth)."""
    stops = record.stops
    layers = torch.full((len(record),), stops[-1])
    if rule is None:
        return Replay(record.logits[stops[-1]], layers)
    if len(stops) < 2:
        raise BadPlan("no layer before the last has a head, so there is no exit to replay")
    rule.check(record.kind, tuple(stops[:-1]), bool(record.doubt))
    logits = torch.empty_like(record.logits[stops[-1]])
    memory = rule.start(len(record), record.lengths.device)
    staying = torch.ones(len(record), dtype=torch.bool)
    for stop in stops:
        # Rows that have left are asked too: a rule sees each row alone, and what it computes of the evidence is kept.
        evidence = record.evidence(stop)
        if stop == stops[-1]:
            logits[staying] = rule.answer(evidence, memory)[staying]
            break
        certainty, after = rule.certainty(evidence, memory)
        gone = ((certainty > rule.bounds((stop,))[0]) & staying).nonzero().squeeze(1)
        if len(gone):
            logits[gone] = rule.answer(evidence, memory)[gone]
            layers[gone] = stop
            staying[gone] = False
            if not bool(staying.any()):
                break
        memory = after
    return Replay(logits, layers)


def sweep(rule: Any, speeds: Sequence[float] = SPEEDS) -> list[tuple[float, Any]]:
    """The rule at every speed that makes a difference to it, cautious first."""
    found: dict[Any, float] = {}
    for speed in sorted(speeds):
        found.setdefault(rule.at_speed(speed), speed)
    return [(speed, at) for at, speed in found.items()]


def curve(record: Record, rules: Sequence[Any], metric: Metric, cost: Cost | None = None) -> list[dict[str, Any]]:
    """Score against cost for several rules, one point each; `speedup` is in layers, `flops_speedup` in FLOPs."""
    bill = Bill(record, cost)
    return [point(record, rule, metric, bill) for rule in rules]


def point(record: Record, rule: Any, metric: Metric, bill: Bill, done: Replay | None = None) -> dict[str, Any]:
    """Score and mean cost of one rule."""
    done = replay(record, rule) if done is None else done
    score = record.score(done.logits, metric)
    return {
        "rule": str(rule) if rule is not None else "full depth",
        "score": score,
        **bill.mean(done.layers, rule is not None),
    }
