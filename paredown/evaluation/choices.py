"""Chosen options, as a file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from paredown.answers import Prediction
from paredown.evaluation.spans import PREDICTIONS
from paredown.tasks import Choices
from paredown.tasks.race import letter


def write_choices(folder: str | Path, asked: Sequence[Choices], said: Sequence[Prediction]) -> Path:
    """The letter of each chosen option by the question's id, as RACE's own answers are written."""
    path = Path(folder) / PREDICTIONS
    path.parent.mkdir(parents=True, exist_ok=True)
    letters = {one.id: letter(one.options.index(its.label)) for one, its in zip(asked, said, strict=True)}
    path.write_text(json.dumps(letters, indent=4, ensure_ascii=False) + "\n", encoding="utf-8", newline="\n")
    return path
