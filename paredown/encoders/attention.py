"""How much attention every token receives in a layer, seen through transformers' registry of attention functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from paredown.encoders.patched import patched

SEEN_THROUGH = ("eager", "sdpa")  # implementations whose masks we can read: additive, boolean or none


@contextmanager
def watching(real: Tensor) -> Iterator[list[Tensor]]:
    """Collects what the tokens receive, [rows, tokens], in every attention that this thread computes inside.

    It is the mean over heads and over the queries where `real` [rows, tokens] is True, times their number, so that 1
    is average. Outputs stay what they are.
    """
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS, AttentionInterface

    seen: list[Tensor] = []

    def interface(implementation: str, default: Callable[..., Any]) -> Callable[..., Any]:
        usual = AttentionInterface.get_interface(ALL_ATTENTION_FUNCTIONS, implementation, default)
        if implementation not in SEEN_THROUGH:
            return usual

        def noting(module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any, **how: Any) -> Any:
            output, probabilities = usual(module, query, key, value, attention_mask, **how)
            if probabilities is None:
                probabilities = _probabilities(query, key, attention_mask, how.get("scaling"), how.get("position_bias"))
            if probabilities.shape[-2:] == (real.shape[1], real.shape[1]):
                seen.append(probabilities.float().mean(1).masked_fill(~real.unsqueeze(-1), 0.0).sum(1))
            return output, probabilities

        return noting

    with patched([ALL_ATTENTION_FUNCTIONS], "get_interface", interface):
        yield seen


def _probabilities(query: Tensor, key: Tensor, mask: Tensor | None, scaling: float | None, bias: Any) -> Tensor:
    """[rows, heads, queries, keys]: those that a fused implementation does not tell."""
    key = key.repeat_interleave(query.shape[1] // key.shape[1], dim=1)  # heads may share keys
    scores = (query @ key.transpose(-1, -2)).float() * (query.shape[-1] ** -0.5 if scaling is None else scaling)
    if bias is not None:
        scores = scores + bias
    if mask is not None:
        # The least finite number: a padded query may see no key at all.
        hidden = torch.finfo(scores.dtype).min
        scores = scores.masked_fill(~mask, hidden) if mask.dtype == torch.bool else scores + mask
    return scores.softmax(-1)
