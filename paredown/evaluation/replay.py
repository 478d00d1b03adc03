"""Any exit rule on recorded logits: what running the model with it would answer, in milliseconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from paredown.evaluation.metrics import Metric
from paredown.evaluation.record import Record
from paredown.evidence import keep_rows


@dataclass(frozen=True)
class Replay:
    logits: Tensor  # what each row left with
    layers: Tensor  # [rows] layers run


def replay(record: Record, rule: Any) -> Replay:
    """Answers and exits of every row under `rule` (None: full depth)."""
    stops = sorted(record.logits)
    rows = torch.arange(len(record.lengths))
    logits = record.logits[stops[-1]].clone()
    layers = torch.full_like(rows, stops[-1])
    if rule is None:
        return Replay(logits, layers)
    rule.check(record.kind, tuple(stops[:-1]), bool(record.doubt))
    memory = rule.start(len(rows), rows.device)
    for stop in stops:
        evidence = record.evidence(stop).keep_rows(rows)
        said = rule.answer(evidence, memory)
        if stop == stops[-1]:
            logits[rows] = said
            break
        leave, memory = rule.leave(evidence, memory)
        gone = rows[leave]
        logits[gone], layers[gone] = said[leave], stop
        rows, memory = rows[~leave], keep_rows(memory, ~leave)
        if not len(rows):
            break
    return Replay(logits, layers)


def curve(record: Record, rules: list[Any], metric: Metric) -> list[dict[str, Any]]:
    """Score against cost for several rules: one point each, with the speed-up in layers."""
    full = max(record.logits)
    points = []
    for rule in rules:
        result = replay(record, rule)
        mean = result.layers.double().mean().item()
        points.append(
            {
                "rule": str(rule),
                "score": record.score(result.logits, metric),
                "layers": mean,
                "speedup": full / mean,
            }
        )
    return points
