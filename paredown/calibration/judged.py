"""What every unit costs and loses under exit rules, from a record: the ground that calibration stands on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from paredown.calibration.losses import Risk
from paredown.evaluation.cost import Bill
from paredown.evaluation.record import Record
from paredown.evaluation.replay import Certainties, certainties
from paredown.plan import Plan


@dataclass(frozen=True)
class Outlook:
    """Some plans on the same units: what each unit costs and loses."""

    plans: list[Plan]
    flops: np.ndarray  # [plans, units]
    losses: np.ndarray  # [plans, units] against full depth, in -1..1; 0..1 where the risk cannot be a gain

    def __len__(self) -> int:
        return len(self.plans)

    def of(self, units: np.ndarray) -> Outlook:
        return Outlook(self.plans, self.flops[:, units], self.losses[:, units])

    def only(self, plans: Sequence[int]) -> Outlook:
        chosen = list(plans)
        return Outlook([self.plans[plan] for plan in chosen], self.flops[chosen], self.losses[chosen])

    def __add__(self, other: Outlook) -> Outlook:
        return Outlook(
            self.plans + other.plans,
            np.concatenate([self.flops, other.flops]),
            np.concatenate([self.losses, other.losses]),
        )


@dataclass(frozen=True)
class Judged:
    """One depth and one reducer, recorded; `full` is the record at full depth that losses are measured against."""

    record: Record
    bill: Bill
    risk: Risk
    full: Record
    _each: dict[Any, Any] = field(default_factory=dict, repr=False)

    @cached_property
    def units(self) -> int:
        return len(self.record.units)

    @cached_property
    def unit_of(self) -> np.ndarray:
        """[rows] the unit of each."""
        found = np.empty(len(self.record), dtype=np.int64)
        for unit, rows in enumerate(self.record.units):
            found[rows] = unit
        return found

    def rows_of(self, units: np.ndarray) -> np.ndarray:
        """The rows of some units; of one that is drawn twice, twice."""
        if not self.record.windows:
            return units
        return np.concatenate([self.record.units[unit] for unit in units])

    @cached_property
    def stock_flops(self) -> np.ndarray:
        """[units] of the stock model, which runs all layers and asks no exit."""
        assert self.bill.cost is not None
        stock = self.record.summed(self.bill.cost.full(self.record.lengths))
        return self._summed(stock.numpy())

    def of(self, rules: Sequence[Any], units: np.ndarray | None = None) -> Outlook:
        """Costs and losses of rules, on all units or some; None is no rule, every row runs to the end."""
        chosen = np.arange(self.units) if units is None else units
        plans = [self.record.plan.but(exit=rule) for rule in rules]
        flops, losses = np.empty((len(rules), len(chosen))), np.empty((len(rules), len(chosen)))
        groups: dict[Any, list[int]] = {}
        for index, rule in enumerate(rules):
            groups.setdefault(None if rule is None else rule.certainty_key, []).append(index)
        for indexes in groups.values():
            together = [rules[index] for index in indexes]
            flops[indexes], losses[indexes] = self._of_group(together, chosen)
        return Outlook(plans, flops, losses)

    def _of_group(self, rules: list[Any], units: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Of rules that share their certainties."""
        seen, rows = certainties(self.record, rules[0]), self.rows_of(units)
        exits = left_at(seen, rules, rows)
        layers = np.array(seen.steps)[exits]
        flops = self._flops_at(rules[0] is not None)[rows, layers - 1]
        if not self.record.windows:
            return flops, self.losses_at_exits(seen)[exits, rows]
        counts = [len(self.record.units[unit]) for unit in units]
        starts = np.cumsum([0, *counts[:-1]])
        return np.add.reduceat(flops, starts, axis=1), self._losses_of_units(seen, exits, units, starts)

    def layers_of_units(self, rule: Any, units: np.ndarray) -> np.ndarray:
        """How many of some units ran 1, 2, … layers; windows of a question on average."""
        seen, rows = certainties(self.record, rule), self.rows_of(units)
        layers = np.array(seen.steps)[left_at(seen, [rule], rows)[0]]
        counts = np.array([len(self.record.units[unit]) for unit in units])
        means = np.add.reduceat(layers, np.cumsum(counts) - counts) / counts
        return np.bincount(np.rint(means).astype(int) - 1, minlength=len(self.record.depth))

    def _flops_at(self, exits: bool) -> np.ndarray:
        """[rows, layers run]"""
        key = ("flops", exits)
        if key not in self._each:
            on_the_way, at_end, _ = self.bill.flops
            found = on_the_way if exits else at_end.unsqueeze(1).expand_as(on_the_way)
            self._each[key] = found.double().numpy()
        return self._each[key]

    def losses_at_exits(self, seen: Certainties) -> np.ndarray:
        """[exits, rows] the loss of every row at every exit, less that at full depth where it can be a gain.

        Windows of a question have no loss of their own: theirs is to answer otherwise than at full depth.
        """
        key = ("losses", id(seen))
        if key not in self._each:
            end = self.full.logits[self.full.stops[-1]]
            risk = replace(self.risk, name="disagreement") if self.record.windows else self.risk
            found = np.stack([risk.of_rows(self.record, logits, end) for logits in seen.outputs])
            if risk.signed:
                found = found - risk.of_rows(self.full, end, end)
            self._each[key] = found
        return self._each[key]

    def _losses_of_units(
        self, seen: Certainties, exits: np.ndarray, units: np.ndarray, starts: np.ndarray
    ) -> np.ndarray:
        """[rules, units] the same for units of several windows, which are decoded once for the exits of each."""
        kept: dict[Any, float] = self._each.setdefault(("decoded", id(seen)), {})
        ends = np.append(starts[1:], exits.shape[1])
        found = np.empty((len(exits), len(units)))
        for rule, each in enumerate(exits.tolist()):
            keys = [(unit, *each[start:end]) for unit, start, end in zip(units.tolist(), starts, ends, strict=True)]
            if fresh := [key for key in dict.fromkeys(keys) if key not in kept]:
                kept.update(zip(fresh, self._decoded_losses(seen, fresh), strict=True))
            found[rule] = [kept[key] for key in keys]
        return found

    def _decoded_losses(self, seen: Certainties, keys: list[tuple[int, ...]]) -> np.ndarray:
        """Of units, each with the exits of its windows."""
        record, units = self.record, [unit for unit, *_ in keys]
        said = [record.decoded(unit, seen.outputs, left) for unit, *left in keys]
        predicted, right = record.kind.judged_units(said, [record.asked[unit] for unit in units])
        theirs = self._at_full_depth[units]
        found = self.risk.of_units(predicted, right, theirs, record)
        return found - self.risk.of_units(theirs, right, theirs, record) if self.risk.signed else found

    @cached_property
    def _at_full_depth(self) -> np.ndarray:
        """[units] what is answered there."""
        return self.full.answers_of_units([self.full.logits[self.full.stops[-1]]], [0] * len(self.full))[0]

    def _summed(self, work: np.ndarray) -> np.ndarray:
        """[units] of [rows]"""
        return np.bincount(self.unit_of, work, minlength=self.units)


def left_at(seen: Certainties, rules: Sequence[Any], rows: np.ndarray) -> np.ndarray:
    """[rules, rows] the index of the exit that some rows leave at."""
    asked = seen.steps[:-1]
    if not asked:
        return np.zeros((len(rules), len(rows)), dtype=np.int64)
    values = seen.values[:, torch.from_numpy(rows)]
    bounds = torch.tensor([rule.bounds(asked) for rule in rules], dtype=torch.float32)
    return torch.stack([(values <= its.unsqueeze(1)).long().cumprod(0).sum(0) for its in bounds]).numpy()
