"""Spans of a text, decoded from the logits of the windows that show it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from paredown.answers._prediction import Prediction
from paredown.answers._windows import Window
from paredown.errors import BadSetting, NonFiniteAnswer

CERTAIN = 1e9  # logits and odds of what cannot be: JSON has no infinity

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
class SpanPrediction(Prediction):
    """Its label is the answer's text; empty: no answer."""

    id: str = ""
    start: int = 0  # characters of the context, [start, end)
    end: int = 0
    candidates: tuple[Candidate, ...] = ()  # the best first
    null_odds: float | None = None  # logit of "no answer" less that of the best answer; None where one must be given
    choices: Mapping[str, float] | None = None  # probability of a span, of yes and of no, where all are possible
    support: Mapping[Fact, float] | None = None  # probability of every sentence that it supports the answer, likewise
    facts: tuple[Fact, ...] | None = None  # the sentences given as support, likewise

    @property
    def best_text(self) -> str:
        """The best answer, given or not."""
        return next((candidate.text for candidate in self.candidates if candidate.text), "")


def decode_span(
    windows: Sequence[Window],
    logits: Sequence[Tensor],
    n_best: int = 20,
    max_answer_length: int = 30,
    null_threshold: float | None = None,
) -> SpanPrediction:
    """The answer to one question, from the start and end logits [tokens, 2] of its windows.

    Every span of at most `max_answer_length` context tokens is weighed, in the window that shows its first token in
    the fullest context. With a `null_threshold`, "no answer" is given when its logit (the lowest over the windows)
    exceeds the best span's by more.
    """
    found: list[Candidate] = []
    nulls: list[tuple[float, float]] = []
    for window, outputs in zip(windows, logits, strict=True):
        scores = checked(window, outputs)
        found += best_spans(window, scores, n_best, max_answer_length)
        nulls.append(tuple(np.maximum(scores[0], -CERTAIN).tolist()))
    best = _distinct(sorted(found, key=lambda one: -one.logit))[:n_best]
    null = None if null_threshold is None else Candidate("", 0, 0, *min(nulls, key=sum))
    return _answer(windows[0].asked.id, best, null, null_threshold or 0.0)


def checked(window: Window, logits: Any, outputs: int = 2) -> np.ndarray:
    """[tokens, outputs] in 64 bits, without padding; minus infinity is fine (a position that cannot be), NaN is not."""
    scores = torch.as_tensor(logits).detach().double().cpu().numpy()
    if scores.ndim != 2 or scores.shape[1] != outputs or len(scores) < len(window):
        needed = f"a window of {len(window)} tokens needs logits [tokens, {outputs}]"
        raise BadSetting(f"{needed}, not {list(scores.shape)}")
    scores = scores[: len(window)]
    if np.isnan(scores).any() or np.isposinf(scores).any():
        raise NonFiniteAnswer(f"the logits of question {window.asked.id!r} hold NaN or infinity")
    return scores


def best_spans(window: Window, scores: np.ndarray, n_best: int, longest: int) -> list[Candidate]:
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
    for index in top[np.isfinite(sums[top])].tolist():
        first, last = index // longest, index // longest + index % longest
        start, end = window.characters(first + window.at, last + window.at)
        if start < end:
            text, pair = window.asked.context[start:end], (float(inside[first, 0]), float(inside[last, 1]))
            found.append(Candidate(text, start, end, *pair))
    return found


def _distinct(candidates: Iterable[Candidate]) -> list[Candidate]:
    """The first of those with the same text."""
    found: dict[str, Candidate] = {}
    for candidate in candidates:
        found.setdefault(candidate.text, candidate)
    return list(found.values())


def _answer(key: str, best: list[Candidate], null: Candidate | None, threshold: float) -> SpanPrediction:
    candidates = best if null is None else sorted([*best, null], key=lambda one: -one.logit)
    candidates = _with_probabilities(candidates or [Candidate("", 0, 0, -CERTAIN, -CERTAIN)])
    odds = None
    if null is not None:
        odds = float(np.clip(null.logit - best[0].logit, -CERTAIN, CERTAIN)) if best else CERTAIN
    silent = odds is not None and odds > threshold
    given = next((one for one in candidates if (one.text == "") == silent), candidates[0])
    scores = {one.text: one.probability for one in candidates}
    found = SpanPrediction(given.text, given.probability, scores, id=key, candidates=tuple(candidates), null_odds=odds)
    return replace(found, start=given.start, end=given.end)


def _with_probabilities(candidates: list[Candidate]) -> list[Candidate]:
    weights = np.exp([one.logit - candidates[0].logit for one in candidates])
    return [replace(one, probability=share) for one, share in zip(candidates, (weights / weights.sum()).tolist())]
