"""Spans: SQuAD's metrics by hand, decoding against every span weighed by hand, and its prediction files."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from paredown.answers import Question, Span, SpanPrediction
from paredown.answers._windows import Window, windows
from paredown.errors import BadInput, BadSetting, NonFiniteAnswer
from paredown.evaluation.spans import (
    best_over,
    exact,
    f1,
    normalise,
    score_spans,
    write_predictions,
)
from tests.tasks.asking import decoded, made_questions, raw_bytes, word_pieces

FEW = Span(n_best=7, max_answer_length=5)
CASES: list[tuple[str, tuple[str, ...], float, float]] = [  # predicted, golds, exact, f1
    ("Denver Broncos", ("Denver Broncos",), 1, 1),
    ("the Denver Broncos!", ("Denver Broncos", "x"), 1, 1),
    ("An  apple\n", ("apple",), 1, 1),
    ("Broncos", ("Denver Broncos",), 0, 2 / 3),
    ("Denver Denver", ("Denver",), 0, 2 / 3),  # a word counts as often as it stands there
    ("in the late 1990s", ("late 1990s", "1990s"), 0, 4 / 5),
    ("Carolina Panthers", ("Denver Broncos",), 0, 0),
    ("50,000", ("50000",), 1, 1),
    ("U.S.", ("us",), 1, 1),
    ("twenty-one", ("twenty one",), 0, 0),  # punctuation goes without leaving a space
    ("theatre", ("atre",), 0, 0),  # an article is a word, not a part of one
    ("the", ("a",), 1, 1),  # nothing is left of either
    ("", ("Denver",), 0, 0),
    ("", (), 1, 1),
    ("Denver", (), 0, 0),
    ("the", (), 1, 1),
    ("Café", ("café",), 1, 1),
    ("Cafe", ("Café",), 0, 0),
    ("東京", ("東京",), 1, 1),
    ("“Denver”", ("Denver",), 0, 0),  # only ASCII punctuation goes
    ("STRASSE", ("straße",), 0, 0),  # lower case, not folded
]


@pytest.mark.parametrize(("message", "golds", "is_exact", "is_f1"), CASES)
def test_metrics(message: str, golds: tuple[str, ...], is_exact: float, is_f1: float) -> None:
    question = Question("q", "?", "x", golds, impossible=not golds)
    assert best_over(exact, message, question) == is_exact
    assert best_over(f1, message, question) == pytest.approx(is_f1)


def test_normalise() -> None:
    assert normalise(" The  Quick, brown\tfox: an A-team's \u00a0den ") == "quick brown fox ateams den"


def question(key: str, *golds: str) -> Question:
    return Question(key, "?", "x", golds, impossible=not golds)


def predicted(key: str, text: str, odds: float, given: bool = True) -> SpanPrediction:
    (window,) = windows(word_pieces(), [Question(key, "who?", text)])
    logits = torch.full((len(window), 2), -20.0)
    logits[window.at, 0], logits[len(window) - 2, 1], logits[0] = 0.0, 0.0, odds / 2
    (answer,) = decoded(Span(), [window], [logits], null_threshold=1e6 if given else -1e6)
    assert answer.null_odds == pytest.approx(odds) and answer.best_text == text
    return answer


def test_figures_of_both_versions() -> None:
    questions = [question("a", "Ann"), question("b", "old Bob"), question("c"), question("d")]
    figures = score_spans(questions[:2], {"a": "ann", "b": "Bob", "z": "more"})
    assert figures == {"exact": 0.5, "f1": pytest.approx((1 + 2 / 3) / 2), "total": 2}
    figures = score_spans(questions, {"a": "ann", "b": "Bob", "c": "", "d": "Eve"})
    assert figures["exact"] == 0.5 and figures["HasAns_exact"] == 0.5 and figures["NoAns_f1"] == 0.5
    assert (figures["total"], figures["HasAns_total"], figures["NoAns_total"]) == (4, 2, 2)
    assert figures["f1"] == pytest.approx((1 + 2 / 3 + 1) / 4)


def test_the_best_threshold_is_the_best() -> None:
    questions = [question("a", "Ann"), question("b", "old Bob"), question("c"), question("d"), question("e", "Eve")]
    answers = [
        predicted("a", "Ann", -5),
        predicted("b", "Bob", 2),
        predicted("c", "Cat", 1),
        predicted("d", "Dog", 3),
        predicted("e", "Eve", 4),
    ]
    figures = score_spans(questions, answers)
    assert (figures["best_exact"], figures["best_exact_thresh"]) == (0.6, -5)  # a, and silence for c and d
    assert (figures["best_f1"], figures["best_f1_thresh"]) == (0.6, -5)
    for threshold in (-6.0, -5.0, 1.0, 2.0, 3.0, 4.0):
        texts = {one.id: "" if (one.null_odds or 0) > threshold else one.best_text for one in answers}
        assert score_spans(questions, texts)["f1"] <= figures["best_f1"] + 1e-9
    worst = [predicted("c", "Cat", -1), predicted("d", "Dog", -1)]
    figures = score_spans(questions[2:4], worst)
    assert (figures["exact"], figures["best_exact"], figures["best_exact_thresh"]) == (0, 1, -2)
    tied = [predicted("a", "Ann", 0), predicted("c", "Cat", 0)]  # one threshold cannot tell them apart
    assert score_spans([questions[0], questions[2]], tied)["best_exact"] == 0.5


def test_what_cannot_be_scored() -> None:
    with pytest.raises(BadInput, match=r"no answer to question 'b' \(1 of 2 have none\)"):
        score_spans([question("a", "x"), question("b", "x")], {"a": "x"})
    with pytest.raises(BadInput, match="no right answer is known for question 'a'"):
        score_spans([Question("a", "?", "x")], {"a": "x"})
    with pytest.raises(BadInput, match="no questions"):
        score_spans([], {})


def by_hand(made: list[Window], logits: list[torch.Tensor], longest: int) -> dict[str, float]:
    """Every legal span's text with its best score."""
    found: dict[str, float] = {}
    for window, scores in zip(made, logits):
        positions = range(window.at, window.at + len(window.offsets))
        for first in positions:
            for last in range(first, min(first + longest, positions.stop)):
                start, end = window.characters(first, last)
                if start < end and window.fullest[first - window.at]:
                    text = window.asked.context[start:end]
                    score = float(scores[first, 0]) + float(scores[last, 1])
                    found[text] = max(score, found.get(text, score))
    return found


@pytest.mark.parametrize("tokenizer", [word_pieces(), raw_bytes()], ids=["word pieces", "bytes"])
def test_decoding_weighs_every_span(tokenizer: Any) -> None:
    torch.manual_seed(0)
    questions = made_questions(4, 60)
    made = windows(tokenizer, questions, max_length=80, stride=30)
    logits = [torch.randn(len(window), 2) for window in made]
    answers = decoded(FEW, made, logits)
    for number, answer in enumerate(answers):
        mine = [index for index, window in enumerate(made) if window.unit == number]
        best = by_hand([made[index] for index in mine], [logits[index] for index in mine], 5)
        wanted = sorted(best.items(), key=lambda pair: -pair[1])
        assert (answer.id, answer.label) == (questions[number].id, wanted[0][0])
        assert questions[number].context[answer.start : answer.end] == answer.label
        assert len({one.text for one in answer.candidates}) == len(answer.candidates) <= 7
        for one, (text, score) in zip(answer.candidates[:4], wanted):
            assert one.text == text and one.logit == pytest.approx(score, abs=1e-5)
        assert sum(one.probability for one in answer.candidates) == pytest.approx(1)
        assert answer.score == answer.candidates[0].probability and answer.null_odds is None
    width = max(map(len, made)) + 5
    padded = torch.stack([torch.nn.functional.pad(one, (0, 0, 0, width - len(one)), value=99.0) for one in logits])
    assert decoded(FEW, made, padded) == answers  # padding is never an answer
    order = torch.randperm(len(made)).tolist()
    shuffled = decoded(FEW, [made[index] for index in order], [logits[index] for index in order])
    assert [one.label for one in shuffled] == [one.label for one in answers]


def test_no_answer_is_given_where_its_odds_exceed_the_threshold() -> None:
    made = windows(word_pieces(), [replace(made_questions(1, 60)[0], impossible=True)], max_length=64, stride=20)
    logits = [torch.full((len(window), 2), -4.0) for window in made]
    for window, scores in zip(made, logits):
        scores[0] = 2.0
        scores[window.at + window.fullest.argmax(), 0] = scores[window.at + window.fullest.argmax(), 1] = 1.0
    logits[1][0] = 1.5  # the lowest of all windows counts
    (silent,) = decoded(Span(), made, logits, null_threshold=0.0)
    assert (silent.label, silent.start, silent.end, silent.null_odds) == ("", 0, 0, 1.0)
    assert silent.candidates[0].text == "" and silent.best_text
    (spoken,) = decoded(Span(), made, logits, null_threshold=1.0)  # not by more
    assert spoken.label == silent.best_text and spoken.score < silent.score
    (forced,) = decoded(Span(), made, logits)
    assert forced.label == spoken.label and all(one.text for one in forced.candidates)


def test_logits_that_do_not_fit() -> None:
    made = windows(word_pieces(), made_questions(1, 20))
    length = len(made[0])
    with pytest.raises(BadSetting, match=rf"a window of {length} tokens needs logits \[tokens, 2\], not \[3, 2\]"):
        decoded(Span(), made, [torch.zeros(3, 2)])
    with pytest.raises(NonFiniteAnswer, match="question 'q0' hold NaN"):
        decoded(Span(), made, [torch.full((length, 2), torch.nan)])
    with pytest.raises(BadSetting, match=r"n_best \(0\)"):
        Span(n_best=0)
    nowhere = torch.full((length, 2), -torch.inf)  # as if every token had been dropped
    for threshold, odds in ((None, None), (0.0, 1e9)):
        (answer,) = decoded(Span(), made, [nowhere], null_threshold=threshold)
        assert (answer.label, answer.score, answer.null_odds) == ("", 1.0, odds)


def test_prediction_files(tmp_path: Path) -> None:
    answers = [predicted("a", "caf\u00e9", -1.0), predicted("b", "bob", 3.0, given=False)]
    files = write_predictions(tmp_path / "out", answers)
    assert [path.name for path in files] == ["predictions.json", "nbest_predictions.json", "null_odds.json"]
    texts, rivals, odds = (json.loads(path.read_text()) for path in files)
    assert texts == {"a": "caf\u00e9", "b": ""} and odds == {"a": -1.0, "b": 3.0}
    assert list(rivals["a"][0]) == ["text", "probability", "start_logit", "end_logit"]
    assert sum(one["probability"] for one in rivals["b"]) == pytest.approx(1)
    plain = [replace(one, null_odds=None) for one in answers]
    assert [path.name for path in write_predictions(tmp_path / "plain", plain)] == [path.name for path in files[:2]]
