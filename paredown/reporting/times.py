"""Measured time of a row alone by the layers it runs, and what that makes of every setting of a rule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from paredown.answers import Encoded
from paredown.model import AdaptiveModel
from paredown.plan import Plan
from paredown.reporting.curves import RuleCurve
from paredown.runtime.timing import spread, time_plans

TIMED_ROWS, TIMED_DEPTHS = 16, 5


def times(model: AdaptiveModel, rows: Sequence[Encoded], plan: Plan, stops: Sequence[int]) -> dict[str, Any]:
    """Milliseconds of a row alone where all rows leave after so many layers, at a few depths; of the plan; of the
    stock model."""
    timed = spread(rows, TIMED_ROWS)
    some = sorted({stops[round(at)] for at in np.linspace(0, len(stops) - 1, min(len(stops), TIMED_DEPTHS))})
    left = [plan.but(exit=None if stop == stops[-1] else f"at_layer:{stop}") for stop in some]
    taken = time_plans(model, timed, list(dict.fromkeys([*left, plan, Plan()])), 1)
    took = {plan: 1000 * its.seconds_per_row for plan, its in taken.items()}
    return {
        "rows": len(timed),
        "layers": some,
        "milliseconds": [took[one] for one in left],
        "stock": took[Plan()],
        "plan": took[plan],
        "runtime": model.executor.name,
    }


def add_times(curves: Sequence[RuleCurve], known: dict[str, Any]) -> None:
    """What a row takes on average at every setting: the measured times, weighted by how many rows run so far."""
    for curve in curves:
        mean = np.interp(curve.layers, known["layers"], known["milliseconds"]).mean(1)
        for point, took in zip(curve.points, mean.tolist(), strict=True):
            point["milliseconds"] = took
