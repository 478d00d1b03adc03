"""Which rows of a batch are asked together, and some of them as a batch of their own."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from paredown.answers import Kind

Rows = list[int]


def asked(kind: Kind, rows: int, seed: int) -> list[Rows]:
    """Every row alone; of a choice, two to four, what is left at the end too, as the options of a question."""
    if not kind.grouped:
        return [[row] for row in range(rows)]
    draw, found, start = random.Random(seed), [], 0
    while start < rows:
        end = min(start + draw.randint(2, 4), rows)
        found.append(list(range(start, end)))
        start = end
    return found


def picked(kind: Kind, inputs: dict[str, Tensor], questions: list[Rows], width: int | None = None) -> dict[str, Tensor]:
    """The rows of some questions, cut to a width."""
    rows = [row for question in questions for row in question]
    batch = {name: value[rows, :width] for name, value in inputs.items()}
    if kind.grouped:
        batch["group"] = torch.tensor([index for index, question in enumerate(questions) for _ in question])
    return batch


def own(kind: Kind, logits: Tensor, question: Sequence[Any], length: int) -> Tensor:
    """The logits of a question without what only the others in its batch have: more tokens, or more options."""
    if kind.grouped:
        return logits[:, : len(question)]
    return logits[:, :length] if kind.per_token else logits
