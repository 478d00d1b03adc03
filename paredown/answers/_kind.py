"""What every kind of answer shares: masks, probabilities, loss and distillation of its logits.

Every kind but regression turns logits into log-probabilities of the same shape, [rows, items, classes]: one item for
a single label, one per label for several, one per token for token labels, two (start and end, whose classes are the
tokens) for a span, a third (its type) where an answer may also be yes or no; one for a choice (whose classes are the
options) and for a marked token (the tokens again). Exit rules and distillation see only items, so they need not know
the kind.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from paredown.answers._prediction import Prediction
from paredown.answers._rows import Encoded, collate, listed, number_of, pairs_of, row_of, token_ids
from paredown.errors import BadInput, BadPlan, BadSetting

Direction = Literal["forward", "reverse"]
LONGEST = 512  # tokens of a row, where nobody says
RULED_OUT = -1e4  # in 16 bits too; far below any answer that can be


class Kind(ABC):
    """Base of the kinds: inputs become units, units become rows of token ids, and their logits become predictions."""

    name: ClassVar[str]
    problem_type: ClassVar[str | None] = None  # as in Hugging Face's config.problem_type
    auto_class: ClassVar[str] = "AutoModelForSequenceClassification"
    architecture: ClassVar[str] = ""  # how the class names of checkpoints that were made for it end
    per_token: ClassVar[bool] = False  # logits are [rows, tokens, …], so tokens that were dropped are answered too
    per_word: ClassVar[bool] = False  # texts are words, and each has a label
    grouped: ClassVar[bool] = False  # several rows are asked together: the options of a question
    outputs: ClassVar[tuple[str, ...]] = ()  # what the logits are, where the kind and not the data decides

    @property
    def windowed(self) -> bool:
        """Whether rows are windows of a text that a question is about; the answer is among their tokens."""
        return self.per_token and not self.per_word

    # Inputs

    def units(self, inputs: Any) -> list[Any]:
        """What is asked, each on its own: from one text, a list of texts or pairs, a list of dicts, or a dataset."""
        return [self.unit(item, index) for index, item in enumerate(listed(inputs))]

    def unit(self, item: Any, index: int) -> Any:
        return row_of(item, index, per_word=False)

    def label_number(self, label: Any, labels: Sequence[str], index: int) -> Any:
        """A label as the model mask them; an unknown one is an error that names the row."""
        return None if label is None else number_of(label, labels, index)

    def usual_length(self, tokenizer: Any) -> int:
        """Tokens of a row at most, where nobody says."""
        return int(min(tokenizer.model_max_length, LONGEST))

    def encode(
        self, tokenizer: Any, units: Sequence[Any], labels: Sequence[str], max_length: int | None = None
    ) -> list[Encoded]:
        """Token ids for every unit, cut at `max_length` (default: what the tokenizer allows), not padded."""
        if not units:
            return []
        if not all(isinstance(row.text, str) for row in units):
            raise BadInput(f"{self.name} answers one text at a time; a list of words is for token_label")
        limit = max_length or self.usual_length(tokenizer)
        tokens = tokenizer([row.text for row in units], pairs_of(units), truncation=True, max_length=limit)
        return [
            Encoded(token_ids(tokens, index), self.label_number(row.label, labels, index))
            for index, row in enumerate(units)
        ]

    def collate(self, rows: Sequence[Encoded], pad_id: int, device: Any = None, multiple: int = 1) -> dict[str, Tensor]:
        """A padded batch; its width is a multiple of `multiple`."""
        return collate(rows, pad_id, device, multiple)

    # Outputs

    def decode(self, row: Encoded, logits: Tensor, labels: Sequence[str]) -> Prediction:
        """What the logits of one row [1, …] say in words."""
        probs = self.log_probs(logits)[0].exp()[0].tolist()  # [classes]
        best = max(range(len(probs)), key=probs.__getitem__)
        return Prediction(labels[best], probs[best], dict(zip(labels, probs, strict=True)))

    # Logits

    def answer_mask(self, batch: Mapping[str, Tensor]) -> Tensor:
        """[rows, tokens, …] tokens whose answer is wanted; of a choice [questions, options] those there are."""
        return batch.get("answer_mask", batch["attention_mask"]).bool()

    def ruled_out(self, logits: Tensor, mask: Tensor) -> Tensor:
        """The logits, with what cannot be the answer ruled out; those of options are brought together."""
        return logits

    def averaged(self, values: Tensor, mask: Tensor) -> Tensor:
        """[rows, …] as they are; of a choice [questions, …], a mean over the options."""
        return values

    def log_probs(self, logits: Tensor) -> Tensor:
        """[rows, items, classes], computed in 32 bits whatever the model runs in."""
        raise BadPlan(
            f"{self.name} answers are numbers, not probabilities: entropy, confidence, margin and votes mean nothing "
            "there; use patience with a tolerance, or the learned rule"
        )

    def predicted(self, logits: Tensor) -> Tensor:
        """[rows, items]: the class of every item (the value itself for regression)."""
        return self.log_probs(logits).argmax(-1)

    def classes(self, log_probs: Tensor, mask: Tensor | None) -> int | Tensor:
        """How many an item has; [rows, 1 or items] where that differs: the tokens or options that may be it."""
        return int(log_probs.shape[-1]) if mask is None or self.per_word else mask.sum(1, keepdim=True)

    def judged(self, logits: Tensor) -> Tensor:
        """What metrics compare with the labels."""
        return self.predicted(logits)

    @abstractmethod
    def loss(self, logits: Tensor, labels: Tensor, smoothing: float = 0.0) -> Tensor:
        """The supervised loss, a mean over the labelled items."""

    @abstractmethod
    def wrong(self, logits: Tensor, labels: Tensor) -> Tensor:
        """[rows, items] in 0..1: how wrong each answer is; what the learned exit rule is taught to foresee."""

    def distill(
        self,
        student: Tensor,
        teacher: Tensor,
        mask: Tensor,
        temperature: float = 1.0,
        direction: Direction = "forward",
    ) -> Tensor:
        """KL(teacher || student) (forward) or KL(student || teacher) (reverse), mean over the items asked about."""
        ours, theirs = self.log_probs(student / temperature), self.log_probs(teacher / temperature)
        each = divergence(ours, theirs, direction)  # [rows, items]
        asked = self.items(mask, each)
        return temperature**2 * (each * asked).sum() / asked.sum().clamp(min=1)

    def items(self, mask: Tensor, like: Tensor) -> Tensor:
        """[rows, items] True where an item is asked about: per token as given, else everywhere."""
        return mask.bool() if self.per_word else torch.ones_like(like, dtype=torch.bool)


def cross_entropy(logits: Tensor, labels: Tensor, smoothing: float, reduction: str = "mean") -> Tensor:
    """Cross entropy with 1 - smoothing on the gold label and the rest shared by the others."""
    classes = logits.shape[-1]
    # torch spreads `label_smoothing` over all classes, gold included; the published variant over the others only.
    spread = smoothing * classes / (classes - 1) if classes > 1 else 0.0
    return F.cross_entropy(logits, labels, label_smoothing=spread, reduction=reduction)


def yes_or_no(logits: Tensor) -> Tensor:
    """[…, 2] log-probabilities of no and of yes."""
    logits = logits.float()
    return torch.stack([F.logsigmoid(-logits), F.logsigmoid(logits)], dim=-1)


def divergence(ours: Tensor, theirs: Tensor, direction: Direction) -> Tensor:
    """KL over the classes: of theirs from ours, or in reverse."""
    target, guess = (theirs, ours) if direction == "forward" else (ours, theirs)
    return (target.exp() * (target - guess)).sum(-1)


def row_means(values: Tensor, mask: Tensor) -> Tensor:
    """[rows] the mean over the mask; 0 where it is empty."""
    return (values * mask).sum(1) / mask.sum(1).clamp(min=1)


def refuse_smoothing(smoothing: float) -> None:
    if smoothing:
        raise BadSetting("label smoothing would point at tokens that cannot be the answer; leave it at 0 here")
