"""What comes out of a model: the answers of a batch, the prediction for a row, and the ledger that collects them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from paredown.kinds import Kind
from paredown.state import State


@dataclass
class Answer:
    logits: Tensor  # [rows, labels], in the order the rows came
    layers: Tensor  # [rows]  layers run
    tokens: Tensor  # [rows]  token-layers run: the work done


@dataclass(frozen=True)
class Prediction:
    label: Any  # a name; several names; a number; one name per word, None for words that were cut off; an option
    score: float  # how sure: of the label, of the least sure label or word; the number itself for regression
    scores: Any  # by label; one such dict per word where every token is answered
    layers: int
    tokens: int


def read(kind: Kind, logits: Tensor, labels: list[str]) -> tuple[Any, float, Any]:
    """Label, score and all scores of one row of logits [1, …]."""
    if kind.name == "regression":
        values = logits.flatten().tolist()
        return (values[0] if len(values) == 1 else values), values[0], dict(zip(labels, values, strict=True))
    probs = kind.log_probs(logits)[0].exp()  # [items, classes]
    if kind.name == "multi_label":
        chosen = [label for label, prob in zip(labels, probs[:, 1].tolist(), strict=True) if prob > 0.5]
        return chosen, probs.amax(-1).min().item(), dict(zip(labels, probs[:, 1].tolist(), strict=True))
    each = [dict(zip(labels, row, strict=True)) for row in probs.tolist()]
    best = [labels[place] for place in probs.argmax(-1).tolist()]
    sure = probs.amax(-1).min().item() if len(each) else 1.0
    return (best, sure, each) if kind.per_word else (best[0], sure, each[0])


def by_word(found: list[Any], words: Sequence[int], number: int) -> list[Any]:
    """One for each of so many words: what was found of `words`, None for those that were cut off."""
    known = dict(zip(words, found, strict=True))
    return [known.get(word) for word in range(number)]


@dataclass
class Ledger:
    """Who left with which answer, and the work done for each row, or for all options of a question."""

    rows: int
    device: torch.device
    said: list[tuple[Tensor, Tensor]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.layers = torch.zeros(self.rows, dtype=torch.long, device=self.device)
        self.tokens = torch.zeros(self.rows, dtype=torch.long, device=self.device)

    def ran(self, state: State) -> None:
        owner = state.row if state.group is None else state.group
        self.layers[owner] = self.layers[owner] + 1
        self.tokens.index_add_(0, owner, state.mask.sum(1))

    def left(self, rows: Tensor, logits: Tensor) -> None:
        self.said.append((rows, logits))

    def answer(self) -> Answer:
        rows, logits = (torch.cat(parts) for parts in zip(*self.said, strict=True))
        return Answer(logits[rows.argsort()], self.layers, self.tokens)
