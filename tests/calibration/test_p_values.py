"""The tests are valid: p-values are never too often small; and Hoeffding-Bentkus is what others compute."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paredown.calibration.p_values import (
    _as_extreme,
    _probability,
    _shares,
    binomial,
    hoeffding_bentkus,
    paired,
    paired_counts,
    rows_needed,
    upper_bound,
)

# mean loss, units, bound, p: mapie.risk_control.methods.compute_hoeffding_bentkus_p_value of MAPIE 1.6.0, then the same
# with binary=True, where it is below the Hoeffding bound too.
MAPIE = [
    (0.0, 50, 0.01, 0.6050060671375347),
    (0.0, 300, 0.05, 2.0753033477681188e-07),
    (0.0, 1000, 0.01, 4.3171247410655437e-05),
    (0.004, 50, 0.1, 0.012233477239785868),
    (0.004, 300, 0.01, 0.49366670230436127),
    (0.004, 1000, 0.01, 0.07797771984120144),
    (0.004, 10000, 0.01, 1.701616989905468e-11),
    (0.01, 50, 0.05, 0.2903095558849117),
    (0.01, 300, 0.01, 1.0),
    (0.01, 300, 0.05, 0.00044597194382302004),
    (0.037, 50, 0.05, 0.9072086618132238),
    (0.037, 300, 0.05, 0.5574977624486815),
    (0.037, 1000, 0.05, 0.08335445424806051),
    (0.037, 10000, 0.05, 7.257554746895689e-10),
    (0.05, 300, 0.1, 0.0034430013064623787),
    (0.05, 10000, 0.1, 2.6263384781219797e-74),
    (0.2, 1000, 0.1, 1.0),
]
BINARY = [
    (4, 1000, 0.01, 0.028686399999004478),
    (37, 1000, 0.05, 0.03066439004792706),
    (15, 300, 0.1, 0.0012666093965739257),
]
LEVELS = (0.005, 0.01, 0.05, 0.1, 0.2)


@pytest.mark.parametrize(("mean", "units", "bound", "expected"), MAPIE)
def test_hoeffding_bentkus_is_that_of_mapie(mean: float, units: int, bound: float, expected: float) -> None:
    assert min(hoeffding_bentkus(mean, units, bound), 1.0) == pytest.approx(expected, abs=1e-10, rel=1e-9)


@pytest.mark.parametrize(("errors", "units", "bound", "expected"), BINARY)
def test_whole_losses_are_tested_exactly(errors: int, units: int, bound: float, expected: float) -> None:
    assert binomial(errors, units, bound) == pytest.approx(expected, abs=1e-10)


@given(st.integers(20, 400), st.floats(0.005, 0.4))
def test_p_values_of_shares_are_never_too_often_small(units: int, bound: float) -> None:
    """By exact enumeration of all counts, at the edge of the hypothesis."""
    counts = np.arange(units + 1)
    chance = np.exp([_log_mass(count, units, bound) for count in counts])
    for test in (binomial, lambda count, n, at: hoeffding_bentkus(count / n, n, at)):
        found = np.array([test(count, units, bound) for count in counts])
        for level in LEVELS:
            assert chance[found <= level].sum() <= level + 1e-9


@settings(max_examples=10, deadline=None)
@given(st.integers(40, 160), st.floats(0.01, 0.2), st.floats(0.0, 0.3), st.sampled_from(LEVELS))
def test_p_values_of_drops_are_never_too_often_small(units: int, bound: float, better: float, level: float) -> None:
    """By exact enumeration of losses and gains, of the law at the edge: P(worse) - P(better) is the bound."""
    assert _rejected(units, bound, better, level) <= level + 1e-9


@pytest.mark.parametrize("better", [0.005, 0.01, 0.02])
def test_a_drop_at_its_bound_passes_nearly_as_often_as_it_may(better: float) -> None:
    assert 0.6 * 0.05 < _rejected(1000, 0.01, better, 0.05) <= 0.05


def _rejected(units: int, bound: float, better: float, level: float) -> float:
    """The probability that the test passes at the edge."""
    total, most = 0.0, -1  # losses that still pass; a further gain never makes them fewer
    for won in range(math.ceil(units * better + 12 * math.sqrt(units * better) + 12)):
        while most + 1 + won <= units and paired_counts(most + 1, won, units, bound, level) <= level:
            most += 1
        passing = range(min(most, units - won) + 1)
        total += sum(math.exp(_log_trinomial(lost, won, units, better + bound, better)) for lost in passing)
    return total


@pytest.mark.parametrize("share", [0.02, 0.2])
def test_fractions_are_tested_validly(share: float) -> None:
    """Differences that are not whole, whose mean is the bound."""
    random = np.random.default_rng(0)
    changed = random.random((4000, 300)) < share
    values = np.where(changed, random.uniform(-0.5, 1.0, changed.shape), 0.0)  # 0.25 on average, where changed
    found = np.array([paired(its, 0.25 * share, 0.05) for its in values[:1000]])
    assert (found <= 0.05).mean() <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / 1000)


def test_rescaling_would_throw_the_power_away() -> None:
    """6 rows lost and 4 won of 2,000: the drop is surely below one point, and the usual way cannot tell."""
    values = np.zeros(2000)
    values[:6], values[6:10] = 1, -1
    assert paired(values, 0.01, 0.05) < 0.01
    assert hoeffding_bentkus(float((values.mean() + 1) / 2), 2000, (1 + 0.01) / 2) > 0.5


def test_more_losses_are_never_more_significant() -> None:
    found = [paired_counts(lost, 3, 500, 0.05, 0.05) for lost in range(40)]
    assert [p <= 0.05 for p in found] == sorted((p <= 0.05 for p in found), reverse=True)
    assert paired_counts(200, 200, 500, 0.05, 0.05) > 0.05  # where most units change, more are needed
    assert paired_counts(1800, 2200, 5000, 0.05, 0.05) < 0.05


def test_the_chance_between_two_shares_is_hardly_above_both() -> None:
    """The worst share of changes is looked for among some, which are near enough."""
    units, bound, slack = 400, 0.02, 0.001
    changed = np.arange(units + 1)
    event = _as_extreme(changed, units, bound, 1.7)

    def most(shares: np.ndarray) -> float:
        return _probability(event, changed, units, bound, shares)

    some = _shares(bound, 1.0, units, bound, slack)
    for left, right in pairwise(some[::7]):
        between = np.linspace(left, right, 9)
        nearest = some[(some >= left) & (some <= right)]
        assert most(between) <= most(nearest) + slack


def test_an_upper_bound_is_the_last_that_is_rejected() -> None:
    bound = upper_bound(lambda at: binomial(3, 500, at), 0.05)
    assert binomial(3, 500, bound) <= 0.05 < binomial(3, 500, bound - 1e-6)


def test_rows_needed_are_those_at_which_the_test_succeeds() -> None:
    def at(rows: int) -> float:
        return binomial(0.004 * rows, rows, 0.01)

    needed = rows_needed(at, 0.05, 200)
    assert needed is not None and at(needed) <= 0.05 < at(needed // 2)
    assert rows_needed(lambda rows: binomial(0.02 * rows, rows, 0.01), 0.05, 200) is None


def _log_mass(count: int, units: int, share: float) -> float:
    ways = math.lgamma(units + 1) - math.lgamma(count + 1) - math.lgamma(units - count + 1)
    return ways + count * math.log(share) + (units - count) * math.log1p(-share)


def _log_trinomial(lost: int, won: int, units: int, worse: float, better: float) -> float:
    if won and not better:
        return -math.inf
    rest = units - lost - won
    ways = math.lgamma(units + 1) - math.lgamma(lost + 1) - math.lgamma(won + 1) - math.lgamma(rest + 1)
    gained = won * math.log(better) if won else 0.0
    return ways + lost * math.log(worse) + gained + rest * math.log1p(-worse - better)
