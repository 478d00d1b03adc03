"""Record once, replay every plan, score it, count its cost, report it."""

from paredown.evaluation.choices import score_choices, write_candidates, write_letters
from paredown.evaluation.choosing import ChosenRule, choose
from paredown.evaluation.cost import Bill, Cost, Work
from paredown.evaluation.elue import Curve, Standing, compare, elue_score
from paredown.evaluation.frontier import area, front
from paredown.evaluation.hotpot import HotpotPredictions, score_hotpot
from paredown.evaluation.intervals import intervals
from paredown.evaluation.metrics import METRICS, Metric, metric_for, metric_named
from paredown.evaluation.record import Record, record
from paredown.evaluation.replay import SPEEDS, Replay, curve, replay, sweep
from paredown.evaluation.report import Evaluation, evaluate
from paredown.evaluation.spans import score_spans, write_predictions
from paredown.evaluation.trivia import score_trivia
from paredown.evaluation.worth import Worth, worth

__all__ = [
    "METRICS",
    "SPEEDS",
    "Bill",
    "ChosenRule",
    "Cost",
    "Curve",
    "Evaluation",
    "HotpotPredictions",
    "Metric",
    "Record",
    "Replay",
    "Standing",
    "Work",
    "Worth",
    "area",
    "choose",
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
    "score_choices",
    "score_hotpot",
    "score_spans",
    "score_trivia",
    "sweep",
    "worth",
    "write_candidates",
    "write_letters",
    "write_predictions",
]
