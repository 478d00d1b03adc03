"""HotpotQA's score: the answer, the supporting facts, and both at once, as its official evaluation defines them."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from paredown.answers import Question, SpanPrediction
from paredown.answers._questions import is_labelled
from paredown.answers._spans import Fact
from paredown.errors import BadInput
from paredown.evaluation.spans import normalise
from paredown.tasks._questions import read_json

PREDICTED = "hotpot_predictions.json"
NOT_IN_WORDS = ("yes", "no", "noanswer")  # right as a whole or not at all

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Overlap:
    """How much of what was predicted is right, and how much of what is right was predicted."""

    exact: float
    precision: float
    recall: float

    @classmethod
    def of(cls, predicted: Iterable[Hashable], right: Iterable[Hashable], exact: bool) -> Overlap:
        predicted, right = Counter(predicted), Counter(right)
        same = (predicted & right).total()
        return cls(float(exact), same / max(predicted.total(), 1), same / max(right.total(), 1))

    @property
    def f1(self) -> float:
        total = self.precision + self.recall
        return 2 * self.precision * self.recall / total if total > 0 else 0.0

    def __mul__(self, other: Overlap) -> Overlap:
        return Overlap(self.exact * other.exact, self.precision * other.precision, self.recall * other.recall)


NOTHING = Overlap(0.0, 0.0, 0.0)


def answer_overlap(text: str, gold: str) -> Overlap:
    """The overlap of words. A wrong yes or no shares no words with anything, even where the words are the same."""
    predicted, right = normalise(text), normalise(gold)
    if predicted != right and (predicted in NOT_IN_WORDS or right in NOT_IN_WORDS):
        return NOTHING
    return Overlap.of(predicted.split(), right.split(), predicted == right)


def facts_overlap(facts: Iterable[Fact], gold: Iterable[Fact]) -> Overlap:
    """The overlap of sentences; one that is named twice counts once."""
    predicted, right = set(facts), set(gold)
    return Overlap.of(predicted, right, predicted == right)


@dataclass(frozen=True)
class HotpotPredictions:
    """Answers and supporting facts by the id of their question; on disk in the official shape."""

    answers: Mapping[str, str]
    facts: Mapping[str, Sequence[Fact]] = field(default_factory=dict)

    @classmethod
    def of(cls, answers: Iterable[SpanPrediction]) -> HotpotPredictions:
        given = list(answers)
        return cls({one.id: one.label for one in given}, {one.id: one.facts for one in given if one.facts is not None})

    def write(self, path: str | Path) -> None:
        facts = {key: [list(fact) for fact in some] for key, some in self.facts.items()}
        text = json.dumps({"answer": dict(self.answers), "sp": facts}, ensure_ascii=False)
        Path(path).write_text(f"{text}\n", encoding="utf-8", newline="\n")

    @classmethod
    def read(cls, path: str | Path) -> HotpotPredictions:
        whole = read_json(Path(path))
        match whole:
            case {"answer": dict() as answers, "sp": dict() as facts}:
                pass
            case _:
                raise BadInput(f'{path}: expected {{"answer": {{id: text}}, "sp": {{id: [[title, sentence]]}}}}')
        for key, text in answers.items():
            if not isinstance(text, str):
                raise BadInput(f"{path}: the answer to question {key!r} must be text, not {text!r:.40}")
        return cls(answers, {key: _facts(some, f"{path}: question {key!r}") for key, some in facts.items()})


def _facts(listed: Any, where: str) -> list[Fact]:
    if not isinstance(listed, list):
        raise BadInput(f"{where}: expected a list of [title, sentence], got {listed!r:.60}")
    facts = []
    for fact in listed:
        match fact:
            case [str(title), int(number)]:
                facts.append((title, number))
            case _:
                raise BadInput(f"{where}: a supporting fact is [title, number of the sentence], not {fact!r:.60}")
    return facts


def score_hotpot(questions: Sequence[Question], predictions: HotpotPredictions) -> dict[str, float | int]:
    """Fractions of 1: `em f1 prec recall` of the answers, `sp_…` of the facts, `joint_…` of both; and `total`.

    A question without a prediction scores nothing, and is counted in a warning. Joint precision and recall are the
    products of a question's two; joint F1 is theirs.
    """
    if not questions:
        raise BadInput("no questions to score")
    if unlabelled := [question.id for question in questions if not is_labelled(question)]:
        raise BadInput(f"no right answer is known for question {unlabelled[0]!r} ({len(unlabelled)} such questions)")
    _tell_missing(questions, predictions)
    found: dict[str, list[Overlap]] = {"": [], "sp_": [], "joint_": []}
    for question in questions:
        answer = facts = NOTHING
        if question.id in predictions.answers:
            answer = answer_overlap(predictions.answers[question.id], question.answers[0])
        if question.id in predictions.facts:
            right = [(sentence.title, sentence.number) for sentence in question.sentences if sentence.support]
            facts = facts_overlap(predictions.facts[question.id], right)
        for name, overlap in zip(found, (answer, facts, answer * facts)):
            found[name].append(overlap)
    figures: dict[str, float | int] = {}
    for name, overlaps in found.items():
        table = np.array([(one.exact, one.f1, one.precision, one.recall) for one in overlaps])
        means = table.mean(0).tolist()
        figures |= {f"{name}{short}": mean for short, mean in zip(("em", "f1", "prec", "recall"), means)}
    return figures | {"total": len(questions)}


def _tell_missing(questions: Sequence[Question], predictions: HotpotPredictions) -> None:
    for what, given in (("answer", predictions.answers), ("supporting facts", predictions.facts)):
        missing = [question.id for question in questions if question.id not in given]
        if what == "answer" and len(missing) == len(questions):
            raise BadInput(f"no answer is to one of these questions; the first of them is {questions[0].id!r}")
        if missing:
            log.warning("no %s for %d of %d questions, first %r", what, len(missing), len(questions), missing[0])
