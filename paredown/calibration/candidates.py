"""Which plans are tried: exit rules at every threshold, bounds for every layer, token thresholds, depths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from paredown.answers import Encoded
from paredown.calibration.judged import Judged, Outlook
from paredown.calibration.losses import Risk
from paredown.calibration.per_layer import learned_rules
from paredown.evaluation.choosing import tolerant_rules
from paredown.evaluation.cost import Bill, Cost
from paredown.evaluation.record import Record, record
from paredown.evaluation.replay import sweep
from paredown.evaluation.report import fitting_rules
from paredown.model import AdaptiveModel
from paredown.plan import Plan
from paredown.registry import reducers

REDUCED = (0.1, 0.2, 0.35, 0.5)  # speeds of a reducer; each is another pass over the rows


def recorded_plans(model: AdaptiveModel, depths: Sequence[tuple[int, ...] | None], reduce: Sequence[Any]) -> list[Plan]:
    """The depths and reducers to record; losses are measured against the first, full depth with every token."""
    plans = [Plan(model.plan.depth)]
    for depth in dict.fromkeys([model.plan.depth, *depths]):
        plans += [Plan(depth), *[Plan(depth, reduce=one) for one in reduce]]
    found = list(dict.fromkeys(plans))
    for plan in found:
        model.route(plan)
    return found


def usual_reducers(model: AdaptiveModel) -> list[Any]:
    """Of the plan's own reducer, or of the selectors that the model has: several thresholds."""
    if (own := model.plan.reduce) is not None:
        return list(dict.fromkeys([own, *[own.at_speed(speed) for speed in REDUCED]]))
    known = [reducers.make(name) for name in reducers.names()] if model.selectors else []
    return [one.at_speed(speed) for one in known if not one.reads_attention for speed in REDUCED]


@dataclass(frozen=True)
class Ground:
    """All that was recorded of the same units."""

    records: dict[Plan, tuple[Record, Bill]]  # full depth first
    exact: Record | None = None  # full depth, as the encoder itself answers; None: as that record does

    @classmethod
    def record(cls, model: AdaptiveModel, rows: Sequence[Encoded], plans: Sequence[Plan], batch_size: int) -> Ground:
        found = {}
        for index, plan in enumerate(plans):
            seen = record(model, rows, batch_size, plan, hashed=index == 0)
            seen.check_finite()
            found[plan] = seen, Bill(seen, Cost.of(model, plan))
        if model.executor.exact:
            return cls(found)
        with model.keeping_runtime():
            return cls(found, record(model.use("exact"), rows, batch_size, plans[0], hashed=False))

    @property
    def full(self) -> Record:
        return next(iter(self.records.values()))[0]

    @property
    def units(self) -> int:
        return len(self.full.units)

    def judged(self, risk: Risk) -> dict[Plan, Judged]:
        """By the plan that was recorded."""
        full = self.exact or self.full
        return {plan: Judged(seen, bill, risk, full) for plan, (seen, bill) in self.records.items()}


def candidates(judged: Judged, rules: Any, units: np.ndarray, per_layer: bool, own: Any = None) -> list[list[Any]]:
    """The exit rules to try on one record, those of each kind from cautious to fast. What is learned is learned on
    `units`; without any, thresholds are those of fixed speeds."""
    seen = judged.record
    asked, estimates = tuple(seen.stops[:-1]), bool(seen.error_probability)
    found = fitting_rules(rules, seen.kind, asked, estimates, own)
    if rules == "all" and asked and seen.kind.numeric and len(units):
        found += tolerant_rules(seen, judged.rows_of(units).tolist())
    families = [[at for _, at in sweep(rule)] for rule in found]
    if per_layer and len(units):
        families += [its for rule in found if rule.per_layer for its in learned_rules(judged, rule, units)]
    return [family for family in families if family]


def outlook(judged: dict[Plan, Judged], plans: Sequence[Plan], units: np.ndarray) -> Outlook:
    """What plans cost and lose on units, in the order of the plans."""
    found: Outlook | None = None
    order: list[int] = []
    for recorded, its in judged.items():
        indexes = [index for index, plan in enumerate(plans) if plan.but(exit=None) == recorded]
        if indexes:
            some = its.of([plans[index].exit for index in indexes], units)
            found, order = (some if found is None else found + some), order + indexes
    assert found is not None
    return found.only(np.argsort(order).tolist())
