"""Exit rules on recorded logits: what running the model with them would answer, all thresholds of a rule at once."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from paredown.errors import BadPlan
from paredown.evaluation.cost import Bill, Cost
from paredown.evaluation.metrics import MEANS, Metric
from paredown.evaluation.record import Record
from paredown.state import Memory

# Dense at the cautious end, and where the last rows leave: heads that know little differ there alone.
_CAUTIOUS, _LAST = ([(percent / 100) ** 3 for percent in its] for its in (range(1, 101), range(2, 26, 2)))
SPEEDS = tuple(sorted(round(speed, 6) for speed in (*_CAUTIOUS, *(1 - rest for rest in _LAST))))


@dataclass(frozen=True)
class Replay:
    logits: Tensor  # what each row left with
    layers: Tensor  # [rows] layers run

    def histogram(self, depth: int) -> list[int]:
        """Rows that left after 1, 2, … layers."""
        return torch.bincount(self.layers - 1, minlength=depth).tolist()


Answers = tuple[np.ndarray, np.ndarray, np.ndarray]  # predicted [exits, answers, …], labels [answers, …], row [answers]


@dataclass(frozen=True)
class Certainties:
    """What rules that share a certainty see in a record; their bounds then decide where each row leaves."""

    steps: list[int]  # layers run at every exit; the last one is the end, where all leave
    values: Tensor  # [exits before the end, rows] in 32 bits; -inf where NaN, which is above no bound
    outputs: list[Tensor]  # the logits rows leave with at every exit
    _answers: dict[Metric, Answers] = field(default_factory=dict, repr=False)

    @cached_property
    def _surest(self) -> Tensor:
        """[rows, exits before the end] the largest certainty so far."""
        return self.values.cummax(0).values.T.contiguous() if len(self.values) else self.values.T

    def exits(self, rules: Sequence[Any]) -> Tensor:
        """[rules, rows] the index of the exit that each row leaves at: the first whose certainty is above the bound."""
        asked, rows = self.steps[:-1], self.values.shape[1]
        if not asked:
            return torch.zeros(len(rules), rows, dtype=torch.long)
        bounds = torch.tensor([rule.bounds(asked) for rule in rules], dtype=torch.float32)  # [rules, exits]
        first = bounds[:, 0].expand(rows, -1).contiguous()
        found = torch.searchsorted(self._surest, first, right=True).T.contiguous()  # how many exits a row stays at
        for rule in (bounds != bounds[:, :1]).any(1).nonzero().flatten().tolist():  # a bound for each layer
            found[rule] = (self.values <= bounds[rule].unsqueeze(1)).long().cumprod(0).sum(0)
        return found

    def logits(self, exits: Tensor) -> Tensor:
        """What rows answer that leave at these exits, [rows]."""
        found = torch.empty_like(self.outputs[-1])
        for exit in exits.unique().tolist():
            found[exits == exit] = self.outputs[exit][exits == exit]
        return found

    def scores(self, record: Record, exits: Tensor, metric: Metric) -> list[float]:
        """The metric for each of [rules, rows] exits."""
        if record.windows:
            answers = (record.answers_of_units(self.outputs, one) for one in exits.tolist())
            return [record.score_answers(predicted, labels, metric) for predicted, labels, _ in answers]
        predicted, labels, row = self._answered(record, metric)
        if metric in MEANS and len(exits) > 1:  # a single one goes to the metric, which refuses what it cannot score
            each = (MEANS[metric](answers, labels) for answers in predicted)
            sums = np.stack([np.bincount(row, values, minlength=len(record)) for values in each])  # [exits, rows]
            return (sums[exits.numpy(), np.arange(len(record))].sum(1) / len(row)).tolist()
        every = np.arange(len(row))
        return [record.score_answers(predicted[one[row], every], labels, metric) for one in exits.numpy()]

    def _answered(self, record: Record, metric: Metric) -> Answers:
        if metric not in self._answers:
            answers = [record.answers(logits, metric) for logits in self.outputs]
            self._answers[metric] = np.stack([predicted for predicted, _, _ in answers]), *answers[0][1:]
        return self._answers[metric]


@torch.no_grad()
def certainties(record: Record, rule: Any) -> Certainties:
    """The certainties of all rules that differ in the knob alone, computed once; of None: nobody leaves early."""
    key = certainty_key(rule)
    if key not in record._certainties:
        record._certainties[key] = _certainties(record, rule)
    found: Certainties = record._certainties[key]
    return found


def certainty_key(rule: Any) -> Hashable:
    return None if rule is None else rule.certainty_key


def _certainties(record: Record, rule: Any) -> Certainties:
    *asked, end = record.stops
    if rule is None:
        return Certainties([end], torch.empty(0, len(record)), [record.logits[end]])
    values, outputs = [], []
    memory: Memory = {}
    for step in asked:
        evidence = record.evidence(step)
        outputs.append(rule.answer(evidence, memory))
        certainty, memory = rule.certainty(evidence, memory)
        values.append(certainty.masked_fill(certainty.isnan(), float("-inf")))
    outputs.append(rule.answer(record.evidence(end), memory))
    return Certainties(record.stops, torch.stack(values), outputs)


def _check(record: Record, rule: Any) -> None:
    if rule is None:
        return
    asked = tuple(record.stops[:-1])
    if not asked:
        raise BadPlan("no layer before the last has a head, so there is no exit to replay")
    rule.check(record.kind, asked, bool(record.error_probability))


def replay(record: Record, rule: Any) -> Replay:
    """Answers and exits of every row under `rule` (None: full depth)."""
    _check(record, rule)
    seen = certainties(record, rule)
    (exits,) = seen.exits([rule])
    return Replay(seen.logits(exits), torch.tensor(seen.steps)[exits])


def sweep(rule: Any, speeds: Sequence[float] = SPEEDS) -> list[tuple[float, Any]]:
    """The rule at every speed that makes a difference to it, cautious first."""
    found: dict[Any, float] = {}
    for speed in sorted(speeds):
        found.setdefault(rule.at_speed(speed), speed)
    return [(speed, at) for at, speed in found.items()]


def curve(record: Record, rules: Sequence[Any], metric: Metric, cost: Cost | None = None) -> list[dict[str, Any]]:
    """Score against cost for several rules, one point each; `speedup` is in layers, `flops_speedup` in FLOPs."""
    return points(record, rules, metric, Bill(record, cost))


def points(record: Record, rules: Sequence[Any], metric: Metric, bill: Bill) -> list[dict[str, Any]]:
    """Score and mean cost of every rule; those that share a certainty are judged together."""
    groups: dict[Hashable, list[Any]] = {}
    for rule in dict.fromkeys(rules):
        _check(record, rule)
        groups.setdefault(certainty_key(rule), []).append(rule)
    found: dict[Any, dict[str, Any]] = {}
    for together in groups.values():
        seen = certainties(record, together[0])
        exits = seen.exits(together)
        work = bill.means(torch.tensor(seen.steps)[exits], together[0] is not None)
        figures = {"score": seen.scores(record, exits, metric), **work}
        for rule, *values in zip(together, *figures.values(), strict=True):
            name = "full depth" if rule is None else str(rule)
            found[rule] = {"rule": name, **dict(zip(figures, values, strict=True))}
    return [dict(found[rule]) for rule in rules]


def point(record: Record, rule: Any, metric: Metric, bill: Bill) -> dict[str, Any]:
    """Score and mean cost of one rule."""
    return points(record, [rule], metric, bill)[0]
