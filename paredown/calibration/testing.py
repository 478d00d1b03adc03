"""Which plans keep a promise: tested one after the other from cautious to fast, on units that did not choose them.

Learn then Test (Angelopoulos et al. 2021), split as in Pareto testing (Laufer-Goldshtein et al. 2023): some of the
units find the best family of plans, such as a rule at all its thresholds; the others test it from dear to cheap, each
plan at the full level, until one fails. The first false rejection has the probability `level` at most, and with it the
whole sequence. Where no units choose, every family is tested so, at a share of the level (Bonferroni).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from paredown.calibration.judged import Outlook
from paredown.calibration.p_values import (
    binomial,
    hoeffding_bentkus,
    paired,
    paired_counts,
    rows_needed,
    upper_bound,
)

SURE = 1.645  # standard errors that a mean is hardly beyond, at the usual level
OWN = 0.3  # of what a plan is expected to lose is its own loss on few units; the rest is what its changes usually lose


def p_value(losses: np.ndarray, bound: float, level: float, signed: bool) -> float:
    """How likely losses [units] with so small a mean are, were their expectation above the bound."""
    if signed:
        return paired(losses, bound, level)
    if _whole(losses):
        return binomial(float(losses.sum()), len(losses), bound)
    return hoeffding_bentkus(float(losses.mean()), len(losses), bound)


def risk_at_most(losses: np.ndarray, level: float, signed: bool) -> float:
    """What the expectation is below with probability 1 - level."""
    return upper_bound(lambda bound: p_value(losses, bound, level, signed), level)


def units_needed(losses: np.ndarray, bound: float, level: float, signed: bool) -> int | None:
    """How many units like these would do; None where none would."""
    units, total, change = len(losses), float(losses.sum()), float(np.abs(losses).sum())
    whole = _whole(losses)

    def at(many: int) -> float:
        times = many / units
        if signed:
            lost, won = math.ceil((change + total) / 2 * times), math.floor((change - total) / 2 * times)
            return paired_counts(lost, won, many, bound, level)
        return binomial(total * times, many, bound) if whole else hoeffding_bentkus(total / units, many, bound)

    return rows_needed(at, level, units)


def _whole(losses: np.ndarray) -> bool:
    return bool((losses == np.round(losses)).all())


def best_order(outlook: Outlook, families: Sequence[Sequence[int]], bound: float, testing: int) -> list[int]:
    """The plans of the family that seems to pass furthest on so many units that test, from dear to cheap.

    An order over several families (Pareto testing) is cheaper on these units and dearer on others: the best of many
    seldom are what they seem, and the first that is not ends the sequence.
    """
    costs, needed = outlook.flops.mean(1), _needed_bound(outlook, testing)
    orders = [_in_order(family, costs, needed) for family in families]

    def cheapest(order: list[int]) -> tuple[float, float]:
        passing = [costs[plan] for plan in order if needed[plan] <= bound]
        return min(passing, default=math.inf), min(needed[order])

    return min(orders, key=cheapest, default=[])


def _needed_bound(outlook: Outlook, testing: int) -> np.ndarray:
    """[plans] The least bound that each would keep on so many units. Losses and gains cancel, and few units say little
    of their balance, but more of how many change: what is lost for each is much alike for all plans."""
    losses, changes = outlook.losses.mean(1), np.abs(outlook.losses).mean(1)
    some = changes > 0
    usual = float(np.median(losses[some] / changes[some])) if some.any() else 0.0
    return OWN * losses + (1 - OWN) * max(usual, 0.0) * changes + SURE * np.sqrt(changes / testing)


def _in_order(family: Sequence[int], costs: np.ndarray, needed: np.ndarray) -> list[int]:
    """From dear to cheap; of those that cost the same, the surest."""
    found: list[int] = []
    for plan in sorted(family, key=lambda plan: (-costs[plan], needed[plan])):
        if not found or costs[plan] < costs[found[-1]]:
            found.append(plan)
    return found


def fixed_sequence(losses: np.ndarray, bound: float, level: float, signed: bool) -> int:
    """How many of the plans, [plans, units] in their order, pass before one fails."""
    for passed, its in enumerate(losses):
        if p_value(its, bound, level, signed) > level:
            return passed
    return len(losses)


def conformal(losses: np.ndarray, bound: float) -> int:
    """How many plans pass where the risk is bounded in expectation, over units and those that calibrate (conformal
    risk control: Angelopoulos et al. 2024). It asks for losses that never shrink on the way: their largest so far."""
    units = losses.shape[1]
    largest = np.maximum.accumulate(losses, axis=0).sum(1) if len(losses) else np.zeros(0)
    return int(np.searchsorted((largest + 1) / (units + 1), bound, side="right"))


def certified(outlook: Outlook, paths: Sequence[Sequence[int]], bound: float, level: float, signed: bool) -> list[int]:
    """Of every path, the plans that pass; paths share the level."""
    share = level / max(len(paths), 1)
    test = partial(fixed_sequence, bound=bound, level=share, signed=signed)
    return [plan for path in paths for plan in list(path)[: test(outlook.losses[list(path)])]]
