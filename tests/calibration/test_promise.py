"""The promise is kept: on resampled units the certified plan loses more than allowed as seldom as was promised."""

from __future__ import annotations

import math
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from paredown.calibration import Promise, Risk
from paredown.calibration.calibrating import Search, halves
from paredown.calibration.judged import Judged, Outlook
from paredown.calibration.testing import best_order, certified, conformal, fixed_sequence
from paredown.errors import CannotPromise
from paredown.evaluation import Bill, Cost, Work, metric_for, sweep
from paredown.evaluation.report import fitting_rules
from paredown.plan import Plan
from tests.evaluation.made import sst2

RESAMPLES, UNITS, LEVEL = 500, 400, 0.05
MARGIN = 0.02  # what chance adds to the share of broken promises, in so many resamples
BOUNDS = {"score": 0.02, "disagreement": 0.03}
SPEEDS = tuple((percent / 100) ** 3 for percent in range(10, 101, 6))
LAYERS = 8


@cache
def ground(risk: str) -> Judged:
    """All that there is: 4,000 rows, whose mean loss is the true risk."""
    seen = sst2(4000, LAYERS)
    cost = Cost(Work(), (Work(0, 100),) * LAYERS, Work(0, 1), {layer: Work(0, 1) for layer in range(LAYERS)})
    return Judged(seen, Bill(seen, cost), Risk(risk, metric_for(seen.kind)), seen)  # type: ignore[arg-type]


def every_rule() -> list[Any]:
    seen = ground("score").record
    return fitting_rules("all", seen.kind, tuple(seen.stops[:-1]), True)


@cache
def world(risk: str) -> tuple[Outlook, list[list[int]]]:
    """Every rule from cautious to fast, on all rows, and which plans are those of each rule."""
    families = [[at for _, at in sweep(rule, SPEEDS)] for rule in every_rule()]
    ends = np.cumsum([0, *map(len, families)])
    return ground(risk).of([at for family in families for at in family]), [
        list(range(start, end)) for start, end in pairwise(ends)
    ]


def draws(count: int = RESAMPLES, units: int = UNITS) -> np.ndarray:
    return np.random.default_rng(0).integers(0, ground("score").units, (count, units))


def broken(risk: str, chosen: list[int | None]) -> float:
    """The share of resamples whose plan loses more than allowed in truth."""
    true = world(risk)[0].losses.mean(1)
    return sum(plan is not None and bool(true[plan] > BOUNDS[risk]) for plan in chosen) / len(chosen)


@pytest.mark.parametrize("risk", BOUNDS)
@pytest.mark.parametrize("rule", range(len(every_rule())), ids=[rule.name for rule in every_rule()])
def test_the_promise_is_kept_for_every_rule(rule: int, risk: str) -> None:
    everything, families = world(risk)
    path, bound, signed = families[rule], BOUNDS[risk], risk == "score"
    chosen, careless = [], []
    for units in draws():
        losses = everything.losses[path][:, units]
        passed = fixed_sequence(losses, bound, LEVEL, signed)
        chosen.append(path[passed - 1] if passed else None)
        seem_fine = np.flatnonzero(losses.mean(1) <= bound)
        careless.append(path[seem_fine[-1]] if len(seem_fine) else None)
    assert broken(risk, chosen) <= LEVEL + MARGIN
    if every_rule()[rule].name in ("entropy", "confidence", "margin"):  # finely graded: the control must be caught
        assert broken(risk, careless) > LEVEL + MARGIN
        assert any(plan is not None for plan in chosen)


@pytest.mark.parametrize("risk", BOUNDS)
def test_the_promise_is_kept_by_all_rules_together(risk: str) -> None:
    """One half finds the order over all rules, the other tests; or units apart find it, and all test; or all test, and
    the rules share the level."""
    everything, families = world(risk)
    bound, signed = BOUNDS[risk], risk == "score"
    known = best_order(everything.of(np.arange(UNITS)), families, bound, UNITS)
    split, apart, shared, careless = [], [], [], []
    for units in draws(200):
        first, second = everything.of(units[: UNITS // 2]), everything.of(units[UNITS // 2 :])
        path = best_order(first, families, bound, UNITS - UNITS // 2)
        passed = fixed_sequence(second.losses[path], bound, LEVEL, signed)
        split.append(path[passed - 1] if passed else None)
        others = everything.of(UNITS + units % (ground(risk).units - UNITS))
        passed = fixed_sequence(others.losses[known], bound, LEVEL, signed)
        apart.append(known[passed - 1] if passed else None)
        whole = everything.of(units)
        found = certified(whole, families, bound, LEVEL, signed)
        shared.append(min(found, key=lambda plan: whole.flops[plan].mean(), default=None))
        fine = np.flatnonzero(whole.losses.mean(1) <= bound)
        careless.append(int(fine[whole.flops[fine].mean(1).argmin()]))
    chance = 2 * math.sqrt(LEVEL * (1 - LEVEL) / 200)
    assert broken(risk, split) <= LEVEL + chance
    assert broken(risk, apart) <= LEVEL + chance
    assert broken(risk, shared) <= LEVEL + chance
    assert broken(risk, careless) > 0.5  # the best of many on some rows seldom is the best on others


def test_bounds_that_are_learned_keep_the_promise() -> None:
    """The whole search, bounds for every layer among its plans."""
    judged, promise = ground("disagreement"), Promise(max_drop=0.05, risk="disagreement")
    worse, faster = 0, []
    for units in draws(40, 800):
        search = Search({Plan(): judged}, promise, units[:400], units[400:], ["entropy"])
        try:
            plan, _ = search.cheapest(0.05)
        except CannotPromise:
            continue
        truth = judged.of([plan.exit])
        worse += truth.losses.mean() > 0.05
        faster.append(judged.stock_flops.mean() / truth.flops.mean())
    assert worse <= 5  # more than 5 of 40 come by chance once in 200 times, at 5 %
    assert len(faster) > 30 and np.mean(faster) > 1.5


def test_a_bound_on_average_holds_on_average() -> None:
    everything, families = world("disagreement")
    path = families[[rule.name for rule in every_rule()].index("entropy")]
    true, risks = everything.losses.mean(1), []
    for units in draws(units=100):
        passed = conformal(everything.losses[path][:, units], 0.05)
        risks.append(true[path[passed - 1]] if passed else 0.0)
    assert 0.02 < np.mean(risks) <= 0.05


def test_halves_share_no_unit() -> None:
    first, second = halves(101, 0.5, seed=3)
    assert sorted([*first, *second]) == list(range(101))
    with pytest.raises(CannotPromise, match="too few"):
        halves(30, 0.5, seed=0)
