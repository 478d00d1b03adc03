"""Answers that may also be yes or no, with the sentences that support them: decoded from windows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.special import expit, softmax
from torch import Tensor

from paredown.answers.supported_span import TYPES
from paredown.errors import BadSetting
from paredown.evaluation.spans import Fact, SpanAnswer, checked, decode
from paredown.tasks import Question, Window


def decode_supported(
    windows: Sequence[Window], logits: Sequence[Tensor] | Tensor, threshold: float = 0.5, **settings: Any
) -> list[SpanAnswer]:
    """One answer for each question, in their order, from the logits [tokens, 6] of its windows.

    Spans are decoded as ever, by `settings`. Every window judges the whole question's type, so its probabilities are
    the mean of theirs. A sentence is as likely support as the window that is surest of it says; it is given from
    `threshold` on.
    """
    if not 0 <= threshold <= 1:
        raise BadSetting(f"the threshold of support is a probability, 0 to 1, not {threshold}")
    spans = decode(windows, [said[:, :2] for said in logits], **settings)
    asked: dict[int, Question] = {}
    types: dict[int, list[np.ndarray]] = defaultdict(list)
    support: dict[int, dict[int, float]] = defaultdict(dict)  # by question, by sentence
    for window, said in zip(windows, logits):
        scores, number = checked(window, said, outputs=6), window.number
        asked[number] = window.question
        types[number].append(softmax(scores[0, 2:5]))
        for token, which in window.sentences:
            support[number][which] = max(float(expit(scores[token, 5])), support[number].get(which, 0.0))
    return [
        _supported(span, asked[number], np.mean(types[number], axis=0), support[number], threshold)
        for span, number in zip(spans, sorted(asked), strict=True)
    ]


def _supported(
    span: SpanAnswer, question: Question, types: np.ndarray, support: dict[int, float], threshold: float
) -> SpanAnswer:
    choices = dict(zip(TYPES, types.tolist()))
    named: dict[Fact, float] = {}
    for which, chance in sorted(support.items()):
        sentence = question.sentences[which]
        named[sentence.title, sentence.number] = chance
    facts = tuple(fact for fact, chance in named.items() if chance >= threshold)
    told = replace(span, choices=choices, support=named, facts=facts)
    best = max(TYPES, key=choices.__getitem__)
    if best == "span":
        return replace(told, score=span.score * choices["span"])
    return replace(told, text=best, start=0, end=0, score=choices[best])
