"""Ask a model which candidate is right, however many windows the supports take."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from paredown.errors import NonFiniteAnswer
from paredown.evaluation.choices import score_choices
from paredown.evaluation.questions import answer_windows, as_choices, check_kind, window_length
from paredown.evaluation.spans import PREDICTIONS, write_files
from paredown.model import AdaptiveModel
from paredown.plan import Plan
from paredown.state import not_a_number
from paredown.tasks import Choices, MarkedWindow, marked_windows
from paredown.tasks._candidates import BETWEEN_SUPPORTS, LENGTH, MOST_CANDIDATES, MOST_WINDOWS


@dataclass(frozen=True)
class Chosen:
    """The likeliest candidate, and the work it took, summed over the windows."""

    id: str
    text: str
    candidate: int  # its place among the candidates
    score: float  # its probability
    scores: tuple[float, ...]  # of every candidate that was read, in their order
    windows: int = 1
    layers: int = 0  # layers run
    tokens: int = 0  # token-layers run


@dataclass(frozen=True)
class CandidateAnswering:
    """Chooses among candidates: `CandidateAnswering(model)("capital of peru", ["lima", "oslo"], texts).text`."""

    model: AdaptiveModel
    max_length: int | None = None  # tokens of a window; None: as in training, else 1024 or what the encoder can read
    stride: int | None = None  # tokens from the start of one window's supports to that of the next; None: no overlap
    max_windows: int | None = MOST_WINDOWS  # of a question; None: as many as its supports take
    max_candidates: int | None = MOST_CANDIDATES  # of a question; None: all
    protect: bool = True  # reducers keep query and candidates; else these may go too, and answer from their last state

    def __post_init__(self) -> None:
        check_kind(self.model, "marked")
        window_length(self.model, self.max_length)

    def __call__(
        self, query: str, candidates: Sequence[str], supports: Sequence[str], plan: Plan | None = None
    ) -> Chosen:
        context = BETWEEN_SUPPORTS.join(" ".join(text.split()) for text in supports)
        return self.answers([Choices("0", context, query, tuple(candidates))], plan)[0]

    def answers(self, questions: Iterable[Any], plan: Plan | None = None, batch_size: int = 32) -> list[Chosen]:
        """One for each question, in order; `batch_size` counts windows."""
        shown = self.windows(questions)
        logits, work = answer_windows(self.model, shown, plan, batch_size)
        asked, scores = {}, defaultdict(list)
        for window, said in zip(shown, logits, strict=True):
            asked[window.number] = window.question
            scores[window.number].append(said[list(window.encoded.first or ()), 0])
        return [_chosen(question, torch.stack(scores[number]), work[number]) for number, question in asked.items()]

    def windows(self, questions: Iterable[Any]) -> list[MarkedWindow]:
        """What the model reads of the questions."""
        length = window_length(self.model, self.max_length, LENGTH)
        settings = (length, self.stride, self.max_windows, self.max_candidates, self.protect)
        return marked_windows(self.model.tokenizer, as_choices(questions), *settings)


def _chosen(question: Choices, logits: Tensor, work: dict[str, Any]) -> Chosen:
    """From [windows, candidates]: a candidate's score is the mean over the windows."""
    if bool(not_a_number(logits).any()):
        raise NonFiniteAnswer(f"the logits of question {question.id!r} hold NaN or infinity")
    scores = logits.mean(0).softmax(-1)
    best = int(scores.argmax())
    return Chosen(question.id, question.options[best], best, float(scores[best]), tuple(scores.tolist()), **work)


def score_candidates(questions: Sequence[Choices], answers: Sequence[Chosen]) -> dict[str, float | int]:
    """`accuracy` over all questions, a fraction of 1, and their `total`."""
    return score_choices(questions, [one.text for one in answers])


def write_candidates(folder: str | Path, answers: Sequence[Chosen]) -> list[Path]:
    """The candidate chosen by the question's id, as WikiHop's own predictions are written."""
    return write_files(folder, {PREDICTIONS: {one.id: one.text for one in answers}})
