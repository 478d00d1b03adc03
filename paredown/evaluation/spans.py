"""Answers that are spans of a text: scored as SQuAD scores them, written as its files."""

from __future__ import annotations

import json
import re
import string
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from paredown.answers import Question, SpanPrediction
from paredown.answers._questions import is_labelled
from paredown.answers._spans import Candidate
from paredown.errors import BadInput

PREDICTIONS, N_BEST, NULL_ODDS = "predictions.json", "nbest_predictions.json", "null_odds.json"
ARTICLES = re.compile(r"\b(a|an|the)\b")
WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalise(text: str) -> str:
    """The text as SQuAD compares answers: lower case, no punctuation, no English articles, single spaces."""
    return " ".join(ARTICLES.sub(" ", text.lower().translate(WITHOUT_PUNCTUATION)).split())


def exact(text: str, gold: str) -> float:
    return float(normalise(text) == normalise(gold))


def f1(text: str, gold: str) -> float:
    """Over words; of an empty text, whether both are."""
    predicted, right = normalise(text).split(), normalise(gold).split()
    if not predicted or not right:
        return float(predicted == right)
    same = (Counter(predicted) & Counter(right)).total()
    return 2 * same / (len(predicted) + len(right))


def best_over(metric: Callable[[str, str], float], text: str, question: Question) -> float:
    """The highest score over all accepted answers; of an impossible question, over the empty one."""
    golds = [answer for answer in question.answers if normalise(answer)] or [""]
    return max(metric(text, gold) for gold in golds)


def score_spans(
    questions: Sequence[Question], answers: Sequence[SpanPrediction] | Mapping[str, str]
) -> dict[str, float | int]:
    """SQuAD's figures, as fractions of 1: `exact`, `f1`, `total`, and of 2.0 those of questions with an answer
    (`HasAns_…`), without one (`NoAns_…`), and the best of another null threshold (`best_…` and `best_…_thresh`).

    `answers` may also be texts by id, as a predictions file holds them; every question needs one.
    """
    texts = answers if isinstance(answers, Mapping) else {answer.id: answer.label for answer in answers}
    _check_complete(questions, texts)
    scores = {
        metric.__name__: np.array([best_over(metric, texts[question.id], question) for question in questions])
        for metric in (exact, f1)
    }
    figures = _means(scores, np.ones(len(questions), dtype=bool), "")
    without = np.array([question.impossible for question in questions])
    if without.any():
        for name, members in (("HasAns_", ~without), ("NoAns_", without)):
            if members.any():
                figures |= _means(scores, members, name)
    if not isinstance(answers, Mapping) and all(answer.null_odds is not None for answer in answers):
        figures |= best_threshold(questions, answers)
    return figures


def best_threshold(questions: Sequence[Question], answers: Sequence[SpanPrediction]) -> dict[str, float]:
    """The best mean score, and the null threshold that gives it: every question below or at it gets its best text."""
    by_id = {answer.id: answer for answer in answers}
    asked = [by_id[question.id] for question in questions]
    odds = np.array([answer.null_odds for answer in asked], dtype=float)
    order = np.argsort(odds, kind="stable")
    last_of_equals = np.append(odds[order][1:] != odds[order][:-1], True)
    figures = {}
    for metric in (exact, f1):
        silent = np.array([best_over(metric, "", question) for question in questions])
        spoken = np.array([best_over(metric, one.best_text, question) for one, question in zip(asked, questions)])
        sums = silent.sum() + np.cumsum((spoken - silent)[order])
        sums = np.where(last_of_equals, sums, -np.inf)
        index = int(sums.argmax())
        none = silent.sum() > sums[index]  # best is to answer nothing at all
        figures[f"best_{metric.__name__}"] = float((silent.sum() if none else sums[index]) / len(questions))
        figures[f"best_{metric.__name__}_thresh"] = float(odds[order[0]] - 1 if none else odds[order[index]])
    return figures


def _means(scores: Mapping[str, np.ndarray], members: np.ndarray, prefix: str) -> dict[str, float | int]:
    figures: dict[str, float | int] = {}
    for name, values in scores.items():
        figures[prefix + name] = float(values[members].mean())
    return figures | {f"{prefix}total": int(members.sum())}


def _check_complete(questions: Sequence[Question], texts: Mapping[str, str]) -> None:
    if not questions:
        raise BadInput("no questions to score")
    if missing := [question.id for question in questions if question.id not in texts]:
        raise BadInput(f"no answer to question {missing[0]!r} ({len(missing)} of {len(questions)} have none)")
    if unlabelled := [question.id for question in questions if not is_labelled(question)]:
        raise BadInput(f"no right answer is known for question {unlabelled[0]!r} ({len(unlabelled)} such questions)")


def write_predictions(folder: str | Path, answers: Sequence[SpanPrediction]) -> list[Path]:
    """SQuAD's prediction files: answers, their rivals, and, where questions may be impossible, the odds of that."""
    files: dict[str, dict[str, Any]] = {
        PREDICTIONS: {answer.id: answer.label for answer in answers},
        N_BEST: {answer.id: [_rival(one) for one in answer.candidates] for answer in answers},
    }
    if any(answer.null_odds is not None for answer in answers):
        files[NULL_ODDS] = {answer.id: answer.null_odds for answer in answers}
    return write_files(folder, files)


def write_files(folder: str | Path, files: Mapping[str, Mapping[str, Any]]) -> list[Path]:
    """JSON files by name."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        text = json.dumps(content, indent=4, ensure_ascii=False, allow_nan=False)
        (Path(folder) / name).write_text(f"{text}\n", encoding="utf-8", newline="\n")
    return [Path(folder) / name for name in files]


def _rival(candidate: Candidate) -> dict[str, Any]:
    names = ("text", "probability", "start_logit", "end_logit")
    return {name: getattr(candidate, name) for name in names}
