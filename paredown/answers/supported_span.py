"""A span, yes or no, and the sentences that support it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from paredown.answers._kind import RULED_OUT, Direction, divergence, refuse_smoothing, row_means, yes_or_no
from paredown.answers._rows import IGNORED
from paredown.answers.span import Span, misplaced, surprise
from paredown.registry import answers

TYPES = ("span", "yes", "no")  # what an answer is, where it need not be a span
PLACES = 8  # of the answer in one window that a label holds

Place = tuple[int, int]  # first and last token


@answers.register("supported_span")
@dataclass(frozen=True)
class SupportedSpan(Span):
    """A span, yes or no; and which sentences of the text support that.

    Six logits for every token: start and end; span, yes and no, which are read at the first token; and, read at the
    first token of a sentence, whether it is support. Labels are one row of numbers: PLACES pairs as for a span, the
    type, and for every token whether the sentence that begins there is support.
    """

    auto_class = "AutoModelForTokenClassification"
    architecture = ""
    outputs: ClassVar[tuple[str, ...]] = ("start", "end", *TYPES, "support")

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
        refuse_smoothing(smoothing)
        places, types, support = self.parts(labels)
        where = surprise(Span.log_probs(self, logits[..., :2]), places).mean(1)
        what = F.cross_entropy(logits[:, 0, 2:5].float(), types, reduction="none")
        each = F.binary_cross_entropy_with_logits(
            logits[..., 5].float(), support.clamp(min=0).float(), reduction="none"
        )
        return (where + what + row_means(each, support >= 0)).mean()

    def wrong(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Half for the answer, half for the sentences."""
        places, types, support = self.parts(labels)
        said = self.predicted(logits)
        answer = misplaced(said[:, :2], places).squeeze(1) * (places[:, 0, 0] >= 0)
        answer = torch.where(said[:, 2] == types, answer, 1.0)
        sentences = row_means(((logits[..., 5] > 0) != (support > 0)).float(), support >= 0)
        return ((answer + sentences) / 2).unsqueeze(1)

    def distill(
        self,
        student: Tensor,
        teacher: Tensor,
        mask: Tensor,
        temperature: float = 1.0,
        direction: Direction = "forward",
    ) -> Tensor:
        answer = super().distill(student, teacher, mask, temperature, direction)
        ours, theirs = (yes_or_no(logits[..., 5] / temperature) for logits in (student, teacher))
        support = row_means(divergence(ours, theirs, direction), mask[..., 1])
        return answer + temperature**2 * support.mean()
