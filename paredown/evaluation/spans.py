"""Answers that are spans of a text: decoded from windows, scored as SQuAD scores them, written as its files."""

from __future__ import annotations

import json
import re
import string
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from paredown.errors import BadInput, BadSetting, NonFiniteAnswer
from paredown.tasks import Question, Window
from paredown.tasks._questions import is_labelled

PREDICTIONS, N_BEST, NULL_ODDS = "predictions.json", "nbest_predictions.json", "null_odds.json"
CERTAIN = 1e9  # logits and odds of what cannot be: JSON has no infinity
ARTICLES = re.compile(r"\b(a|an|the)\b")
WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)

Fact = tuple[str, int]  # a sentence: the title of its paragraph, its number there


@dataclass(frozen=True)
class Candidate:
    text: str  # the context's own characters; empty: no answer
    start: int  # characters of the context, [start, end)
    end: int
    start_logit: float
    end_logit: float
    probability: float = 0.0  # among the candidates

    @property
    def logit(self) -> float:
        return self.start_logit + self.end_logit


@dataclass(frozen=True)
class SpanAnswer:
    id: str
    text: str  # empty: no answer
    start: int
    end: int
    score: float  # its probability among the candidates
    candidates: tuple[Candidate, ...]  # the best first
    null_odds: float | None = None  # logit of "no answer" less that of the best answer; None where one must be given
    choices: Mapping[str, float] | None = None  # probability of a span, of yes and of no, where all are possible
    support: Mapping[Fact, float] | None = None  # probability of every sentence that it supports the answer, likewise
    facts: tuple[Fact, ...] | None = None  # the sentences given as support, likewise

    @property
    def best_text(self) -> str:
        """The best answer, given or not."""
        return next((candidate.text for candidate in self.candidates if candidate.text), "")


def decode(
    windows: Sequence[Window],
    logits: Sequence[Tensor] | Tensor,
    n_best: int = 20,
    max_answer_length: int = 30,
    null_threshold: float = 0.0,
    impossible: bool = False,
) -> list[SpanAnswer]:
    """One answer for each question, in their order, from the start and end logits [tokens, 2] of its windows.

    Every span of at most `max_answer_length` context tokens is weighed, in the window that shows its first token in
    the fullest context. Where questions may be `impossible`, "no answer" is given when its logit (the lowest over the
    windows) exceeds the best span's by more than `null_threshold`.
    """
    if len(windows) != len(logits):
        raise BadSetting(f"{len(windows)} windows and logits for {len(logits)}; they must be as many")
    if min(n_best, max_answer_length) < 1:
        raise BadSetting(f"n_best ({n_best}) and max_answer_length ({max_answer_length}) must be at least 1")
    answers = []
    by_question = sorted(range(len(windows)), key=lambda place: windows[place].number)
    for _, group in groupby(by_question, key=lambda place: windows[place].number):
        places = list(group)
        found: list[Candidate] = []
        nulls: list[tuple[float, float]] = []
        for place in places:
            window, scores = windows[place], checked(windows[place], logits[place])
            found += _spans(window, scores, n_best, max_answer_length)
            nulls.append(tuple(np.maximum(scores[0], -CERTAIN).tolist()))
        best = _distinct(sorted(found, key=lambda one: -one.logit))[:n_best]
        null = Candidate("", 0, 0, *min(nulls, key=sum)) if impossible else None
        answers.append(_answer(windows[places[0]].question.id, best, null, null_threshold))
    return answers


def checked(window: Window, logits: Any, outputs: int = 2) -> np.ndarray:
    """[tokens, outputs] in 64 bits, without padding; minus infinity is fine (a place that cannot be), NaN is not."""
    scores = torch.as_tensor(logits).detach().double().cpu().numpy()
    if scores.ndim != 2 or scores.shape[1] != outputs or len(scores) < len(window):
        needed = f"a window of {len(window)} tokens needs logits [tokens, {outputs}]"
        raise BadSetting(f"{needed}, not {list(scores.shape)}")
    scores = scores[: len(window)]
    if np.isnan(scores).any() or np.isposinf(scores).any():
        raise NonFiniteAnswer(f"the logits of question {window.question.id!r} hold NaN or infinity")
    return scores


def _spans(window: Window, scores: np.ndarray, n_best: int, longest: int) -> list[Candidate]:
    """The best spans that start where this window is the fullest; all spans are weighed, not the best ends alone."""
    count = len(window.offsets)
    if count == 0:
        return []
    inside = scores[window.at : window.at + count]
    starts = np.where(window.fullest, inside[:, 0], -np.inf)
    ends = np.concatenate([inside[:, 1], np.full(longest - 1, -np.inf)])
    sums = (
        starts[:, None] + np.lib.stride_tricks.sliding_window_view(ends, longest)
    ).ravel()  # [context tokens, longest]
    kept = min(n_best, sums.size)
    top = np.argpartition(-sums, kept - 1)[:kept]
    top = top[np.lexsort((top, -sums[top]))]  # equal ones: the first in the text
    found = []
    for place in top[np.isfinite(sums[top])].tolist():
        first, last = place // longest, place // longest + place % longest
        start, end = window.characters(first + window.at, last + window.at)
        if start < end:
            text, pair = window.question.context[start:end], (float(inside[first, 0]), float(inside[last, 1]))
            found.append(Candidate(text, start, end, *pair))
    return found


def _distinct(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Of those that say the same, the first."""
    found: dict[str, Candidate] = {}
    for candidate in candidates:
        found.setdefault(candidate.text, candidate)
    return list(found.values())


def _answer(key: str, best: list[Candidate], null: Candidate | None, threshold: float) -> SpanAnswer:
    candidates = best if null is None else sorted([*best, null], key=lambda one: -one.logit)
    candidates = _with_probabilities(candidates or [Candidate("", 0, 0, -CERTAIN, -CERTAIN)])
    odds = None
    if null is not None:
        odds = float(np.clip(null.logit - best[0].logit, -CERTAIN, CERTAIN)) if best else CERTAIN
    silent = odds is not None and odds > threshold
    given = next((one for one in candidates if (one.text == "") == silent), candidates[0])
    return SpanAnswer(key, given.text, given.start, given.end, given.probability, tuple(candidates), odds)


def _with_probabilities(candidates: list[Candidate]) -> list[Candidate]:
    weights = np.exp([one.logit - candidates[0].logit for one in candidates])
    return [replace(one, probability=share) for one, share in zip(candidates, (weights / weights.sum()).tolist())]


def normalise(text: str) -> str:
    """As SQuAD compares answers: lower case, no punctuation, no English articles, single spaces."""
    return " ".join(ARTICLES.sub(" ", text.lower().translate(WITHOUT_PUNCTUATION)).split())


def exact(text: str, gold: str) -> float:
    return float(normalise(text) == normalise(gold))


def f1(text: str, gold: str) -> float:
    """Over words; of an empty text, whether both are."""
    said, right = normalise(text).split(), normalise(gold).split()
    if not said or not right:
        return float(said == right)
    same = (Counter(said) & Counter(right)).total()
    return 2 * same / (len(said) + len(right))


def best_over(metric: Callable[[str, str], float], text: str, question: Question) -> float:
    """The highest score over all accepted answers; of an impossible question, over the empty one."""
    golds = [answer for answer in question.answers if normalise(answer)] or [""]
    return max(metric(text, gold) for gold in golds)


def score_spans(
    questions: Sequence[Question], answers: Sequence[SpanAnswer] | Mapping[str, str]
) -> dict[str, float | int]:
    """SQuAD's figures, as fractions of 1: `exact`, `f1`, `total`, and of 2.0 those of questions with an answer
    (`HasAns_…`), without one (`NoAns_…`), and the best of another null threshold (`best_…` and `best_…_thresh`).

    `answers` may also be texts by id, as a predictions file holds them; every question needs one.
    """
    texts = answers if isinstance(answers, Mapping) else {answer.id: answer.text for answer in answers}
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


def best_threshold(questions: Sequence[Question], answers: Sequence[SpanAnswer]) -> dict[str, float]:
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
        place = int(sums.argmax())
        none = silent.sum() > sums[place]  # best is to say nothing at all
        figures[f"best_{metric.__name__}"] = float((silent.sum() if none else sums[place]) / len(questions))
        figures[f"best_{metric.__name__}_thresh"] = float(odds[order[0]] - 1 if none else odds[order[place]])
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
        raise BadInput(f"nobody says what is right for question {unlabelled[0]!r} ({len(unlabelled)} such questions)")


def write_predictions(folder: str | Path, answers: Sequence[SpanAnswer]) -> list[Path]:
    """SQuAD's prediction files: answers, their rivals, and, where questions may be impossible, the odds of that."""
    files: dict[str, dict[str, Any]] = {
        PREDICTIONS: {answer.id: answer.text for answer in answers},
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
