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
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from paredown.answers._length import longest_row
from paredown.answers._prediction import Prediction
from paredown.answers._questions import Choices, Question
from paredown.answers._rows import (
    Encoded,
    Row,
    are_encoded,
    as_objects,
    by_unit,
    collate,
    listed,
    number_of,
    pairs_of,
    row_of,
    token_rows,
)
from paredown.errors import BadInput, BadPlan, BadSetting
from paredown.registry import answers

Direction = Literal["forward", "reverse"]
LONGEST = 512  # tokens of a row by default
RULED_OUT = -1e4  # in 16 bits too; far below any answer that can be


@dataclass(frozen=True)
class Kind(ABC):
    """Base of the kinds: inputs become units, units become rows of token ids, and their logits become predictions."""

    name: ClassVar[str]
    problem_type: ClassVar[str | None] = None  # as in Hugging Face's config.problem_type
    auto_class: ClassVar[str] = "AutoModelForSequenceClassification"
    architecture: ClassVar[str] = ""  # how the class names of checkpoints that were made for it end
    per_token: ClassVar[bool] = False  # logits are [rows, tokens, …], so tokens that were dropped are answered too
    per_word: ClassVar[bool] = False  # texts are words, and each has a label
    windowed: ClassVar[bool] = False  # rows are windows of a text that a question is about; tokens of it are the answer
    grouped: ClassVar[bool] = False  # several rows are asked together: the options of a question
    numeric: ClassVar[bool] = False  # answers are numbers: hardly ever equal, and without probabilities
    outputs: ClassVar[tuple[str, ...]] = ()  # what the logits are, where the kind and not the data decides

    asks: ClassVar[type] = Row  # what models of the kind are asked
    row_type: ClassVar[type] = Encoded  # what that becomes
    columns: ClassVar[tuple[str | None, str | None]] = (None, None)  # of text and pair in a table; None: guessed
    records_of: ClassVar[str | None] = None  # the task whose records a table holds, where rows are no texts
    metric: ClassVar[str] = "accuracy"  # the usual one
    fields: ClassVar[tuple[str, ...]] = ("label", "score", "scores", "layers", "tokens")  # of a prediction, in a file
    named_fields: ClassVar[tuple[str, ...]] = ("id",)  # that come before them where rows are named questions
    label_type: ClassVar[str] = "text"  # of the label in a file: text, number, texts
    own_scores: ClassVar[bool] = False  # scores are by what a row names itself, its words or options, not by the labels

    @property
    def asks_questions(self) -> bool:
        return self.asks is not Row

    # Inputs

    def units(self, inputs: Any) -> list[Any]:
        """What is asked, each on its own: from one text, a list of texts or pairs, a list of dicts, or a dataset."""
        found = []
        for index, item in enumerate(listed(inputs)):
            if isinstance(item, (Question, Choices)) and not isinstance(item, self.asks):
                kinds = " or ".join(name for name in answers.names() if isinstance(item, answers.make(name).asks))
                raise BadSetting(f"a {type(item).__name__} is for models of {kinds}; this one answers {self.name}")
            found.append(self.unit(item, index))
        return found

    def unit(self, item: Any, index: int) -> Any:
        return row_of(item, index, per_word=False)

    def unlabelled(self, units: Sequence[Any]) -> list[Any]:
        """The same units without their labels."""
        return [unit if unit.label is None else replace(unit, label=None) for unit in units]

    def label_number(self, label: Any, labels: Sequence[str], index: int) -> Any:
        """A label as the model numbers them; an unknown one is an error that names the row."""
        return None if label is None else number_of(label, labels, index)

    def usual_length(self, tokenizer: Any) -> int:
        """Tokens of a row at most, by default."""
        return int(min(tokenizer.model_max_length, LONGEST))

    def row_length(self, model: Any, wanted: int | None = None) -> int:
        """Tokens at which the rows of a model are cut."""
        return wanted or model.reading.max_length or int(min(LONGEST, longest_row(model)))

    def encode(
        self, tokenizer: Any, units: Sequence[Any], labels: Sequence[str], max_length: int | None = None
    ) -> list[Encoded]:
        """Token ids for every unit, cut at `max_length` (default: what the tokenizer allows), not padded."""
        if not units:
            return []
        if not all(isinstance(row.text, str) for row in units):
            raise BadInput(f"{self.name} answers one text at a time; a list of words is for token_label")
        limit = max_length or self.usual_length(tokenizer)
        ids = token_rows(tokenizer, [row.text for row in units], pairs_of(units), limit)
        return [Encoded(ids[index], self.label_number(row.label, labels, index)) for index, row in enumerate(units)]

    def rows(self, model: Any, inputs: Any, max_length: int | None = None) -> list[Encoded]:
        """What a model reads of inputs; rows that are token ids already stay as they are."""
        if are_encoded(inputs):
            return list(inputs)
        return self.encode(model.tokenizer, self.units(inputs), model.labels, self.row_length(model, max_length))

    def by_unit(self, rows: Sequence[Encoded]) -> list[list[int]]:
        """The indexes of the rows of every unit that is judged, in the order of the units."""
        return by_unit(rows)

    def collate(self, rows: Sequence[Encoded], pad_id: int, device: Any = None, multiple: int = 1) -> dict[str, Tensor]:
        """A padded batch; its width is a multiple of `multiple`."""
        return collate(rows, pad_id, device, multiple)

    def encoder_rows(self, rows: Sequence[Encoded]) -> Sequence[Encoded]:
        """The rows as the encoder reads them; of a choice the options, one by one."""
        return rows

    def loss_weight(self, rows: Sequence[Encoded], indexes: Sequence[int]) -> int:
        """How much some of the rows count in the loss of a batch: once each, or once for each token asked about."""
        return len(indexes)

    # Outputs

    def width(self, rows: Sequence[Encoded]) -> int | None:
        """How many tokens, or options, the logits of rows have side by side; None where a row has one answer."""
        return max(map(len, rows)) if self.per_token else None

    def item_width(self, rows: Sequence[Encoded]) -> int | None:
        """How many labels and error probabilities rows have side by side; None where a row or question has one."""
        return None

    def windows(self, rows: Sequence[Encoded]) -> tuple[Encoded, ...]:
        """The rows, where units are judged by what was read in their windows; none where labels suffice."""
        return tuple(rows) if self.windowed else ()

    def but(self, **settings: Any) -> Any:
        """The kind with other settings, each checked against its field."""
        return answers.make(self.name, **{**asdict(self), **settings}) if settings else self

    def decode(self, rows: Sequence[Any], logits: Sequence[Tensor], labels: Sequence[str]) -> Prediction:
        """What the logits of a unit's rows (one, or the windows of a long text) say in words."""
        probs = self.log_probs(logits[0].unsqueeze(0))[0, 0].exp().tolist()  # [classes]
        best = max(range(len(probs)), key=probs.__getitem__)
        return Prediction(labels[best], probs[best], dict(zip(labels, probs, strict=True)))

    def decode_rows(self, rows: Sequence[Encoded], logits: Sequence[Tensor], labels: Sequence[str]) -> list[Prediction]:
        """`decode` for many units of one row each."""
        return [self.decode([row], [its], labels) for row, its in zip(rows, logits, strict=True)]

    # Judging

    def suiting(self, units: Sequence[Any]) -> Kind:
        """The kind with the settings that these labelled units want."""
        return self

    def judging(self, units: Sequence[Any]) -> Kind:
        """The suiting kind, with no more work than judging needs: thousands of thresholds are judged."""
        return self.suiting(units)

    def judged(self, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Predicted and right answers as metrics compare them, and the index of the row each belongs to."""
        return self.predicted(logits), labels, torch.arange(len(logits))

    def judged_units(self, predictions: Sequence[Any], units: Sequence[Any]) -> tuple[np.ndarray, np.ndarray]:
        """Predicted and right answers of units that are read in windows: predictions, beside what was asked."""
        return as_objects(predictions), as_objects(units)

    def ranked(self, logits: Tensor) -> Tensor:
        """[rows] what metrics that rank rows sort by: how likely class 1 is."""
        return self.log_probs(logits)[:, 0, 1]

    def submitted(self, logits: Tensor, labels: Sequence[str]) -> list[Any]:
        """One label, or one number, for each row, as submissions to benchmarks want them."""
        raise BadInput(f"these files hold one answer for each row; {self.name} has several")

    def initial_bias(self, rows: Sequence[Encoded]) -> Tensor | None:
        """The initial bias of new heads, if not 0."""
        return None

    # Logits

    def answer_mask(self, batch: Mapping[str, Tensor]) -> Tensor:
        """[rows, tokens, …] tokens whose answer is wanted; of a choice [questions, options] those there are."""
        return batch.get("answer_mask", batch["attention_mask"]).bool()

    def candidate_mask(self, batch: Mapping[str, Tensor]) -> Tensor | None:
        """`answer_mask` where tokens or options compete or are answered; None where a row has one answer."""
        return self.answer_mask(batch) if self.per_token or self.grouped else None

    def unpadded(self, logits: Tensor, mask: Tensor) -> Tensor:
        """The logits of real tokens by the attention mask; of whole rows all."""
        return logits[mask] if self.per_token else logits

    def error_features(self, features: Tensor) -> Tensor:
        """The features that the error probability is estimated from; of a window those of its first token."""
        return features[:, :1] if self.windowed else features

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
        """How far the student is from the teacher; gradients keep their size whatever the temperature."""
        return temperature**2 * self.distance(student / temperature, teacher / temperature, mask, direction)

    def distance(self, student: Tensor, teacher: Tensor, mask: Tensor, direction: Direction) -> Tensor:
        """KL(teacher || student) (forward) or KL(student || teacher) (reverse), mean over the items asked about."""
        each = divergence(self.log_probs(student), self.log_probs(teacher), direction)  # [rows, items]
        asked = self.items(mask, each)
        return (each * asked).sum() / asked.sum().clamp(min=1)

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
