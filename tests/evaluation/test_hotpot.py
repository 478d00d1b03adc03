"""HotpotQA's and TriviaQA's scores against values computed by hand."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from paredown.answers import Sentence
from paredown.errors import BadInput
from paredown.evaluation import HotpotPredictions, score_hotpot, score_trivia
from paredown.evaluation.hotpot import answer_overlap, facts_overlap
from paredown.evaluation.spans import score_spans
from paredown.tasks import Question


def question(name: str, answer: str, *facts: tuple[str, int]) -> Question:
    sentences = [Sentence(title, number, 0, 0, True) for title, number in facts] + [Sentence("Z", 9, 0, 0, False)]
    return Question(name, "?", "", (answer,), sentences=tuple(sentences))


@pytest.mark.parametrize(
    ("message", "right", "exact", "precision", "recall", "f1"),
    [
        # Punctuation, case and articles do not count: both are `ann lee`.
        ("The Ann Lee!", "ann lee", 1, 1, 1, 1),
        # 2 of 3 predicted words are right, 2 of 4 right ones are predicted: f1 = 2 * 2/3 * 1/2 / (2/3 + 1/2) = 4/7.
        ("red big car", "big old red bus", 0, 2 / 3, 1 / 2, 4 / 7),
        # A word counts as often as it stands on both sides: 1 of 2, 1 of 1.
        ("new new", "new", 0, 1 / 2, 1, 2 / 3),
        ("yes", "yes", 1, 1, 1, 1),
        ("No.", "no", 1, 1, 1, 1),
        # `yes` is one of the three words of the other side, and still worth nothing.
        ("yes", "yes we can", 0, 0, 0, 0),
        ("no it is", "no", 0, 0, 0, 0),
        ("noanswer", "noanswer at all", 0, 0, 0, 0),
        ("", "ann", 0, 0, 0, 0),
        # Nothing but articles on both sides: the same, yet without a word in common.
        ("the", "a", 1, 0, 0, 0),
    ],
)
def test_answers(message: str, right: str, exact: float, precision: float, recall: float, f1: float) -> None:
    found = answer_overlap(message, right)
    assert (found.exact, found.precision, found.recall, found.f1) == pytest.approx((exact, precision, recall, f1))


def test_facts() -> None:
    gold = [("A", 0), ("B", 1)]
    assert facts_overlap([("B", 1), ("A", 0), ("A", 0)], gold).exact == 1  # order and repetition do not count
    some = facts_overlap([("A", 0), ("A", 1), ("C", 0)], gold)  # 1 of 3 predicted, 1 of 2 right
    assert (some.exact, some.precision, some.recall, some.f1) == pytest.approx((0, 1 / 3, 1 / 2, 2 / 5))
    none = facts_overlap([], gold)
    assert (none.exact, none.precision, none.recall, none.f1) == (0, 0, 0, 0)


QUESTIONS = [
    question("q1", "Ann Lee", ("A", 0), ("B", 1)),
    question("q2", "big old red bus", ("A", 0), ("B", 1)),
    question("q3", "no", ("C", 2)),
    question("q4", "Peru", ("D", 0), ("E", 0)),
]
PREDICTED = HotpotPredictions(
    {"q1": "the Ann Lee", "q2": "red big car", "q3": "yes", "q4": "Peru"},
    {"q1": [("A", 0), ("B", 1)], "q2": [("A", 0), ("A", 1), ("C", 0)], "q3": [("C", 2)]},
)


def test_all_figures(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        found = score_hotpot(QUESTIONS, PREDICTED)
    assert "no supporting facts for 1 of 4 questions, first 'q4'" in caplog.text
    #      answer: em f1  prec recall | facts: em f1  prec recall | joint: em, prec and recall are products
    #   q1         1  1   1    1      |        1  1   1    1      |        1  1    1    f1 1
    #   q2         0  4/7 2/3  1/2    |        0  2/5 1/3  1/2    |        0  2/9  1/4  f1 2*2/9*1/4/(2/9+1/4) = 4/17
    #   q3         0  0   0    0      |        1  1   1    1      |        0  0    0    f1 0
    #   q4         1  1   1    1      |        none given: all 0  |        0  0    0    f1 0
    quarters = {
        "em": 2,
        "f1": 2 + 4 / 7,
        "prec": 2 + 2 / 3,
        "recall": 2 + 1 / 2,
        "sp_em": 2,
        "sp_f1": 2 + 2 / 5,
        "sp_prec": 2 + 1 / 3,
        "sp_recall": 2 + 1 / 2,
        "joint_em": 1,
        "joint_f1": 1 + 4 / 17,
        "joint_prec": 1 + 2 / 9,
        "joint_recall": 1 + 1 / 4,
    }
    assert found.pop("total") == 4
    assert found == pytest.approx({name: value / 4 for name, value in quarters.items()})


def test_a_fact_that_names_no_sentence_is_one_that_was_not_found() -> None:
    found = score_hotpot(
        [question("q", "x", ("A", 0), ("Nowhere", 3))], HotpotPredictions({"q": "x"}, {"q": [("A", 0)]})
    )
    assert (found["sp_recall"], found["sp_prec"], found["sp_em"]) == (0.5, 1, 0)


def test_predictions_in_the_official_shape(tmp_path: Path) -> None:
    PREDICTED.write(tmp_path / "answered.json")
    whole = json.loads((tmp_path / "answered.json").read_text())
    assert whole["answer"]["q2"] == "red big car" and whole["sp"]["q3"] == [["C", 2]] and len(whole) == 2
    assert HotpotPredictions.read(tmp_path / "answered.json") == PREDICTED


@pytest.mark.parametrize(
    ("content", "piece"),
    [
        ({"answer": {}}, 'expected {"answer": {id: text}, "sp": {id: [[title, sentence]]}}'),
        ([], 'expected {"answer"'),
        ({"answer": {"q": 1}, "sp": {}}, "the answer to question 'q' must be text, not 1"),
        ({"answer": {}, "sp": {"q": "A"}}, "question 'q': expected a list of [title, sentence], got 'A'"),
        ({"answer": {}, "sp": {"q": [["A"]]}}, "question 'q': a supporting fact is [title, number of the sentence]"),
    ],
)
def test_broken_predictions(tmp_path: Path, content: Any, piece: str) -> None:
    (tmp_path / "answered.json").write_text(json.dumps(content))
    with pytest.raises(BadInput) as caught:
        HotpotPredictions.read(tmp_path / "answered.json")
    assert piece in str(caught.value) and str(tmp_path / "answered.json") in str(caught.value)


def test_what_cannot_be_scored() -> None:
    with pytest.raises(BadInput, match="no questions to score"):
        score_hotpot([], PREDICTED)
    with pytest.raises(BadInput, match="no answer is to one of these questions; the first of them is 'other'"):
        score_hotpot([question("other", "x")], PREDICTED)
    with pytest.raises(BadInput, match="no right answer is known for question 'q'"):
        score_hotpot([Question("q", "?", "")], PREDICTED)


@pytest.mark.parametrize(
    ("message", "aliases", "exact", "f1"),
    [
        ("the_beatles", ("Beatles",), 1, 1),
        ("Spider-Man", ("Spider Man",), 1, 1),  # SQuAD reads `spiderman`
        ("US", ("U.S.",), 0, 0),  # `us` against `u s`; SQuAD: the same
        ("Hawai’i island", ("Hawai i",), 0, 2 * 2 / (3 + 2)),  # hawai i island
        ("rock ´n‘ roll", ("rock n roll",), 1, 1),
        ("red bus", ("blue bus", "red old bus"), 0, 2 * 2 / (2 + 3)),  # the best alias
    ],
)
def test_trivia(message: str, aliases: tuple[str, ...], exact: float, f1: float) -> None:
    found = score_trivia([Question("q", "?", "", aliases)], {"q": message})
    assert found == pytest.approx({"exact": exact, "f1": f1, "total": 1})


def test_trivia_differs_from_squad() -> None:
    asked = [Question("q", "?", "", ("U.S.",))]
    assert (score_spans(asked, {"q": "US"})["exact"], score_trivia(asked, {"q": "US"})["exact"]) == (1, 0)
