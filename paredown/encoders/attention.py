"""How much attention every token receives in a layer, seen where torch computes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

SOFTMAX = (F.softmax, torch.softmax, Tensor.softmax)


class Watching(TorchFunctionMode):
    """Collects what the tokens receive, [rows, tokens], in every attention that this thread computes inside.

    It is the mean over heads and over the queries where `real` [rows, tokens] is True, times their number, so that 1
    is average. Outputs stay what they are.
    """

    def __init__(self, real: Tensor):
        super().__init__()
        self.real = real
        self.received: list[Tensor] = []

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        output = func(*args, **(kwargs or {}))
        if func is F.scaled_dot_product_attention:
            self._note(_probabilities(*args, **(kwargs or {})))
        elif func in SOFTMAX:
            self._note(output)
        return output

    def _note(self, probabilities: Tensor) -> None:
        """[rows, heads, queries, keys]; softmax may serve other ends too."""
        tokens = self.real.shape[1]
        if probabilities.dim() == 4 and probabilities.shape[-2:] == (tokens, tokens):
            mean = probabilities.float().mean(1)
            self.received.append(mean.masked_fill(~self.real.unsqueeze(-1), 0.0).sum(1))


def _probabilities(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """[rows, heads, queries, keys]: the weights that scaled_dot_product_attention does not return."""
    key = key.repeat_interleave(query.shape[1] // key.shape[1], dim=1)  # heads may share keys
    scores = (query @ key.transpose(-1, -2)).float() * (query.shape[-1] ** -0.5 if scale is None else scale)
    if attn_mask is not None:
        # The least finite number: a padded query may see no key at all.
        hidden = torch.finfo(scores.dtype).min
        scores = scores.masked_fill(~attn_mask, hidden) if attn_mask.dtype == torch.bool else scores + attn_mask
    return scores.softmax(-1)
