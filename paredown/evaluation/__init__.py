"""Record once, replay every plan, score it."""

from paredown.evaluation.metrics import METRICS, Metric, metric_for, metric_named
from paredown.evaluation.record import Record, record
from paredown.evaluation.replay import Replay, curve, replay

__all__ = ["METRICS", "Metric", "Record", "Replay", "curve", "metric_for", "metric_named", "record", "replay"]
