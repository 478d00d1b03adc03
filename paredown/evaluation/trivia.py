"""TriviaQA's score: the best over all aliases, by SQuAD's rules after TriviaQA's own cleaning.

Two things differ from SQuAD. A punctuation mark or underscore parts words where SQuAD deletes it ("Spider-Man" is two
words, "U.S." is "u s"), and the quotes ‘ ’ ´ count as punctuation.
"""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from dataclasses import replace

from paredown.answers import Question, SpanPrediction
from paredown.evaluation.spans import score_spans

TO_SPACES = str.maketrans(dict.fromkeys(string.punctuation + "‘’´", " "))


def parted(text: str) -> str:
    """The text without punctuation, as TriviaQA reads it; what is left to do, SQuAD's normalisation does too."""
    return text.translate(TO_SPACES)


def score_trivia(
    questions: Sequence[Question], answers: Sequence[SpanPrediction] | Mapping[str, str]
) -> dict[str, float | int]:
    """`exact` and `f1`, fractions of 1, and `total`; answers as for `score_spans`."""
    texts = answers if isinstance(answers, Mapping) else {answer.id: answer.label for answer in answers}
    cleaned = [replace(question, answers=tuple(map(parted, question.answers))) for question in questions]
    return score_spans(cleaned, {key: parted(text) for key, text in texts.items()})
