"""A bound for every layer, learned from a record: heads are not equally to be trusted where they are equally sure.

A logistic regression foresees what a row loses by leaving: one slope over the certainty, stretched to log-odds, and an
offset for every layer, drawn to their mean. A row may leave where the loss foreseen is below a threshold, which is the
only knob; `tilt` lets early layers, which save more, take more risk. A free search over all bounds (coordinate search,
started by dynamic programming) is cheaper on the rows it saw and dearer on others: `benchmarks/calibration.py` compares
them. The offsets do what a temperature for every head would.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import expit

from paredown.calibration.judged import Judged
from paredown.evaluation.replay import certainties

FORESEEN = tuple(np.linspace(-9.0, 0.0, 61).tolist())  # log-odds of a loss, from cautious to fast
TILTS = (0.0, 1.0)  # log-odds that the first head may risk beyond the last
STEPS, LONGEST, SETTLED = 50, 1.0, 1e-6  # of Newton's method
TINY = 1e-9  # a deviation that is none


def learned_rules(
    judged: Judged,
    rule: Any,
    units: np.ndarray,
    foreseen: Sequence[float] = FORESEEN,
    tilts: Sequence[float] = TILTS,
) -> list[list[Any]]:
    """The rule with bounds that some units teach: for every tilt, at every threshold of the loss foreseen."""
    seen, rows = certainties(judged.record, rule), judged.rows_of(units)
    values, losses = seen.values[:, rows], np.maximum(judged.losses_at_exits(seen)[:-1, rows], 0.0)
    if not losses.any():  # nothing can be learned where nothing is lost
        return []
    order = values.flatten().sort().values  # bounds are values that occur
    scale, spread = _standardised(rule.stretched(order).numpy()), _standardised(rule.stretched(values).numpy())
    slope, offsets = foresee(spread, losses)
    early = np.linspace(1.0, 0.0, len(values))

    def at(chance: float, tilt: float) -> Any:
        below = np.searchsorted(scale, (chance + tilt * early - offsets) / slope)
        bounds = order.numpy()[np.maximum(below - 1, 0)]
        return rule.at_bounds(dict(zip(seen.steps, bounds.tolist(), strict=False)))

    return [list(dict.fromkeys(at(chance, tilt) for chance in foreseen)) for tilt in tilts]


def _standardised(values: np.ndarray) -> np.ndarray:
    """Of mean 0 and deviation 1; where nothing counts, certainty is infinite, and here as large as any."""
    finite = values[np.isfinite(values)]
    return (values.clip(finite.min(), finite.max()) - finite.mean()) / max(float(finite.std()), TINY)


def foresee(values: np.ndarray, losses: np.ndarray, ridge: float = 1.0) -> tuple[float, np.ndarray]:
    """Slope (below 0) and offsets [layers] of the log-odds of a loss; both arguments are [layers, rows]."""
    layers = len(values)
    weights = np.array([-1.0] + [-3.0] * layers)
    for _ in range(STEPS):
        chance = expit(weights[0] * values + weights[1:, None])
        error, spread = losses - chance, np.maximum(chance * (1 - chance), 1e-6)
        pull = ridge * (weights[1:] - weights[1:].mean())
        gradient = np.append((error * values).sum(), error.sum(1) - pull)
        curvature = np.diag(np.append((spread * values**2).sum() + ridge, spread.sum(1) + ridge))
        curvature[0, 1:] = curvature[1:, 0] = (spread * values).sum(1)
        step = np.clip(np.linalg.solve(curvature, gradient), -LONGEST, LONGEST)
        weights += step
        if np.abs(step).max() < SETTLED:
            break
    return min(float(weights[0]), -1e-3), weights[1:]
