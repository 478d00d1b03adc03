"""Every exit rule from cautious to fast: what it scores and costs, and what each unit runs and scores under it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from paredown.calibration.judged import Judged
from paredown.calibration.losses import Risk
from paredown.errors import BadInput
from paredown.evaluation.intervals import intervals, mean_intervals
from paredown.evaluation.metrics import Metric
from paredown.evaluation.record import Record
from paredown.evaluation.replay import SPEEDS, certainties, points, sweep
from paredown.evaluation.report import fitting_rules

FEW_SPEEDS = SPEEDS[3::4]  # where every point takes long: windows are decoded, or a metric is resampled by itself
SHIFTS = 40  # settings of a rule with a bound per layer
DRAWN, FEW_DRAWN = 20_000_000, 200  # rows that all resamples have at most, and resamples of a metric that is no mean


@dataclass(frozen=True)
class RuleCurve:
    """One exit rule at several settings, cautious first."""

    name: str
    rules: list[Any]
    points: list[dict[str, Any]]  # of all units: score with its interval, layers, FLOPs
    layers: np.ndarray  # [settings, units] layers run; windows of a question on average
    scores: np.ndarray  # [settings, units] in 0..1


def unit_risk(record: Record, metric: Metric) -> tuple[Risk, str]:
    """How a unit is judged alone, and that in words: by the metric where it is a mean over units."""
    score = Risk("score", metric)
    unit = "question" if record.windows else "row"
    try:
        score.check(record.kind, record.labelled)
    except BadInput:
        if record.kind.numeric and record.labels is not None:
            scale = max(float(record.labels.max() - record.labels.min()), 1e-12)
            return Risk(
                "error", metric, scale
            ), f"1 less the distance to the right number, where {scale:.3g} counts as 1"
        return Risk("error", metric), f"the share of a {unit}'s answers that is right"
    return score, f"the {metric_name(metric)} of a {unit}"


def metric_name(metric: Metric) -> str:
    return getattr(metric, "__name__", str(metric)).replace("_", " ")


def losses_at_full_depth(record: Record, risk: Risk) -> np.ndarray:
    """[units]"""
    end = record.logits[record.stops[-1]]
    if not record.windows:
        return risk.of_rows(record, end, end)
    predicted, asked, _ = record.answers_of_units([end], [0] * len(record))
    return risk.of_units(predicted, asked, predicted, record)


def curves(judged: Judged, own: Any) -> list[RuleCurve]:
    """All rules that fit the answers, the plan's own first."""
    record = judged.record
    found = fitting_rules("all", record.kind, tuple(record.stops[:-1]), bool(record.error_probability), own)
    families = {rule.name: _settings(record, judged.risk, rule) for rule in found}
    if own is not None:
        if _per_layer(own):
            families = {f"{own.name}, a bound per layer": [*_shifted(record, own), own]} | families
        else:
            first = [*families.pop(own.name, [own.at_speed(0)]), own]
            families = {own.name: first} | families
    at_full_depth = losses_at_full_depth(judged.full, judged.risk)
    return [_curve(judged, name, rules, own, at_full_depth) for name, rules in families.items()]


def _per_layer(rule: Any) -> bool:
    return isinstance(getattr(rule, rule.knob, None), tuple)


def _settings(record: Record, risk: Risk, rule: Any) -> list[Any]:
    speeds = FEW_SPEEDS if record.windows or risk.name != "score" else SPEEDS
    return [at for _, at in sweep(rule, (0.0, *speeds))]


def _shifted(record: Record, rule: Any) -> list[Any]:
    """A rule with a bound per layer, all moved by as much: from nobody leaves to everybody. Counts cannot be."""
    never = rule.at_speed(0)
    if isinstance(rule.limits[0], int):
        return [never]
    seen = certainties(record, rule)
    steps = seen.steps[:-1]
    bounds = np.array(rule.bounds(steps))
    beyond = (seen.values.numpy() - bounds[:, None]).ravel()
    moves = np.quantile(beyond[np.isfinite(beyond)], np.linspace(0, 1, SHIFTS))
    return [never, *(rule.at_bounds(dict(zip(steps, (bounds + move).tolist(), strict=True))) for move in moves)]


def _curve(judged: Judged, name: str, rules: Sequence[Any], own: Any, at_full_depth: np.ndarray) -> RuleCurve:
    chosen, layers = _distinct(judged, rules, own)
    losses = judged.of(chosen).losses
    scores = np.clip(1 - losses - at_full_depth, 0, 1)
    found = points(judged.record, chosen, judged.risk.metric, judged.bill)
    for point, (low, high) in zip(found, _bands(judged, chosen, scores), strict=True):
        point |= {"low": low, "high": high}
    return RuleCurve(name, chosen, found, layers, scores)


def _distinct(judged: Judged, rules: Sequence[Any], own: Any) -> tuple[list[Any], np.ndarray]:
    """The settings under which rows leave differently, the plan's own among them, cautious first; and [settings,
    units] the layers run."""
    seen = certainties(judged.record, rules[0])
    exits = seen.exits(rules)
    layers = torch.tensor(seen.steps)[exits].numpy()
    order = sorted(range(len(rules)), key=lambda at: (-layers[at].sum(), rules[at] == own))
    kept: list[int] = []
    for at in order:
        if kept and np.array_equal(layers[at], layers[kept[-1]]):
            if rules[at] != own:
                continue
            kept.pop()
        kept.append(at)
    return [rules[at] for at in kept], _of_units(judged, layers[kept])


def _of_units(judged: Judged, layers: np.ndarray) -> np.ndarray:
    """[settings, units] means of [settings, rows]."""
    if not judged.record.windows:
        return layers.astype(float)
    counts = np.bincount(judged.unit_of)
    return np.stack([np.bincount(judged.unit_of, one) for one in layers]) / counts


def _bands(judged: Judged, rules: Sequence[Any], scores: np.ndarray) -> list[tuple[float, float]]:
    """95 % intervals of the scores."""
    if judged.risk.name == "score":
        return mean_intervals(scores, int(np.clip(DRAWN // scores.shape[1], 100, 1000)))
    seen = certainties(judged.record, rules[0])
    answers = [seen.logits(exits) for exits in seen.exits(rules)]
    return intervals(judged.record, answers, judged.risk.metric, FEW_DRAWN)
