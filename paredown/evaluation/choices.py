"""Chosen options, scored and written as a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from paredown.answers import Choices, MarkedPrediction
from paredown.errors import BadInput
from paredown.evaluation.spans import PREDICTIONS, write_files
from paredown.tasks.race import letter


def score_choices(questions: Sequence[Choices], chosen: Sequence[str]) -> dict[str, float | int]:
    """`accuracy` of the options chosen over all questions, a fraction of 1, and their `total`."""
    if not questions:
        raise BadInput("no questions to score")
    if unlabelled := [question.id for question in questions if question.label is None]:
        raise BadInput(f"no right answer is known for question {unlabelled[0]!r} ({len(unlabelled)} such questions)")
    if beyond := [one for one in questions if not 0 <= (one.label or 0) < len(one.options)]:
        raise BadInput(
            f"question {beyond[0].id!r}: option {beyond[0].label} is labelled right, of {len(beyond[0].options)}"
        )
    right = sum(one.options[one.label or 0] == option for one, option in zip(questions, chosen, strict=True))
    return {"accuracy": right / len(questions), "total": len(questions)}


def write_letters(folder: str | Path, questions: Sequence[Choices], chosen: Sequence[str]) -> list[Path]:
    """The letter of each chosen option by the question's id, as RACE's own answers are written."""
    letters = {one.id: letter(one.options.index(option)) for one, option in zip(questions, chosen, strict=True)}
    return write_files(folder, {PREDICTIONS: letters})


def write_candidates(folder: str | Path, predictions: Sequence[MarkedPrediction]) -> list[Path]:
    """The candidate chosen by the question's id, as WikiHop's own predictions are written."""
    return write_files(folder, {PREDICTIONS: {one.id: one.label for one in predictions}})
