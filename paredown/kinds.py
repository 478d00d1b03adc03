"""What an answer is: one label, several labels, a number, one label per token, a span, an option, a marked token.

Every kind but regression turns logits into log-probabilities of the same shape, [rows, items, classes]: one item for
a single label, one per label for several, one per token for token labels, two (start and end, whose classes are the
tokens) for a span, a third (its type) where an answer may also be yes or no; one for a choice (whose classes are the
options) and for a marked token (the tokens again). Exit rules and distillation see only items, so they need not know
the kind.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from paredown.errors import BadInput, BadPlan, BadSetting, UnknownName

Direction = Literal["forward", "reverse"]
Place = tuple[int, int]  # first and last token


@dataclass(frozen=True)
class Kind(ABC):
    name: str
    problem_type: str | None  # as in Hugging Face's config.problem_type
    auto_class: str = "AutoModelForSequenceClassification"
    per_token: bool = False  # logits are [rows, tokens, …], so tokens that were dropped are answered too
    per_word: bool = False  # texts are words, and each has a label
    grouped: bool = False  # several rows are asked together: the options of a question
    outputs: tuple[str, ...] = ()  # what the logits say, where the kind and not the data decides

    @property
    def windowed(self) -> bool:
        """Whether rows are windows of a text that a question is about; the answer is among their tokens."""
        return self.per_token and not self.per_word

    def counts(self, batch: Mapping[str, Tensor]) -> Tensor:
        """[rows, tokens, …] tokens whose answer is wanted; of a choice [questions, options] those there are."""
        return batch.get("answer_mask", batch["attention_mask"]).bool()

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

    def classes(self, log_probs: Tensor, counts: Tensor | None) -> int | Tensor:
        """How many an item has; [rows, 1 or items] where that differs: the tokens or options that may be it."""
        return int(log_probs.shape[-1]) if counts is None or self.per_word else counts.sum(1, keepdim=True)

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
        counts: Tensor,
        temperature: float = 1.0,
        direction: Direction = "forward",
    ) -> Tensor:
        """KL(teacher || student) (forward) or KL(student || teacher) (reverse), mean over the items that count."""
        ours, theirs = self.log_probs(student / temperature), self.log_probs(teacher / temperature)
        divergence = _divergence(ours, theirs, direction)  # [rows, items]
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
        return _yes_or_no(logits)

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
    def counts(self, batch: Mapping[str, Tensor]) -> Tensor:
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
    are the tokens, of which only some can be the answer.

    Labels are [rows, places, items]: every place that is right, filled up with IGNORED.
    """

    def ruled_out(self, logits: Tensor, counts: Tensor) -> Tensor:
        return logits.masked_fill(~counts.bool().unsqueeze(-1), RULED_OUT)

    def log_probs(self, logits: Tensor) -> Tensor:
        return logits.float().transpose(1, 2).log_softmax(-1)

    def loss(self, logits: Tensor, labels: Tensor, smoothing: float = 0.0) -> Tensor:
        """Minus the log-probability that a place (a start, an end) is one of the right ones, whichever."""
        _refuse_smoothing(smoothing)
        if labels.shape[1] == 1:  # what the general case comes to, to the last bit
            return F.cross_entropy(logits.float().transpose(1, 2).flatten(0, 1), labels.flatten())
        return _surprise(self.log_probs(logits), labels).mean()

    def wrong(self, logits: Tensor, labels: Tensor) -> Tensor:
        return _misplaced(self.predicted(logits), labels)


class SupportedSpan(Span):
    """A span, yes or no; and which sentences of the text support that.

    Six logits for every token: start and end; span, yes and no, which are read at the first token; and, read at the
    first token of a sentence, whether it is support. Labels are one row of numbers: PLACES pairs as for a span, the
    type, and for every token whether the sentence that begins there is support.
    """

    def counts(self, batch: Mapping[str, Tensor]) -> Tensor:
        """[rows, tokens, 2]: the tokens that may be the answer, and those that begin a sentence."""
        may_answer = super().counts(batch)
        return torch.stack([may_answer, batch.get("sentence_mask", torch.zeros_like(may_answer))], dim=-1)

    def ruled_out(self, logits: Tensor, counts: Tensor) -> Tensor:
        return torch.cat([super().ruled_out(logits[..., :2], counts[..., 0]), logits[..., 2:]], dim=-1)

    def log_probs(self, logits: Tensor) -> Tensor:
        where, what = logits.float()[..., :2].transpose(1, 2), logits.float()[:, :1, 2:5]
        width = max(where.shape[-1], len(TYPES))
        padded = [F.pad(item, (0, width - item.shape[-1]), value=RULED_OUT) for item in (where, what)]
        return torch.cat(padded, dim=1).log_softmax(-1)

    def classes(self, log_probs: Tensor, counts: Tensor | None) -> int | Tensor:
        if counts is None:
            return super().classes(log_probs, None)
        tokens = counts[..., 0].sum(1, keepdim=True)
        return torch.cat([tokens, tokens, torch.full_like(tokens, len(TYPES))], dim=1)

    def judged(self, logits: Tensor) -> Tensor:
        """[rows, 3 + tokens]: start, end, type; for every token, whether a sentence that begins there is support."""
        return torch.cat([self.predicted(logits), (logits[..., 5] > 0).long()], dim=1)

    def label(self, places: Sequence[Place], what: str, support: Mapping[int, bool], tokens: int) -> list[int]:
        """The label of a row: where the answer is (nowhere, if it is no span), its type, and support by first token."""
        pairs = [*places[:PLACES], *[(IGNORED, IGNORED)] * (PLACES - len(places))]
        sentences = [int(support.get(token, IGNORED)) for token in range(tokens)]
        return [*(place for pair in pairs for place in pair), TYPES.index(what), *sentences]

    @staticmethod
    def parts(labels: Any) -> tuple[Any, Any, Any]:
        """Places [rows, PLACES, 2], type [rows] and support [rows, tokens] of labels, tensors or arrays."""
        places = labels[:, : 2 * PLACES].reshape(len(labels), PLACES, 2)
        return places, labels[:, 2 * PLACES], labels[:, 2 * PLACES + 1 :]

    def loss(self, logits: Tensor, labels: Tensor, smoothing: float = 0.0) -> Tensor:
        """Of where (nothing, where the answer is no span), of its type and of the sentences, a row's mean each."""
        _refuse_smoothing(smoothing)
        places, types, support = self.parts(labels)
        where = _surprise(Span.log_probs(self, logits[..., :2]), places).mean(1)
        what = F.cross_entropy(logits[:, 0, 2:5].float(), types, reduction="none")
        each = F.binary_cross_entropy_with_logits(
            logits[..., 5].float(), support.clamp(min=0).float(), reduction="none"
        )
        return (where + what + _row_means(each, support >= 0)).mean()

    def wrong(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Half for the answer, half for the sentences."""
        places, types, support = self.parts(labels)
        said = self.predicted(logits)
        answer = _misplaced(said[:, :2], places).squeeze(1) * (places[:, 0, 0] >= 0)
        answer = torch.where(said[:, 2] == types, answer, 1.0)
        sentences = _row_means(((logits[..., 5] > 0) != (support > 0)).float(), support >= 0)
        return ((answer + sentences) / 2).unsqueeze(1)

    def distill(
        self,
        student: Tensor,
        teacher: Tensor,
        counts: Tensor,
        temperature: float = 1.0,
        direction: Direction = "forward",
    ) -> Tensor:
        answer = super().distill(student, teacher, counts, temperature, direction)
        ours, theirs = (_yes_or_no(logits[..., 5] / temperature) for logits in (student, teacher))
        support = _row_means(_divergence(ours, theirs, direction), counts[..., 1])
        return answer + temperature**2 * support.mean()


class Choice(SingleLabel):
    """One of a question's options. Each is a row, scored on its own; the scores of a question are its logits."""

    def counts(self, batch: Mapping[str, Tensor]) -> Tensor:
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


TYPES = ("span", "yes", "no")  # what an answer is, where it need not be a span
PLACES = 8  # of the answer in one window that a label of a supported span holds
RULED_OUT = -1e4  # in 16 bits too; far below any answer that can be
IGNORED = -100  # the label of a token nobody asks about, as everywhere in Hugging Face


def _cross_entropy(logits: Tensor, labels: Tensor, smoothing: float, reduction: str = "mean") -> Tensor:
    """Cross entropy with 1 - smoothing on the gold label and the rest shared by the others."""
    classes = logits.shape[-1]
    # torch spreads `label_smoothing` over all classes, gold included; the published variant over the others only.
    spread = smoothing * classes / (classes - 1) if classes > 1 else 0.0
    return F.cross_entropy(logits, labels, label_smoothing=spread, reduction=reduction)


def _yes_or_no(logits: Tensor) -> Tensor:
    """[…, 2] log-probabilities of no and of yes."""
    logits = logits.float()
    return torch.stack([F.logsigmoid(-logits), F.logsigmoid(logits)], dim=-1)


def _divergence(ours: Tensor, theirs: Tensor, direction: Direction) -> Tensor:
    """KL over the classes: of theirs from ours, or in reverse."""
    target, guess = (theirs, ours) if direction == "forward" else (ours, theirs)
    return (target.exp() * (target - guess)).sum(-1)


def _surprise(log_probs: Tensor, places: Tensor) -> Tensor:
    """[rows, items] of [rows, items, tokens]: any of [rows, places, items] will do; 0 where a row has none."""
    tokens = torch.arange(log_probs.shape[-1], device=log_probs.device)
    right = (places.unsqueeze(-1) == tokens).any(1)  # [rows, items, tokens]; the same token twice is one
    nothing = (places < 0).all(1).unsqueeze(-1)
    return -log_probs.masked_fill(~(right | nothing), float("-inf")).logsumexp(-1)


def _misplaced(said: Tensor, places: Tensor) -> Tensor:
    """[rows, 1] of what is said [rows, items], the share that is wrong, by the place that fits best."""
    return (said.unsqueeze(1) != places).float().mean(2).amin(1, keepdim=True)


def _row_means(values: Tensor, counts: Tensor) -> Tensor:
    """[rows] the mean of what counts; 0 where nothing does."""
    return (values * counts).sum(1) / counts.sum(1).clamp(min=1)


def _refuse_smoothing(smoothing: float) -> None:
    if smoothing:
        raise BadSetting("label smoothing would point at tokens that cannot be the answer; leave it at 0 here")


KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        SingleLabel("single_label", "single_label_classification"),
        MultiLabel("multi_label", "multi_label_classification"),
        Regression("regression", "regression"),
        TokenLabel("token_label", None, "AutoModelForTokenClassification", per_token=True, per_word=True),
        Span("span", None, "AutoModelForQuestionAnswering", per_token=True, outputs=("start", "end")),
        SupportedSpan(
            "supported_span",
            None,
            "AutoModelForTokenClassification",
            per_token=True,
            outputs=("start", "end", *TYPES, "support"),
        ),
        Choice("choice", None, grouped=True, outputs=("score",)),
        Span("marked", None, "AutoModelForTokenClassification", per_token=True, outputs=("score",)),
    )
}


def kind_named(name: str) -> Kind:
    if name not in KINDS:
        raise UnknownName(f"no kind of answer is called {name!r}; known: {', '.join(KINDS)}")
    return KINDS[name]
