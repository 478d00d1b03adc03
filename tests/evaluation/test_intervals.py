"""Bootstrap intervals: the fast arithmetic is the metric's own, and they cover what they should."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from paredown.answers import IGNORED
from paredown.evaluation import METRICS, Record, intervals, metric_named
from paredown.evaluation.intervals import _one_by_one, resampled, standard_error
from paredown.evaluation.metrics import MeanReciprocalRank
from paredown.registry import answers
from tests.evaluation.made import sst2
from tests.tasks.asking import hotpot_questions, word_pieces
from tests.tasks.choosing import made_choices


def made(kind: str, rows: int = 60, classes: int = 3) -> tuple[Record, torch.Tensor]:
    generator = torch.Generator().manual_seed(5)
    shapes: Any = {"token_label": (rows, 7, classes), "regression": (rows, 1)}
    shape = shapes.get(kind, (rows, classes))
    logits = torch.randn(shape, generator=generator)
    noisy = logits + 0.8 * torch.randn(shape, generator=generator)
    labels = noisy.argmax(-1)
    if kind == "multi_label":
        labels = (noisy > 0).float()
    elif kind == "regression":
        labels = noisy.mul(2).round().div(2)  # with ties
    elif kind == "token_label":
        labels[torch.rand(labels.shape, generator=generator) < 0.4] = IGNORED
    return Record(answers.make(kind), {1: logits}, {}, labels, torch.full((rows,), 7)), logits


def read_in_windows(kind: str) -> tuple[Record, torch.Tensor]:
    """A record of random logits for questions of several windows."""
    of_kind, length = answers.make(kind), 40
    asked: Any = made_choices(30, 3) if kind == "marked" else hotpot_questions(30)
    rows = of_kind.encode(word_pieces(), asked, (), length)
    assert len(rows) > 40
    logits = torch.randn((len(rows), length, len(of_kind.outputs)), generator=torch.Generator().manual_seed(5))
    lengths = torch.tensor([len(row) for row in rows])
    return Record(of_kind, {1: logits}, {}, None, lengths, windows=tuple(rows)), logits


CASES = [
    *[("single_label", classes, name) for classes in (2, 4) for name in ("accuracy", "matthews", "micro_f1")],
    *[("single_label", 2, name) for name in ("f1", "accuracy_and_f1")],
    *[("token_label", 3, name) for name in ("accuracy", "micro_f1", "matthews")],
    ("multi_label", 3, "micro_f1"),
    ("multi_label", 3, "accuracy"),
    *[("regression", 1, name) for name in ("correlation", "pearson", "spearman")],
    ("span", 2, "span_f1"),
    ("marked", 1, "accuracy"),
    ("supported_span", 6, "answer_and_support_f1"),
]


@pytest.mark.parametrize(("kind", "classes", "name"), CASES)
def test_all_resamples_at_once_are_the_metric_on_each(kind: str, classes: int, name: str) -> None:
    windowed = answers.make(kind).windowed
    seen, logits = read_in_windows(kind) if windowed else made(kind, classes=classes)
    metric, units = metric_named(name), len(seen.units)
    chosen = np.random.default_rng(0).integers(0, units, (50, units))
    one_by_one = _one_by_one(*seen.answers(logits, metric), metric, chosen)
    assert np.allclose(resampled(seen, logits, metric, chosen), one_by_one)
    everyone = np.arange(units)[None]
    assert np.allclose(resampled(seen, logits, metric, everyone), seen.score(logits, metric))


def test_every_metric_is_tried_above() -> None:
    assert set(METRICS) <= {name for _, _, name in CASES}


def test_a_metric_of_ones_own() -> None:
    seen, logits = made("single_label")

    def half(predicted: np.ndarray, labels: np.ndarray) -> float:
        return float((predicted == labels).mean() / 2)

    mine, usual = (intervals(seen, [logits], metric, 200)[0] for metric in (half, metric_named("accuracy")))
    assert np.allclose(2 * np.array(mine), usual)


def test_the_error_of_a_difference_draws_rows_with_all_their_words() -> None:
    rows, words = 30, 50
    labels = torch.zeros(rows, words, dtype=torch.long)
    right, wrong = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])
    theirs = right.expand(rows, words, 2)
    ours = theirs.clone()
    ours[:6] = wrong  # whole rows, as words of a row go wrong together
    seen = Record(answers.make("token_label"), {1: theirs}, {}, labels, torch.full((rows,), words))
    accuracy = metric_named("accuracy")
    assert standard_error(seen, theirs, theirs, accuracy) == 0
    # A share of 0.2 of 30 rows deviates by 0.073; of 1,500 words drawn one by one it would by 0.010.
    assert 0.05 < standard_error(seen, ours, theirs, accuracy) < 0.1


def test_the_error_of_a_difference_draws_groups_whole() -> None:
    seen, logits = made("single_label", classes=2)
    metric = MeanReciprocalRank(tuple(f"question {row // 5}" for row in range(60)))
    assert standard_error(seen, -logits, logits, metric) > 0


def test_groups_are_drawn_whole() -> None:
    seen, logits = made("single_label", classes=2)
    metric = MeanReciprocalRank(tuple(f"question {row // 5}" for row in range(60)))
    everyone = np.arange(12)[None]
    assert np.allclose(resampled(seen, logits, metric, everyone), seen.score(logits, metric))
    (low, high), score = intervals(seen, [logits], metric, 300)[0], seen.score(logits, metric)
    assert low < score < high


def test_an_interval_is_as_wide_as_theory_says() -> None:
    seen, metric = sst2(), metric_named("accuracy")
    found = intervals(seen, [seen.logits[layer] for layer in seen.stops], metric)
    for layer, (low, high) in zip(seen.stops, found, strict=True):
        score = seen.scores(metric)[layer]
        deviation = (score * (1 - score) / len(seen)) ** 0.5
        assert low < score < high
        assert high - low == pytest.approx(2 * 1.96 * deviation, rel=0.12)


def test_the_same_seed_gives_the_same_interval() -> None:
    seen, metric = sst2(200), metric_named("accuracy")
    one, same, other = (intervals(seen, [seen.logits[3]], metric, 50, seed=seed) for seed in (1, 1, 2))
    assert one == same != other


def test_intervals_cover_the_truth_about_as_often_as_they_say() -> None:
    truth = sst2(50_000, 2, seed=9).scores(metric_named("accuracy"))[1]
    covered = 0
    for seed in range(100):
        seen = sst2(200, 2, seed)
        (low, high) = intervals(seen, [seen.logits[1]], metric_named("accuracy"), 300, seed=seed)[0]
        covered += low <= truth <= high
    assert covered >= 88
