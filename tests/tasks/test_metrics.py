"""Metrics against values computed by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from paredown.errors import BadSetting, UnknownName
from paredown.evaluation.metrics import mean_reciprocal_rank, metric_named

GOLD = [1, 1, 1, 0, 0, 1, 0, 0]
SAID = [1, 1, 0, 0, 1, 1, 0, 1]  # 3 true positives, 2 false, 1 false negative, 2 true negatives
X, Y = [1.0, 2.0, 3.0, 10.0], [1.0, 3.0, 2.0, 4.0]


def covariance_over_deviations(a: list[float], b: list[float]) -> float:
    x, y = [v - sum(a) / len(a) for v in a], [v - sum(b) / len(b) for v in b]
    return sum(p * q for p, q in zip(x, y)) / math.sqrt(sum(p * p for p in x) * sum(q * q for q in y))


PEARSON, SPEARMAN = covariance_over_deviations(X, Y), 1 - 6 * 2 / (4 * 15)


@pytest.mark.parametrize(
    ("name", "said", "gold", "score"),
    [
        ("accuracy", SAID, GOLD, 5 / 8),
        ("f1", SAID, GOLD, 2 * 3 / (2 * 3 + 2 + 1)),
        ("accuracy_and_f1", SAID, GOLD, (5 / 8 + 2 / 3) / 2),
        ("matthews", SAID, GOLD, (3 * 2 - 2 * 1) / math.sqrt((3 + 2) * (3 + 1) * (2 + 2) * (2 + 1))),
        ("micro_f1", [[1, 0, 1], [0, 1, 0]], [[1, 1, 0], [0, 1, 0]], 2 * 2 / (2 * 2 + 1 + 1)),
        ("pearson", X, Y, PEARSON),
        ("spearman", X, Y, SPEARMAN),
        ("correlation", X, Y, (PEARSON + SPEARMAN) / 2),
        ("f1", [0, 0], [1, 0], 0.0),
        ("matthews", [0, 0], [1, 0], 0.0),
        ("pearson", [1.0, 1.0], [1.0, 2.0], 0.0),
        ("spearman", [1.0], [1.0], 0.0),
    ],
)
def test_by_hand(name: str, said: list, gold: list, score: float) -> None:
    assert metric_named(name)(np.array(said), np.array(gold)) == pytest.approx(score)


def test_mean_reciprocal_rank() -> None:
    scores = np.array([0.9, 0.5, 0.1, 0.2, 0.8, 0.7, 0.3])
    labels = np.array([0, 1, 0, 1, 0, 1, 0])
    groups = ("a", "a", "a", "b", "b", "b", "c")  # ranks 2 and 2; c has no right answer and does not count
    assert mean_reciprocal_rank(scores, labels, groups) == pytest.approx((1 / 2 + 1 / 2) / 2)
    shuffled = np.array([3, 0, 6, 5, 1, 4, 2])
    mixed = tuple(groups[place] for place in shuffled)
    assert mean_reciprocal_rank(scores[shuffled], labels[shuffled], mixed) == pytest.approx(1 / 2)
    assert mean_reciprocal_rank(np.array([0.4, 0.1]), np.array([1, 0]), "aa") == 1.0
    assert mean_reciprocal_rank(np.zeros(4), np.array([0, 1, 0, 0]), "aaaa") == 1 / 4  # a tie is no merit


def test_ranking_by_name() -> None:
    metric = metric_named("mean_reciprocal_rank", groups=["a", "a"])
    assert metric(np.array([0.1, 0.9]), np.array([1, 0])) == 1 / 2
    assert metric.of_scores and hash(metric) == hash(metric_named("mean_reciprocal_rank", groups=["a", "a"]))
    with pytest.raises(BadSetting, match="give the groups"):
        metric_named("mean_reciprocal_rank")
    with pytest.raises(BadSetting, match="2 scores, 2 labels and 1 groups"):
        mean_reciprocal_rank(np.zeros(2), np.zeros(2), "a")
    with pytest.raises(BadSetting, match="no group has a right answer"):
        mean_reciprocal_rank(np.zeros(2), np.zeros(2), "ab")
    with pytest.raises(UnknownName, match="mean_reciprocal_rank"):
        metric_named("nonsense")
