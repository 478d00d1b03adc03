"""A span, yes or no, and the sentences that support it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from scipy.special import expit, softmax
from torch import Tensor

from paredown.answers._kind import RULED_OUT, Direction, divergence, refuse_smoothing, row_means, yes_or_no
from paredown.answers._pointer import Pointer, share_wrong, surprise
from paredown.answers._prediction import Prediction
from paredown.answers._questions import Question
from paredown.answers._rows import IGNORED
from paredown.answers._spans import Fact, SpanPrediction, checked, decode_span
from paredown.answers._windows import Window
from paredown.answers.span import Span
from paredown.errors import BadSetting
from paredown.registry import answers

TYPES = ("span", "yes", "no")  # what an answer is, where it need not be a span
MAX_POSITIONS = 8  # of the answer in one window that a label holds

Position = tuple[int, int]  # first and last token


@answers.register("supported_span")
@dataclass(frozen=True)
class SupportedSpan(Span):
    """A span, yes or no; and which sentences of the text support that.

    Six logits for every token: start and end; span, yes and no, which are read at the first token; and, read at the
    first token of a sentence, whether it is support. Labels are one row of numbers: MAX_POSITIONS pairs as for a span,
    the type, and for every token whether the sentence that begins there is support.
    """

    support_threshold: float = 0.5  # sentences at least this likely to support the answer are given

    auto_class = "AutoModelForTokenClassification"
    architecture = ""
    outputs: ClassVar[tuple[str, ...]] = ("start", "end", *TYPES, "support")
    metric = "answer_and_support_f1"
    fields: ClassVar[tuple[str, ...]] = (*Span.fields, "facts")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.support_threshold <= 1:
            raise BadSetting(f"support_threshold is a probability, 0 to 1, not {self.support_threshold}")

    def labelled(self, window: Window) -> Window:
        """The window with the answer's type and the sentences."""
        first, question = tuple(token for token, _ in window.begins), window.asked
        if window.label is None:
            return replace(window, sentences=first)
        support = {token: question.sentences[which].support for token, which in window.begins}
        where, what = (window.label, "span") if question.choice is None else ((), question.choice)
        return replace(window, sentences=first, label=self.label(where, what, support, len(window)))

    def decode(self, rows: Sequence[Any], logits: Sequence[Tensor], labels: Sequence[str]) -> Prediction:
        """Spans are decoded as ever. Every window judges the whole question's type, so its probabilities are the mean
        of theirs. A sentence is as likely support as in the window that is surest of it."""
        scores = [checked(window, outputs, len(self.outputs)) for window, outputs in zip(rows, logits, strict=True)]
        span = decode_span(
            rows, [outputs[:, :2] for outputs in logits], self.n_best, self.max_answer_length, self.null_threshold
        )
        types = np.mean([softmax(each[0, 2:5]) for each in scores], axis=0)
        support: dict[int, float] = {}
        for window, each in zip(rows, scores, strict=True):
            for token, which in window.begins:
                support[which] = max(float(expit(each[token, 5])), support.get(which, 0.0))
        return self._supported(span, rows[0].asked, dict(zip(TYPES, types.tolist())), support)

    def _supported(
        self, span: SpanPrediction, question: Question, choices: dict[str, float], support: dict[int, float]
    ) -> SpanPrediction:
        named: dict[Fact, float] = {}
        for which, chance in sorted(support.items()):
            sentence = question.sentences[which]
            named[sentence.title, sentence.number] = chance
        facts = tuple(fact for fact, chance in named.items() if chance >= self.support_threshold)
        found = replace(span, choices=choices, support=named, facts=facts)
        best = max(TYPES, key=choices.__getitem__)
        if best == "span":
            return replace(found, score=span.score * choices["span"])
        return replace(found, label=best, start=0, end=0, score=choices[best])

    def answer_mask(self, batch: Mapping[str, Tensor]) -> Tensor:
        """[rows, tokens, 2]: the tokens that may be the answer, and those that begin a sentence."""
        may_answer = super().answer_mask(batch)
        return torch.stack([may_answer, batch.get("sentence_mask", torch.zeros_like(may_answer))], dim=-1)

    def ruled_out(self, logits: Tensor, mask: Tensor) -> Tensor:
        return torch.cat([super().ruled_out(logits[..., :2], mask[..., 0]), logits[..., 2:]], dim=-1)

    def log_probs(self, logits: Tensor) -> Tensor:
        where, what = logits.float()[..., :2].transpose(1, 2), logits.float()[:, :1, 2:5]
        width = max(where.shape[-1], len(TYPES))
        padded = [F.pad(item, (0, width - item.shape[-1]), value=RULED_OUT) for item in (where, what)]
        return torch.cat(padded, dim=1).log_softmax(-1)

    def classes(self, log_probs: Tensor, mask: Tensor | None) -> int | Tensor:
        if mask is None:
            return super().classes(log_probs, None)
        tokens = mask[..., 0].sum(1, keepdim=True)
        return torch.cat([tokens, tokens, torch.full_like(tokens, len(TYPES))], dim=1)

    def label(self, positions: Sequence[Position], what: str, support: Mapping[int, bool], tokens: int) -> list[int]:
        """The label of a row: where the answer is (nowhere, if it is no span), its type, and support by first token."""
        pairs = [*positions[:MAX_POSITIONS], *[(IGNORED, IGNORED)] * (MAX_POSITIONS - len(positions))]
        sentences = [int(support.get(token, IGNORED)) for token in range(tokens)]
        return [*(token for pair in pairs for token in pair), TYPES.index(what), *sentences]

    @staticmethod
    def parts(labels: Any) -> tuple[Any, Any, Any]:
        """Positions [rows, MAX_POSITIONS, 2], type [rows] and support [rows, tokens] of labels, tensors or arrays."""
        positions = labels[:, : 2 * MAX_POSITIONS].reshape(len(labels), MAX_POSITIONS, 2)
        return positions, labels[:, 2 * MAX_POSITIONS], labels[:, 2 * MAX_POSITIONS + 1 :]

    def loss(self, logits: Tensor, labels: Tensor, smoothing: float = 0.0) -> Tensor:
        """The losses of position (0 where the answer is no span), type and sentences, a row's mean each."""
        refuse_smoothing(smoothing)
        positions, types, support = self.parts(labels)
        where = surprise(Pointer.log_probs(self, logits[..., :2]), positions).mean(1)
        what = F.cross_entropy(logits[:, 0, 2:5].float(), types, reduction="none")
        each = F.binary_cross_entropy_with_logits(
            logits[..., 5].float(), support.clamp(min=0).float(), reduction="none"
        )
        return (where + what + row_means(each, support >= 0)).mean()

    def wrong(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The answer is half of it, the sentences are the other half."""
        positions, types, support = self.parts(labels)
        predicted = self.predicted(logits)
        answer = share_wrong(predicted[:, :2], positions).squeeze(1) * (positions[:, 0, 0] >= 0)
        answer = torch.where(predicted[:, 2] == types, answer, 1.0)
        sentences = row_means(((logits[..., 5] > 0) != (support > 0)).float(), support >= 0)
        return ((answer + sentences) / 2).unsqueeze(1)

    def distance(self, student: Tensor, teacher: Tensor, mask: Tensor, direction: Direction) -> Tensor:
        answer = super().distance(student, teacher, mask, direction)
        ours, theirs = (yes_or_no(logits[..., 5]) for logits in (student, teacher))
        return answer + row_means(divergence(ours, theirs, direction), mask[..., 1]).mean()
