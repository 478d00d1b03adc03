"""Questions are judged by what is decoded of all their windows, not by windows."""

from __future__ import annotations

import numpy as np
import pytest

from paredown.answers import Question, Sentence, SpanPrediction
from paredown.evaluation.metrics import answer_and_support_f1, span_f1


def objects(*values: object) -> np.ndarray:
    return np.array([*values, None], dtype=object)[:-1]


def predicted(text: str, *facts: tuple[str, int]) -> SpanPrediction:
    return SpanPrediction(text, 1.0, {}, facts=facts)


def test_span_f1_is_the_mean_over_questions_of_the_best_answer() -> None:
    asked = objects(Question("a", "who?", "x", ("old Bob", "Ann")), Question("b", "who?", "x", impossible=True))
    assert span_f1(objects(predicted("Ann"), predicted("")), asked) == 1
    assert span_f1(objects(predicted("Bob"), predicted("Eve")), asked) == pytest.approx((2 / 3 + 0) / 2)
    assert span_f1.each(objects(predicted("Bob"), predicted("")), asked).tolist() == [pytest.approx(2 / 3), 1]


def test_half_for_the_answer_and_half_for_its_support() -> None:
    sentences = (Sentence("t", 0, 0, 1, True), Sentence("t", 1, 2, 3, False), Sentence("u", 0, 4, 5, True))
    asked = objects(Question("a", "was it?", "x", ("yes",), choice="yes", sentences=sentences))
    both = (("t", 0), ("u", 0))
    assert answer_and_support_f1(objects(predicted("yes", *both)), asked) == 1
    assert answer_and_support_f1(objects(predicted("no", *both)), asked) == 0.5
    assert answer_and_support_f1(objects(predicted("yes")), asked) == 0.5
    assert answer_and_support_f1(objects(predicted("yes", ("t", 0))), asked) == pytest.approx((1 + 2 / 3) / 2)
