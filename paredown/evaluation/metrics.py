"""Metrics by name, as the benchmarks define them; higher is better."""

from __future__ import annotations

from typing import Callable

import numpy as np
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

from paredown.errors import UnknownName
from paredown.kinds import Kind

Metric = Callable[[np.ndarray, np.ndarray], float]  # (predicted, labels) -> score


def accuracy(predicted: np.ndarray, labels: np.ndarray) -> float:
    return float(accuracy_score(labels, predicted))


def f1(predicted: np.ndarray, labels: np.ndarray) -> float:
    """Of class 1, as GLUE counts it."""
    return float(f1_score(labels, predicted, zero_division=0))


def accuracy_and_f1(predicted: np.ndarray, labels: np.ndarray) -> float:
    return (accuracy(predicted, labels) + f1(predicted, labels)) / 2


def micro_f1(predicted: np.ndarray, labels: np.ndarray) -> float:
    return float(f1_score(labels, predicted, average="micro", zero_division=0))


def matthews(predicted: np.ndarray, labels: np.ndarray) -> float:
    return float(matthews_corrcoef(labels, predicted))


def correlation(predicted: np.ndarray, labels: np.ndarray) -> float:
    """Mean of Pearson and Spearman; 0 where one side is constant."""
    predicted, labels = predicted.ravel(), labels.ravel()
    if len(labels) < 2 or np.ptp(predicted) == 0 or np.ptp(labels) == 0:
        return 0.0
    return float((pearsonr(predicted, labels)[0] + spearmanr(predicted, labels)[0]) / 2)


METRICS: dict[str, Metric] = {
    metric.__name__: metric for metric in (accuracy, f1, accuracy_and_f1, micro_f1, matthews, correlation)
}
USUAL = {"single_label": "accuracy", "multi_label": "micro_f1", "regression": "correlation", "token_label": "accuracy"}


def metric_named(name: str) -> Metric:
    if name not in METRICS:
        raise UnknownName(f"no metric is called {name!r}; known: {', '.join(METRICS)}")
    return METRICS[name]


def metric_for(kind: Kind) -> Metric:
    """The usual metric of a kind of answer."""
    return METRICS[USUAL[kind.name]]
