"""What an answer is: one label, several labels, a number, one label per token, a span, an option, a marked token.

Every kind but regression turns logits into log-probabilities of the same shape, [rows, items, classes]: one item for
a single label, one per label for several, one per token for token labels, two (start and end, whose classes are the
tokens) for a span, one for a choice (whose classes are the options) and for a marked token (the tokens again). Exit
rules and distillation see only items, so they need not know the kind.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from paredown.errors import BadInput, BadPlan, BadSetting, UnknownName

Direction = Literal["forward", "reverse"]


@dataclass(frozen=True)
class Kind(ABC):
    name: str
    problem_type: str | None  # as in Hugging Face's config.problem_type
    auto_class: str = "AutoModelForSequenceClassification"
    per_token: bool = False  # logits are [rows, tokens, …], so tokens that were dropped are answered too
    per_word: bool = False  # texts are words, and each has a label
    grouped: bool = False  # several rows are asked together: the options of a question

    def counts(self, batch: dict[str, Tensor]) -> Tensor:
        """[rows, tokens] tokens whose answer is wanted; of a choice [questions, options] those there are."""
        return batch.get("answer_mask", batch["attention_mask"]).bool()

    @property
    def points(self) -> bool:
        """Whether an answer is a place in the text: classes are its tokens, and texts are asked about in windows."""
        return self.per_token and not self.per_word

    def ruled_out(self, logits: Tensor, counts: Tensor) -> Tensor:
        """The logits, with what cannot be the answer ruled out; those of options are brought together."""
        return logits

    def averaged(self, values: Tensor, counts: Tensor) -> Tensor:
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
        counts: Tensor,
        temperature: float = 1.0,
        direction: Direction = "forward",
    ) -> Tensor:
        """KL(teacher || student) (forward) or KL(student || teacher) (reverse), mean over the items that count."""
        ours, theirs = self.log_probs(student / temperature), self.log_probs(teacher / temperature)
        target, guess = (theirs, ours) if direction == "forward" else (ours, theirs)
        divergence = (target.exp() * (target - guess)).sum(-1)  # [rows, items]
        counts = self.items(counts, divergence)
        return temperature**2 * (divergence * counts).sum() / counts.sum().clamp(min=1)

    def items(self, counts: Tensor, like: Tensor) -> Tensor:
        """[rows, items] True where an item counts: per token as given, else everywhere."""
        return counts.bool() if self.per_word else torch.ones_like(like, dtype=torch.bool)


class SingleLabel(Kind):
    def log_probs(self, logits: Tensor) -> Tensor:
        return logits.float().log_softmax(-1).unsqueeze(1)

    def loss(self, logits: Tensor, labels: Tensor, smoothing: float = 0.0) -> Tensor:
        return _cross_entropy(logits.float(), labels, smoothing)

    def wrong(self, logits: Tensor, labels: Tensor) -> Tensor:
        return (logits.argmax(-1) != labels).float().unsqueeze(1)


class MultiLabel(Kind):
    def log_probs(self, logits: Tensor) -> Tensor:
        logits = logits.float()
        return torch.stack([F.logsigmoid(-logits), F.logsigmoid(logits)], dim=-1)

    def loss(self, logits: Tensor, labels: Tensor, smoothing: float = 0.0) -> Tensor:
        soft = labels.float() * (1 - 2 * smoothing) + smoothing
        return F.binary_cross_entropy_with_logits(logits.float(), soft)

    def wrong(self, logits: Tensor, labels: Tensor) -> Tensor:
        return ((logits > 0) != labels.bool()).float().mean(-1, keepdim=True)


class Regression(Kind):
    def predicted(self, logits: Tensor) -> Tensor:
        return logits.float()

    def loss(self, logits: Tensor, labels: Tensor, smoothing: float = 0.0) -> Tensor:
        if smoothing:
            raise BadSetting("label smoothing needs labels, and regression has numbers; leave it at 0")
        return F.mse_loss(logits.float(), labels.float().view_as(logits))

    def wrong(self, logits: Tensor, labels: Tensor) -> Tensor:
        error = (logits.float() - labels.float().view_as(logits)).abs()
        return error.mean(-1, keepdim=True).tanh()

    def distill(
        self,
        student: Tensor,
        teacher: Tensor,
        counts: Tensor,
        temperature: float = 1.0,
        direction: Direction = "forward",
    ) -> Tensor:
        return F.mse_loss(student.float(), teacher.float())


class TokenLabel(Kind):
    def counts(self, batch: dict[str, Tensor]) -> Tensor:
        return batch["labels"] >= 0 if "labels" in batch else super().counts(batch)

    def log_probs(self, logits: Tensor) -> Tensor:
        return logits.float().log_softmax(-1)

    def loss(self, logits: Tensor, labels: Tensor, smoothing: float = 0.0) -> Tensor:
        labelled = (labels != IGNORED).sum().clamp(min=1)  # with none in this batch: no loss, but still a graph
        return _cross_entropy(logits.float().flatten(0, 1), labels.flatten(), smoothing, reduction="sum") / labelled

    def wrong(self, logits: Tensor, labels: Tensor) -> Tensor:
        return ((logits.argmax(-1) != labels) & (labels != IGNORED)).float()


class Span(Kind):
    """Places in the text, [rows, items]: where an answer starts and ends, or which of the marked tokens it is. Classes
    are the tokens, of which only some can be the answer."""

    def ruled_out(self, logits: Tensor, counts: Tensor) -> Tensor:
        return logits.masked_fill(~counts.bool().unsqueeze(-1), RULED_OUT)

    def log_probs(self, logits: Tensor) -> Tensor:
        return logits.float().transpose(1, 2).log_softmax(-1)

    def loss(self, logits: Tensor, labels: Tensor, smoothing: float = 0.0) -> Tensor:
        if smoothing:
            raise BadSetting("label smoothing would point at tokens that cannot be the answer; leave it at 0 here")
        return F.cross_entropy(logits.float().transpose(1, 2).flatten(0, 1), labels.flatten())

    def wrong(self, logits: Tensor, labels: Tensor) -> Tensor:
        return (self.predicted(logits) != labels).float().mean(1, keepdim=True)


class Choice(SingleLabel):
    """One of a question's options. Each is a row, scored on its own; the scores of a question are its logits."""

    def counts(self, batch: dict[str, Tensor]) -> Tensor:
        if "group" not in batch:
            raise BadInput("a choice is among several rows: batch['group'] must number the question of each, from 0 on")
        options = torch.bincount(batch["group"])
        return torch.arange(int(options.max()), device=options.device) < options.unsqueeze(1)

    def ruled_out(self, logits: Tensor, counts: Tensor) -> Tensor:
        return _placed(logits.squeeze(-1), counts, RULED_OUT)

    def averaged(self, values: Tensor, counts: Tensor) -> Tensor:
        options = counts.sum(1).view(-1, *[1] * (values.dim() - 1))
        return _placed(values, counts, 0.0).sum(1) / options

    def loss(self, logits: Tensor, labels: Tensor, smoothing: float = 0.0) -> Tensor:
        if not smoothing:
            return super().loss(logits, labels)
        others = (logits > RULED_OUT / 2).scatter(1, labels.unsqueeze(1), False)
        target = (smoothing * others / others.sum(1, keepdim=True)).scatter(1, labels.unsqueeze(1), 1 - smoothing)
        return F.cross_entropy(logits.float(), target)


def _placed(values: Tensor, counts: Tensor, fill: float) -> Tensor:
    """[questions, options, …]: the values of rows [rows, …] where `counts` has an option; the order is the same."""
    there = counts.view(*counts.shape, *[1] * (values.dim() - 1)).expand(*counts.shape, *values.shape[1:])
    return values.new_full(there.shape, fill).masked_scatter(there, values)


RULED_OUT = -1e4  # in 16 bits too; far below any answer that can be
IGNORED = -100  # the label of a token nobody asks about, as everywhere in Hugging Face


def _cross_entropy(logits: Tensor, labels: Tensor, smoothing: float, reduction: str = "mean") -> Tensor:
    """Cross entropy with 1 - smoothing on the gold label and the rest shared by the others."""
    classes = logits.shape[-1]
    # torch spreads `label_smoothing` over all classes, gold included; the published variant over the others only.
    spread = smoothing * classes / (classes - 1) if classes > 1 else 0.0
    return F.cross_entropy(logits, labels, label_smoothing=spread, reduction=reduction)


KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        SingleLabel("single_label", "single_label_classification"),
        MultiLabel("multi_label", "multi_label_classification"),
        Regression("regression", "regression"),
        TokenLabel("token_label", None, "AutoModelForTokenClassification", per_token=True, per_word=True),
        Span("span", None, "AutoModelForQuestionAnswering", per_token=True),
        Choice("choice", None, grouped=True),
        Span("marked", None, "AutoModelForTokenClassification", per_token=True),
    )
}


def kind_named(name: str) -> Kind:
    if name not in KINDS:
        raise UnknownName(f"no kind of answer is called {name!r}; known: {', '.join(KINDS)}")
    return KINDS[name]
