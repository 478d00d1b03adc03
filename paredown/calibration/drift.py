"""Whether live rows are still like those that certified a plan: where they leave, and how often they answer otherwise
than at full depth where some of them are run there too. Neither needs labels."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.stats import chi2

from paredown.certificate import Certificate
from paredown.errors import BadInput

LEAST_EXPECTED = 5.0  # units of a cell of a table, for its statistic to be distributed as it should
GRID = 1000  # means that a confidence sequence tells apart
MOST_BET = 0.5  # share of the capital


@dataclass(frozen=True)
class Drift:
    """What is known so far. `reasons` say why the certificate may no longer apply; none: nothing speaks against it."""

    units: int
    exit_p_value: float  # the smallest of a block, times the share of the level that the block had
    mean_layers: float
    certified_layers: float
    shadowed: int  # units that also ran at full depth
    disagreement: float | None  # of these, on average
    low: float  # the expected disagreement lies between these, however often one looks
    high: float
    promised: float  # what it was certified to be at most
    reasons: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"reasons": list(self.reasons)}


class DriftMonitor:
    """Takes units as they come and may be asked at any time: the probability of ever raising a false alarm is `level`
    at most, half of it for each of the two tests.

    The exits of every block of units are compared with those of the certificate (G-test of two samples); block k has
    the share 6 / (π k)² of the level. The disagreement is followed by a confidence sequence.
    """

    def __init__(self, certificate: Certificate, level: float = 0.05, block: int = 1000):
        self.certificate, self.level, self.block = certificate, level, block
        self.expected = np.array(certificate.exits, dtype=float)
        self.shadow = ConfidenceSequence(level / 2)
        self.units, self.blocks, self.p_value, self._layers = 0, 0, 1.0, 0.0
        self._counts = np.zeros_like(self.expected)

    def add(self, layers: float) -> None:
        """A unit that ran so many layers; of a question with several windows, on average."""
        index = round(layers) - 1
        if not 0 <= index < len(self._counts):
            raise BadInput(f"a unit ran {layers:g} layers, but the certified plan has {len(self._counts)}")
        self._counts[index] += 1
        self.units, self._layers = self.units + 1, self._layers + layers
        if self._counts.sum() == self.block:
            self.blocks += 1
            share = 6 / (math.pi * self.blocks) ** 2
            self.p_value = min(self.p_value, same_distribution(self.expected, self._counts) / share)
            self._counts[:] = 0

    def add_shadow(self, disagreement: float) -> None:
        """A unit that also ran at full depth, and how much it answered otherwise there, in 0..1."""
        self.shadow.add(disagreement)

    @property
    def promised(self) -> float:
        """What share of the answers may differ from those at full depth."""
        known = self.certificate
        return known.bound if known.risk == "disagreement" else known.disagreement_bound

    def verdict(self) -> Drift:
        steps = np.arange(1, len(self.expected) + 1)
        mean = self._layers / self.units if self.units else 0.0
        certified = float(self.expected @ steps / self.expected.sum())
        reasons = []
        if self.p_value <= self.level / 2:
            reasons.append(f"rows leave elsewhere than certified: after {mean:.2f} layers, not {certified:.2f}")
        low, high = self.shadow.interval
        if low > self.promised:
            least, most = f"{100 * low:.2f} %", f"{100 * self.promised:.2f} %"
            reasons.append(f"at least {least} of the answers differ from full depth; certified were at most {most}")
        found = self.shadow.mean
        return Drift(
            self.units,
            min(self.p_value, 1.0),
            mean,
            certified,
            self.shadow.units,
            found,
            low,
            high,
            self.promised,
            tuple(reasons),
        )


class ConfidenceSequence:
    """Bounds on a mean of values in 0..1 that hold at all times together (betting: Waudby-Smith and Ramdas 2024).

    For each mean that might be the true one, somebody bets that the values are larger, and somebody that they are
    smaller; nobody multiplies his capital by 1 / level against the true one, but with probability `level`.
    """

    def __init__(self, level: float):
        self.level = level
        self.means = (np.arange(GRID) + 0.5) / GRID
        self.possible = np.ones(GRID, dtype=bool)
        self._up, self._down = np.zeros(GRID), np.zeros(GRID)  # logarithms of the capitals
        self.units, self._sum, self._squares = 0, 0.5, 0.25  # of the values; of one that nobody saw, to begin with

    def add(self, value: float) -> None:
        spread = self._squares / (self.units + 1)
        times = self.units + 1
        bet = math.sqrt(2 * math.log(2 / self.level) / (spread * times * math.log(times + 1)))
        away = value - self.means
        self._up += np.log1p(np.minimum(bet, MOST_BET / self.means) * away)
        self._down += np.log1p(-np.minimum(bet, MOST_BET / (1 - self.means)) * away)
        self.possible &= np.logaddexp(self._up, self._down) - math.log(2) < math.log(1 / self.level)
        self.units, self._sum = times, self._sum + value
        self._squares += (value - self._sum / (times + 1)) ** 2

    @property
    def mean(self) -> float | None:
        return (self._sum - 0.5) / self.units if self.units else None

    @property
    def interval(self) -> tuple[float, float]:
        """Half a step of the grid wider than the means that are still possible."""
        left = self.means[self.possible]
        if not len(left):  # values that contradict each other: all that is certain is that they have changed
            return 1.0, 0.0
        return float(left[0] - 0.5 / GRID), float(left[-1] + 0.5 / GRID)


def same_distribution(one: np.ndarray, other: np.ndarray) -> float:
    """The p-value of two samples' counts being of one distribution; cells that few fall into are joined to others."""
    table = _joined(np.stack([one, other]).astype(float))
    if table.shape[1] < 2:
        return 1.0
    expected = table.sum(1, keepdims=True) * table.sum(0) / table.sum()
    terms = table * np.log(np.where(table > 0, table, 1.0) / expected)
    return float(chi2.sf(2 * terms.sum(), table.shape[1] - 1))


def _joined(table: np.ndarray) -> np.ndarray:
    """Neighbouring columns together, until both samples are expected to have LEAST_EXPECTED in each."""
    share = table.sum(1).min() / table.sum()
    found: list[np.ndarray] = []
    for column in table.T:
        if found and (found[-1].sum() * share < LEAST_EXPECTED):
            found[-1] = found[-1] + column
        else:
            found.append(column)
    if len(found) > 1 and found[-1].sum() * share < LEAST_EXPECTED:
        last = found.pop()
        found[-1] = found[-1] + last
    return np.stack(found, 1)
