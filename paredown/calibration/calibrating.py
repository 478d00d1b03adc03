"""calibrate(): the cheapest plan that keeps a promise, or the best one within a budget, with its certificate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from importlib.metadata import version
from itertools import pairwise
from typing import Any

import numpy as np

from paredown import __version__
from paredown.answers import Encoded, joined
from paredown.calibration.candidates import Ground, candidates, outlook, recorded_plans, usual_reducers
from paredown.calibration.judged import Judged, Outlook
from paredown.calibration.losses import Risk, usual_scale
from paredown.calibration.promise import Promise
from paredown.calibration.testing import (
    SURE,
    best_order,
    certified,
    conformal,
    risk_at_most,
    units_needed,
)
from paredown.certificate import Certificate
from paredown.errors import BadInput, BadSetting, CannotPromise
from paredown.evaluation.metrics import Metric, metric_for, metric_named
from paredown.model import AdaptiveModel
from paredown.plan import Plan
from paredown.runtime.timing import milliseconds, spread

SELECTION = 0.2  # of the units choose, unless others do
LEAST_UNITS = 20  # of a half
TIMED_ROWS, MOST_TIMED = 32, 12  # rows that a plan's time is measured on, and plans whose time is
METHODS = {
    "confidence": "learn then test, fixed sequence",
    "average": "conformal risk control",
}


@dataclass(frozen=True)
class Calibrated:
    """A plan and what is promised of it, and the plans that were tested on the way."""

    certificate: Certificate
    tried: int  # plans that were compared
    tested: list[dict[str, Any]]  # from cautious to fast: plan, speed-up, mean loss; those that failed too

    @property
    def plan(self) -> Plan:
        return self.certificate.plan

    def to_json(self) -> dict[str, Any]:
        return {"certificate": self.certificate.to_json(), "tried": self.tried, "tested": self.tested}


def calibrate(
    model: AdaptiveModel,
    rows: Any,
    promise: Promise,
    *,
    metric: Metric | str | None = None,
    rules: str | Sequence[Any] = "all",
    reduce: Sequence[Any] | None = None,
    depths: Sequence[tuple[int, ...] | None] = (),
    per_layer: bool = True,
    selection: float = SELECTION,
    choose_on: Any = None,
    seed: int = 0,
    batch_size: int = 64,
    max_length: int | None = None,
) -> Calibrated:
    """Texts, questions or encoded rows, which neither trained the model nor chose its weights, and are no test set.

    Losses are measured against the depth of the model's plan with every token. `rules`: exit rules to try, "all" that
    fit; `reduce`: reducers, by default thresholds of the plan's own or of the model's selectors; `depths`: more depths.
    `selection` is the share of units that chooses what is tested on the others; 0: all units test, rule by rule, and
    the rules share the level. `choose_on`: other rows choose, such as dev rows, and all of `rows` test. The model stays
    as it is: `model.plan, model.certificate = …` makes the plan its own.
    """
    if not 0 <= selection < 1:
        raise BadSetting(f"selection is the share of units that choose, from 0 to below 1, not {selection}")
    encoded = model.encode(rows, max_length)
    apart = [] if choose_on is None else model.encode(choose_on, max_length)
    plans = recorded_plans(model, depths, usual_reducers(model) if reduce is None else reduce)
    ground = Ground.record(model, joined(apart, encoded), plans, batch_size)
    measure = metric_named(metric) if isinstance(metric, str) else metric or metric_for(model.kind)
    if choose_on is None:
        choosing, testing = halves(ground.units, selection, seed)
    else:
        choosing, testing = first_and_others(ground.units, len(model.kind.by_unit(apart)))
    risk = Risk(promise.risk, measure, usual_scale(ground.full, choosing.tolist()))
    risk.check(model.kind, ground.full.labelled)
    judged = ground.judged(risk)
    search = Search(judged, promise, choosing, testing, rules, per_layer, model.plan.exit, choose_on is not None)
    if promise.max_drop is not None:
        chosen, tested = search.cheapest(promise.max_drop)
    else:
        chosen, tested = search.best_within(_fits(model, promise, judged, encoded))
    facts = _facts(model, chosen, judged, testing, promise)
    if promise.max_latency_ms is not None:
        facts["milliseconds"] = milliseconds(model, spread(encoded, TIMED_ROWS), chosen, 1)
    certificate = Certificate(selected_on=len(choosing), data=ground.full.hashes["data"], **facts)
    return Calibrated(certificate, search.tried, tested)


def halves(units: int, selection: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Units that choose and units that test, at random."""
    order = np.random.default_rng(seed).permutation(units)
    choosing = max(round(units * selection), LEAST_UNITS) if selection else 0
    if units - choosing < LEAST_UNITS:
        raise CannotPromise(f"{units} rows are too few to promise anything: give at least {2 * LEAST_UNITS}")
    return np.sort(order[:choosing]), np.sort(order[choosing:])


def first_and_others(units: int, first: int) -> tuple[np.ndarray, np.ndarray]:
    """The first units choose, the others test."""
    if min(first, units - first) < LEAST_UNITS:
        raise CannotPromise(
            f"{first} rows that choose and {units - first} that test are too few to promise anything: give at least "
            f"{LEAST_UNITS} of each"
        )
    return np.arange(first), np.arange(first, units)


class Search:
    """The plans that keep a promise, on one ground."""

    def __init__(
        self,
        judged: dict[Plan, Judged],
        promise: Promise,
        choosing: np.ndarray,
        testing: np.ndarray,
        rules: str | Sequence[Any] = "all",
        per_layer: bool = True,
        own: Any = None,
        apart: bool = False,
    ):
        """`apart`: the units that choose are no share of those that were given to test."""
        self.judged, self.promise, self.choosing, self.testing = judged, promise, choosing, testing
        self.apart = apart
        full = next(iter(judged))
        self.stock = judged[full].stock_flops
        self.families: list[list[Plan]] = []
        for recorded, its in judged.items():
            if recorded != full:
                self.families.append([recorded])
            for family in candidates(its, rules, choosing, per_layer, own):
                self.families.append([recorded.but(exit=rule) for rule in family])
        self.plans = list(dict.fromkeys(plan for family in self.families for plan in family))
        if not self.plans:
            raise BadInput("there is nothing to choose among: no layer before the last has a head, and no token goes")

    @property
    def tried(self) -> int:
        return len(self.plans)

    @property
    def signed(self) -> bool:
        return next(iter(self.judged.values())).risk.signed

    def speedups(self, seen: Outlook, units: np.ndarray) -> np.ndarray:
        return self.stock[units].mean() / seen.flops.mean(1)

    # The cheapest plan that loses little enough

    def cheapest(self, bound: float) -> tuple[Plan, list[dict[str, Any]]]:
        """The plan, and what was tested."""
        paths = self._paths(bound)
        level, order = self.promise.level, [plan for path in paths for plan in path]
        if not order:
            raise self._cannot(bound, None)
        seen = outlook(self.judged, order, self.testing)
        starts = np.cumsum([0, *map(len, paths)])
        indexes = [list(range(start, end)) for start, end in pairwise(starts)]
        if self.promise.guarantee == "average":
            passed = indexes[0][: conformal(seen.losses, bound)]
        else:
            passed = certified(seen, indexes, bound, level, self.signed)
        if not passed:
            raise self._cannot(bound, seen.losses[0], len(paths))
        best = min(passed, key=lambda plan: seen.flops[plan].mean())
        return order[best], self._lines(seen, passed)

    def _paths(self, bound: float) -> list[list[Plan]]:
        """In the order of testing: one over all plans, or one for every rule."""
        if not len(self.choosing):
            if self.promise.guarantee == "average":
                raise BadSetting("a guarantee on average needs one path: let some units choose it, --selection 0.5")
            return self.families
        seen = outlook(self.judged, self.plans, self.choosing)
        number = {plan: index for index, plan in enumerate(self.plans)}
        families = [[number[plan] for plan in family] for family in self.families]
        order = best_order(seen, families, bound, len(self.testing))
        dear = self.judged[next(iter(self.judged))].of([None], self.choosing).flops.mean()
        return [[self.plans[plan] for plan in order if seen.flops[plan].mean() < dear]]

    def _cannot(self, bound: float, losses: np.ndarray | None, paths: int = 1) -> CannotPromise:
        """Why nothing passed, and how many rows would do."""
        units = len(self.testing)
        kept = f"no plan that saves work loses at most {100 * bound:g} points"
        if losses is None:
            return CannotPromise(f"{kept}, not even on the {len(self.choosing):,} rows that chose; allow a larger loss")
        needed = units_needed(losses, bound, self.promise.level / paths, self.signed)
        found = f"{kept} with {100 * self.promise.confidence:g} % confidence on {units:,} rows"
        lost, changed = 100 * losses.mean(), 100 * np.abs(losses).mean()
        rate = f"the most cautious one lost {lost:.2f} there and changed {changed:.2f} %"
        if needed is None or self.promise.guarantee == "average":
            return CannotPromise(f"{found}: {rate}; more rows would not help, allow a larger loss")
        chosen_by = 0 if self.apart else len(self.choosing)
        total = round(needed * (units + chosen_by) / units)
        return CannotPromise(f"{found}: {rate}; at these rates about {total:,} rows would be needed in all")

    def _lines(self, seen: Outlook, passed: Sequence[int]) -> list[dict[str, Any]]:
        speedups, there = self.speedups(seen, self.testing), set(passed)
        return [
            {
                "plan": str(plan),
                "flops_speedup": float(speedups[index]),
                "loss": float(seen.losses[index].mean()),
                "passed": index in there,
            }
            for index, plan in enumerate(seen.plans)
        ]

    # The best plan within a budget

    def best_within(self, fits: Any) -> tuple[Plan, list[dict[str, Any]]]:
        """The plan that seems to lose least of those that fit, on the units that choose; what it loses is then
        measured on the others."""
        if not len(self.choosing):
            raise BadSetting("the best plan is chosen on some units and certified on others: give a selection above 0")
        seen = outlook(self.judged, self.plans, self.choosing)
        units = np.sqrt(len(self.choosing))
        lost = seen.losses.mean(1) + seen.losses.std(1) / units
        dearer = seen.flops.mean(1) + SURE * seen.flops.std(1) / units  # so that other units hardly cost more
        speedups = self.stock[self.choosing].mean() / dearer
        front: list[int] = []
        for plan in np.lexsort((lost, -speedups)):  # the fastest first
            if not front or lost[plan] < lost[front[-1]]:
                front.append(int(plan))
        chosen = fits([self.plans[plan] for plan in front], speedups[front])
        return chosen, self._lines(outlook(self.judged, [chosen], self.testing), [0])


def _fits(model: AdaptiveModel, promise: Promise, judged: dict[Plan, Judged], rows: Sequence[Encoded]) -> Any:
    """Of plans from fast to slow, the last, hence best, that is fast enough."""

    def by_flops(plans: list[Plan], speedups: np.ndarray) -> Plan:
        assert promise.target_speedup is not None
        enough = [plan for plan, speedup in zip(plans, speedups, strict=True) if speedup >= promise.target_speedup]
        if not enough:
            most = f"the fastest plan needs {speedups[0]:.2f} times fewer FLOPs than the stock model"
            raise CannotPromise(f"{most}, not {promise.target_speedup:g} times")
        return enough[-1]

    def by_time(plans: list[Plan], speedups: np.ndarray) -> Plan:
        assert promise.max_latency_ms is not None
        some = [plans[round(at)] for at in np.linspace(0, len(plans) - 1, min(len(plans), MOST_TIMED))]
        timed, fast = spread(rows, TIMED_ROWS), None
        for plan in dict.fromkeys(some):
            took = milliseconds(model, timed, plan, 1)
            if took > promise.max_latency_ms:
                if fast is None:
                    least = f"the fastest plan takes {took:.2f} ms for a row on this machine"
                    raise CannotPromise(f"{least}, not {promise.max_latency_ms:g}")
                break
            fast = plan
        assert fast is not None
        return fast

    return by_flops if promise.target_speedup is not None else by_time


def _facts(
    model: AdaptiveModel, plan: Plan, judged: dict[Plan, Judged], testing: np.ndarray, promise: Promise
) -> dict[str, Any]:
    """What the units that test say of the chosen plan."""
    its = judged[plan.but(exit=None)]
    seen = its.of([plan.exit], testing)
    differing = replace(its, risk=replace(its.risk, name="disagreement"), _each={}).of([plan.exit], testing).losses[0]
    losses, level = seen.losses[0], promise.level
    bound = promise.max_drop if promise.max_drop is not None else risk_at_most(losses, level, its.risk.signed)
    stock = next(iter(judged.values())).stock_flops
    return {
        "risk": promise.risk,
        "metric": getattr(its.risk.metric, "__name__", str(its.risk.metric)),
        "bound": bound,
        "confidence": promise.confidence if promise.guarantee == "confidence" else None,
        "method": METHODS[promise.guarantee],
        "asked": promise.asked,
        "units": len(testing),
        "observed": float(losses.mean()),
        "speedup": float(stock[testing].mean() / seen.flops.mean()),
        "exits": tuple(its.layers_of_units(plan.exit, testing).tolist()),
        "disagreement": float(differing.mean()),
        "disagreement_bound": risk_at_most(differing, level, signed=False),
        "plan": plan,
        "model": model.fingerprint(),
        "runtime": model.executor.name,
        "exact": model.executor.exact,
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "versions": {"paredown": __version__, **{name: version(name) for name in ("torch", "transformers")}},
        "scale": its.risk.scale,
    }
