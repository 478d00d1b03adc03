"""Base of the answers that point at tokens of a text that a question is about, which is read in windows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from paredown.answers._kind import RULED_OUT, Direction, Kind, divergence, refuse_smoothing
from paredown.answers._length import check_length, longest_row


@dataclass(frozen=True)
class Pointer(Kind):
    """Positions in the text, [rows, items]: where an answer starts and ends, or which of the marked tokens it is.
    Classes are the tokens, of which only some can be the answer.

    Labels are [rows, positions, items]: every position that is right, filled up with IGNORED.
    """

    per_token = True
    windowed = True
    usual_window: ClassVar[int]  # tokens of a window by default, if the encoder can read as many

    def row_length(self, model: Any, wanted: int | None = None) -> int:
        """Tokens of a window: as many as wanted, which must not be more than the encoder can read; else as in
        training, or the usual number."""
        wanted = wanted or model.reading.max_length
        if wanted is None:
            return int(min(self.usual_window, longest_row(model)))
        check_length(model, wanted)
        return wanted

    def ruled_out(self, logits: Tensor, mask: Tensor) -> Tensor:
        return logits.masked_fill(~mask.bool().unsqueeze(-1), RULED_OUT)

    def log_probs(self, logits: Tensor) -> Tensor:
        return logits.float().transpose(1, 2).log_softmax(-1)

    def loss(self, logits: Tensor, labels: Tensor, smoothing: float = 0.0) -> Tensor:
        """Minus the log-probability that a position (a start, an end) is one of the right ones, whichever."""
        refuse_smoothing(smoothing)
        if labels.shape[1] == 1:  # what the general case comes to, to the last bit
            return F.cross_entropy(logits.float().transpose(1, 2).flatten(0, 1), labels.flatten())
        return surprise(self.log_probs(logits), labels).mean()

    def wrong(self, logits: Tensor, labels: Tensor) -> Tensor:
        return share_wrong(self.predicted(logits), labels)

    def distance(self, student: Tensor, teacher: Tensor, mask: Tensor, direction: Direction) -> Tensor:
        """The items' divergences are summed, as in TR-BERT; only the labels' loss is a mean of start and end."""
        return divergence(self.log_probs(student), self.log_probs(teacher), direction).sum(1).mean()


def surprise(log_probs: Tensor, positions: Tensor) -> Tensor:
    """[rows, items] of [rows, items, tokens]: any of the [rows, positions, items] will do; 0 where a row has none."""
    tokens = torch.arange(log_probs.shape[-1], device=log_probs.device)
    right = (positions.unsqueeze(-1) == tokens).any(1)  # [rows, items, tokens]; the same token twice is one
    nothing = (positions < 0).all(1).unsqueeze(-1)
    return -log_probs.masked_fill(~(right | nothing), float("-inf")).logsumexp(-1)


def share_wrong(predicted: Tensor, positions: Tensor) -> Tensor:
    """[rows, 1] the share of the predicted items [rows, items] that is wrong, by the position that fits best."""
    return (predicted.unsqueeze(1) != positions).float().mean(2).amin(1, keepdim=True)
