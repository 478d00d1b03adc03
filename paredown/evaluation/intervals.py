"""How sure a score is: percentile intervals over resampled rows (bootstrap), all resamples computed at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from paredown.evaluation.metrics import METRICS, MeanScore, Metric
from paredown.evaluation.record import Record

Interval = tuple[float, float]


def intervals(
    record: Record,
    answers: Sequence[Tensor],
    metric: Metric,
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> list[Interval]:
    """One interval for each set of logits; the same resamples for all, so that they can be compared.

    Rows are drawn, with all their tokens; where the metric ranks the rows of a group, groups are.
    """
    chosen = _drawn(record, metric, resamples, seed)
    tails = [50 * (1 - level), 50 * (1 + level)]
    found = []
    for logits in answers:
        low, high = np.percentile(resampled(record, logits, metric, chosen), tails)
        found.append((float(low), float(high)))
    return found


def mean_intervals(each: np.ndarray, resamples: int = 1000, level: float = 0.95, seed: int = 0) -> list[Interval]:
    """The same for scores that are means, from what every unit scores, [settings, units]."""
    units = each.shape[1]
    chosen = np.random.default_rng(seed).integers(0, units, (resamples, units))
    means = (_times(chosen, units) @ each.T) / units  # [resamples, settings]
    low, high = np.percentile(means, [50 * (1 - level), 50 * (1 + level)], axis=0)
    return list(zip(low.tolist(), high.tolist(), strict=True))


def standard_error(
    record: Record, ours: Tensor, theirs: Tensor, metric: Metric, resamples: int = 100, seed: int = 0
) -> float:
    """The intervals of the difference between the scores of two sets of logits; drawn as for `intervals`."""
    chosen = _drawn(record, metric, resamples, seed)
    return float(np.std(resampled(record, ours, metric, chosen) - resampled(record, theirs, metric, chosen)))


def _drawn(record: Record, metric: Any, resamples: int, seed: int) -> np.ndarray:
    """[resamples, rows], or [resamples, groups] where the metric ranks the rows of a group."""
    units = len(set(metric.groups)) if hasattr(metric, "groups") else len(record.units)
    return np.random.default_rng(seed).integers(0, units, (resamples, units))


def resampled(record: Record, logits: Tensor, metric: Metric, chosen: np.ndarray) -> np.ndarray:
    """[resamples] the metric on rows `chosen` [resamples, rows]."""
    predicted, labels, row = record.answers(logits, metric)
    if hasattr(metric, "groups"):
        return _by_group(predicted, labels, metric, chosen)
    if isinstance(metric, MeanScore):
        return metric.each(predicted, labels)[chosen].mean(1)
    units = len(record.units)
    name = next((name for name, known in METRICS.items() if known is metric), "")
    if name in FROM_NUMBERS and predicted.size == labels.size == units:
        return FROM_NUMBERS[name](predicted.ravel()[chosen], labels.ravel()[chosen])
    if labels.ndim == 1 and name in FROM_TABLE and np.issubdtype(labels.dtype, np.integer):
        classes = int(max(predicted.max(initial=0), labels.max(initial=0))) + 1
        cell = labels * classes + predicted  # where each answer falls in the table of right against predicted
        if units * classes**2 <= 50_000_000:
            tallies = np.zeros((units, classes**2), np.float32)
            np.add.at(tallies, (row, cell), 1)
            tables = (_times(chosen, units) @ tallies).reshape(-1, classes, classes).astype(float)
            return FROM_TABLE[name](tables)
    if name == "micro_f1" and labels.ndim == 2:
        right, positive = labels.astype(bool), predicted.astype(bool)
        tallies = np.stack([(right & positive).sum(1), positive.sum(1) + right.sum(1)], 1).astype(np.float32)
        both, total = (_times(chosen, units) @ tallies).astype(float).T
        return _share(2 * both, total)
    return _one_by_one(predicted, labels, row, metric, chosen)


def _times(chosen: np.ndarray, rows: int) -> np.ndarray:
    """[resamples, rows] how often each row was drawn."""
    shifted = chosen + rows * np.arange(len(chosen))[:, None]
    return np.bincount(shifted.ravel(), minlength=len(chosen) * rows).reshape(len(chosen), rows).astype(np.float32)


def _share(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """0 where there is nothing to have a share of, as the metrics say."""
    return np.divide(part, whole, out=np.zeros_like(part), where=whole > 0)


def _accuracy(tables: np.ndarray) -> np.ndarray:
    return _share(np.trace(tables, axis1=1, axis2=2), tables.sum((1, 2)))


def _f1(tables: np.ndarray) -> np.ndarray:
    if tables.shape[1] < 2:  # class 1 never occurs
        return np.zeros(len(tables))
    return _share(2 * tables[:, 1, 1], tables[:, 1].sum(1) + tables[:, :, 1].sum(1))


def _accuracy_and_f1(tables: np.ndarray) -> np.ndarray:
    return (_accuracy(tables) + _f1(tables)) / 2


def _matthews(tables: np.ndarray) -> np.ndarray:
    right, predicted, total = tables.sum(2), tables.sum(1), tables.sum((1, 2))
    covariance = np.trace(tables, axis1=1, axis2=2) * total - (right * predicted).sum(1)
    spread = (total**2 - (right**2).sum(1)) * (total**2 - (predicted**2).sum(1))
    return _share(covariance, np.sqrt(spread))


FROM_TABLE: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "accuracy": _accuracy,
    "f1": _f1,
    "accuracy_and_f1": _accuracy_and_f1,
    "micro_f1": _accuracy,  # the same, where every item has one class
    "matthews": _matthews,
}


def _pearson(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    one, other = (side - side.mean(1, keepdims=True, dtype=float) for side in (one, other))
    return _share((one * other).sum(1), np.sqrt((one**2).sum(1) * (other**2).sum(1)))


def _spearman(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    from scipy.stats import rankdata

    return _pearson(rankdata(one, axis=1), rankdata(other, axis=1))


def _correlation(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    return (_pearson(one, other) + _spearman(one, other)) / 2


FROM_NUMBERS = {"pearson": _pearson, "spearman": _spearman, "correlation": _correlation}


def _by_group(scores: np.ndarray, labels: np.ndarray, metric: Any, chosen: np.ndarray) -> np.ndarray:
    """[resamples] mean over the groups drawn, those without a right answer left out."""
    group = np.unique(metric.groups, return_inverse=True)[1]
    alone = np.full(chosen.shape[1], np.nan)
    for at in np.unique(group[labels == 1]):
        members = group == at
        alone[at] = type(metric)(("",) * int(members.sum()))(scores[members], labels[members])
    return np.nanmean(alone[chosen], axis=1)


def _one_by_one(predicted: Any, labels: Any, row: Any, metric: Metric, chosen: np.ndarray) -> np.ndarray:
    """Any metric, at its own pace."""
    positions = np.split(np.argsort(row, kind="stable"), np.cumsum(np.bincount(row, minlength=chosen.shape[1]))[:-1])
    drawn = (np.concatenate([positions[at] for at in rows]) for rows in chosen)
    return np.array([metric(predicted[at], labels[at]) for at in drawn])
