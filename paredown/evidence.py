"""All that an exit rule may look at: what one head says of each row. Recorded, it can be replayed without the model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from paredown.kinds import Kind

Memory = dict[str, Tensor]  # what a rule remembers of each row; every tensor is row-first, so rows can leave


@dataclass(frozen=True)
class Evidence:
    kind: Kind
    logits: Tensor  # [rows, labels], or [rows, tokens, labels] where every token is answered; [questions, options]
    layer: int  # layers run so far, from 1
    counts: Tensor | None = None  # what may be answered, [rows, tokens, …] or [questions, options]; None: every label
    doubt: Tensor | None = None  # [rows, 1 or tokens] learned estimate of being wrong, 0..1; None without one

    @cached_property
    def log_probs(self) -> Tensor:
        """[rows, items, classes]; an error for regression."""
        return self.kind.log_probs(self.logits)

    @property
    def classes(self) -> int | Tensor:
        """How many there are; [rows, 1 or items] where that differs: the tokens or options that may be it."""
        return self.kind.classes(self.log_probs, self.counts)

    @cached_property
    def predicted(self) -> Tensor:
        """[rows, items] class, or value for regression."""
        return self.kind.predicted(self.logits)

    def agree(self, sure: Tensor) -> Tensor:
        """[rows]: True where every item that counts is sure."""
        if self.counts is not None and self.kind.per_word:
            sure = sure | ~self.counts
        return sure.all(1)

    def saying(self, logits: Tensor) -> Evidence:
        """The same evidence with other logits."""
        return replace(self, logits=logits)


def keep_rows(memory: Memory, stay: Tensor) -> Memory:
    """The memory of the rows that stay."""
    return {name: value[stay] for name, value in memory.items()}


def not_a_number(logits: Tensor) -> Tensor:
    """[rows]: True where an answer is NaN or +inf (-inf is a class that is ruled out)."""
    bad = torch.isnan(logits) | (logits == float("inf"))
    return bad.flatten(1).any(1)
