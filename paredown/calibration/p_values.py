"""Finite-sample tests of a mean of bounded losses: how likely so small a mean is, were the risk above its bound.

All are valid for every number of units: under the hypothesis that the risk is at least `bound`, P(p ≤ u) ≤ u.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.special import bdtr, betaincinv, gammaln, xlog1py, xlogy

MOST_ROWS = 10_000_000  # beyond that nobody has more
TAIL = 1e-12  # probability that a sum may leave out; it is added to the p-value


def binomial(errors: float, units: int, bound: float) -> float:
    """The exact test of losses that are 0 or 1."""
    return float(bdtr(errors, units, bound))


def hoeffding_bentkus(mean: float, units: int, bound: float) -> float:
    """For losses in 0..1 (Bates et al. 2021; Angelopoulos et al. 2021, "Learn then Test")."""
    hoeffding = math.exp(-units * _divergence(min(mean, bound), bound))
    bentkus = math.e * binomial(math.ceil(units * mean), units, bound)
    return min(hoeffding, bentkus)


def _divergence(mean: float, bound: float) -> float:
    """Kullback-Leibler, of one Bernoulli from another."""
    right = mean * math.log(mean / bound) if mean > 0 else 0.0
    wrong = (1 - mean) * math.log((1 - mean) / (1 - bound)) if mean < 1 else 0.0
    return right + wrong


def paired(differences: np.ndarray, bound: float, level: float) -> float:
    """For differences of two losses, in -1..1, whose mean is the drop; `level` is that of the test it is made for.

    A difference that is not whole becomes one at random: 0.3 is 1 three times in ten, so the mean stays what it is.
    """
    chance = np.random.default_rng(0).random(len(differences))
    whole = np.floor(differences + chance)
    return paired_counts(int((whole > 0).sum()), int((whole < 0).sum()), len(differences), bound, level)


@lru_cache(2**16)  # neighbouring thresholds often lose the same
def paired_counts(lost: int, won: int, units: int, bound: float, level: float) -> float:
    """The exact unconditional test of differences that are 1, -1 or 0, of how many units lost and won; a p-value above
    the level may be larger still.

    Rescaling to 0..1 would throw the power away: most units neither lose nor win. The share of units that change, π, is
    a nuisance. Given that m changed, the losses among them are binomial with the share (π + μ) / 2π, which grows with
    the drop μ; so where few losses speak against the hypothesis, μ = bound is its hardest case for every π. What speaks
    as much against it as what was seen is told by the signed root of the likelihood ratio: for every m, some number of
    losses and all below. The p-value is the probability of that at the worst π that is credible (Berger and Boos 1994):
    π is outside the interval with probability level / 50, which is added.
    """
    slack = level / 50
    if lost - won >= units * bound:
        return 1.0
    least, most = _between(lost + won, units, slack)
    if most < bound:
        return slack
    changed = np.arange(_hardly_less(units * least), min(_hardly_more(units * max(most, bound)), units) + 1)
    event = _as_extreme(changed, units, bound, _signed_root(lost, won, units, bound))
    likely = float(np.clip((lost + won) / units, max(least, bound), most))
    at_likely = _probability(event, changed, units, bound, np.array([likely]))
    if at_likely > level:
        return at_likely
    worst = _probability(event, changed, units, bound, _shares(max(least, bound), most, units, bound, slack))
    return min(1.0, worst + 2 * slack + 2 * TAIL)


def _between(count: int, units: int, level: float) -> tuple[float, float]:
    """Clopper's and Pearson's interval of a share."""
    least = float(betaincinv(count, units - count + 1, level / 2)) if count else 0.0
    most = float(betaincinv(count + 1, units - count, 1 - level / 2)) if count < units else 1.0
    return least, most


def _signed_root(lost: Any, won: Any, units: int, bound: float) -> Any:
    """Of twice the log likelihood ratio, of any drop against `bound`; above 0 where the drop seen is smaller."""
    same = units - lost - won
    linear = 2 * bound * (units - lost) - (lost + won) * (1 - bound)
    wins = (np.sqrt(linear**2 + 8 * units * won * bound * (1 - bound)) - linear) / (4 * units)  # the likeliest share
    likely = xlogy(lost, lost / units) + xlogy(won, won / units) + xlogy(same, same / units)
    bounded = xlogy(lost, wins + bound) + xlogy(won, wins) + xlogy(same, np.maximum(1 - bound - 2 * wins, 0.0))
    return np.sign(units * bound - lost + won) * np.sqrt(np.maximum(2 * (likely - bounded), 0.0))


def _as_extreme(changed: np.ndarray, units: int, bound: float, root: float) -> np.ndarray:
    """The most losses among so many changes whose root is as large, by bisection; -1 where none is."""
    low, high = np.full(len(changed), -1), changed.copy()
    while (low < high).any():
        middle = (low + high + 1) // 2
        fine = _signed_root(middle, changed - middle, units, bound) >= root - 1e-9
        low, high = np.where(fine, middle, low), np.where(fine, high, middle - 1)
    return low


def _probability(event: np.ndarray, changed: np.ndarray, units: int, bound: float, shares: np.ndarray) -> float:
    """Of the event, at the share of changes where it is the likeliest; the drop is the bound."""
    some = event >= 0
    event, changed, shares = event[some].astype(float), changed[some], shares[:, None]
    losses = bdtr(event, changed, (shares + bound) / (2 * shares))
    return float((_binomial_masses(changed, units, shares) * losses).sum(1).max())


def _shares(least: float, most: float, units: int, bound: float, slack: float) -> np.ndarray:
    """Shares of changes so near that between two of them no probability is above both by more than `slack`.

    Its second derivative is at most the Fisher information, units * (π / (π² - bound²) + 1 / (1 - π)), and so lies the
    chord at most width² / 8 times that below. At both ends of 0..1 the laws themselves differ by at most units * width.
    """
    nearest, found = slack / units, [least]
    while (share := found[-1]) < most:
        if share - bound < nearest or 1 - share < 2 * nearest:
            width = nearest
        else:
            information = units * (share / (share**2 - bound**2) + 2 / (1 - share))
            width = min(math.sqrt(8 * slack / information), (1 - share) / 2)
        found.append(min(share + width, most))
    return np.array(found)


def _binomial_masses(counts: np.ndarray, units: int, share: Any) -> np.ndarray:
    ways = gammaln(units + 1) - gammaln(counts + 1) - gammaln(units - counts + 1)
    return np.exp(ways + xlogy(counts, share) + xlog1py(units - counts, -share))


def _hardly_more(mean: float) -> int:
    """A count that a binomial of this mean exceeds with a probability below TAIL (Bernstein)."""
    rare = -math.log(TAIL)
    return math.ceil(mean + rare / 3 + math.sqrt(rare**2 / 9 + 2 * rare * mean))


def _hardly_less(mean: float) -> int:
    """A count that it is below with a probability below TAIL (Chernoff)."""
    return max(0, math.floor(mean - math.sqrt(-2 * math.log(TAIL) * mean)))


def upper_bound(p_value: Callable[[float], float], level: float) -> float:
    """The least bound in 0..1 that a test rejects at a level, which the risk is below with probability 1 - level."""
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if p_value(middle) <= level else (middle, high)
    return high


def rows_needed(p_value: Callable[[int], float], level: float, units: int) -> int | None:
    """The least number of units, a multiple of some hundredth of `units`, at which a test of the same rates would
    succeed; None where millions would not do."""
    step = max(1, units // 100)
    low, high = 0, units
    while p_value(high) > level:
        low, high = high, high * 2
        if high > MOST_ROWS:
            return None
    while high - low > step:
        middle = (low + high) // 2
        low, high = (low, middle) if p_value(middle) <= level else (middle, high)
    return -(-high // step) * step
