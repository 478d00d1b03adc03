"""Record once, replay every plan, score it, count its cost, report it."""

from paredown.evaluation.cost import Bill, Cost, Work
from paredown.evaluation.elue import Curve, Standing, compare, elue_score
from paredown.evaluation.frontier import area, front
from paredown.evaluation.intervals import intervals
from paredown.evaluation.metrics import METRICS, Metric, metric_for, metric_named
from paredown.evaluation.record import Record, record
from paredown.evaluation.replay import SPEEDS, Replay, curve, replay, sweep
from paredown.evaluation.report import Evaluation, evaluate

__all__ = [
    "METRICS",
    "SPEEDS",
    "Bill",
    "Cost",
    "Curve",
    "Evaluation",
    "Metric",
    "Record",
    "Replay",
    "Standing",
    "Work",
    "area",
    "compare",
    "curve",
    "elue_score",
    "evaluate",
    "front",
    "intervals",
    "metric_for",
    "metric_named",
    "record",
    "replay",
    "sweep",
]
