"""Finite-sample tests of a mean of bounded losses: how likely so small a mean is, were the risk above its bound.

All are valid for every number of units: under the hypothesis that the risk is at least `bound`, P(p ≤ u) ≤ u.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from scipy.special import bdtr, bdtrc, betaincinv, gammaln, xlog1py, xlogy

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

    Rescaling to 0..1 would throw the power away: most units lose nothing and gain nothing. Here the share of units that
    change, π = E|X|, is a nuisance (Berger and Boos 1994): it is at most U with probability 1 - level / 10, and that
    tenth is added to the p-value. Among all differences with E|X| ≤ U and mean ≥ bound, the sum is the likeliest to be
    small where X is 1, -1 or 0 with probabilities (U + bound) / 2, (U - bound) / 2 and 1 - U:

    * a larger mean only makes the sum larger; a larger π is a mean-preserving spread of X;
    * where all X are whole, d/dπ P(S ≤ t) = n/2 (P(S' = t + 1) - P(S' = t)), S' without one unit. For π ≤ 1/2 the
      polynomial of X has real roots, so S' is a sum of independent Bernoulli variables, whose mode is within 1 of their
      mean (Darroch 1964): the derivative is positive for t ≤ (n - 1) bound - 2. Other t are not significant;
    * otherwise X is still below that law in convex order, and Bentkus (2004) gives e times its probability; so it does
      where U is above 1/2, of the law with U = 1, which is a binomial.
    """
    units, nuisance = len(differences), level / 10
    total, change = float(differences.sum()), float(np.abs(differences).sum())
    whole = bool((differences == np.round(differences)).all())
    return paired_sums(total, change, units, bound, nuisance, whole)


@lru_cache(2**16)  # neighbouring thresholds often lose the same
def paired_sums(total: float, change: float, units: int, bound: float, nuisance: float, whole: bool) -> float:
    """The same from the sum of the differences and that of their sizes."""
    lost = math.ceil(total - 1e-9)
    if units == 0 or lost > (units - 1) * bound - 2:
        return 1.0
    most = _at_most(change, units, nuisance, whole)
    if most < bound:
        return nuisance
    if most > 0.5:  # as if every unit changed
        return min(1.0, nuisance + math.e * binomial(math.ceil((lost + units) / 2), units, (1 + bound) / 2))
    factor = 1.0 if whole else math.e
    return min(1.0, nuisance + factor * _difference_at_most(lost, units, (most + bound) / 2, (most - bound) / 2))


def _at_most(total: float, units: int, level: float, whole: bool) -> float:
    """What the mean of values in 0..1 is at most, with probability 1 - level."""
    if whole:  # Clopper and Pearson
        return 1.0 if total >= units else float(betaincinv(total + 1, units - total, 1 - level))
    return upper_bound(lambda bound: hoeffding_bentkus(total / units, units, bound), level)


def _difference_at_most(lost: int, units: int, worse: float, better: float) -> float:
    """P(A - B ≤ lost) for the counts of a trinomial. Its polynomial has real roots, so A - B is distributed as the
    difference of two independent binomials, whose probabilities are p and p + worse - better."""
    gap = 1 - (worse - better)
    down = (gap - math.sqrt(gap * gap - 4 * better)) / 2
    up = down + worse - better
    counts = np.arange(min(_hardly_more(units * up), units) + 1)
    fewer = np.where(counts > lost, bdtrc(counts - lost - 1, units, down), 1.0)
    return TAIL + float(_binomial_masses(counts, units, up) @ fewer)


def _binomial_masses(counts: np.ndarray, units: int, share: float) -> np.ndarray:
    ways = gammaln(units + 1) - gammaln(counts + 1) - gammaln(units - counts + 1)
    return np.exp(ways + xlogy(counts, share) + xlog1py(units - counts, -share))


def _hardly_more(mean: float) -> int:
    """A count that a binomial of this mean exceeds with a probability below TAIL (Bernstein)."""
    rare = -math.log(TAIL)
    return math.ceil(mean + rare / 3 + math.sqrt(rare**2 / 9 + 2 * rare * mean))


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
