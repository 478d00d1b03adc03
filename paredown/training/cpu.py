"""What torch is slow at when it trains on a CPU, computed otherwise: random masks of dropout, and attention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

BITS, PER_WORD = 16, 4  # of a random number for one value, and such numbers in what torch draws at once
SHORT = 96  # tokens of a row up to which softmax is faster in 32 bits than in 16


class CpuTraining(TorchFunctionMode):
    """While it is entered, torch's functions answer the same in less time; dropout draws other numbers."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        faster, kwargs = FASTER.get(function), kwargs or {}
        found = None if faster is None else faster(*args, **kwargs)
        return function(*args, **kwargs) if found is None else found


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor | None:
    """torch draws 64 bits for every value. None where it is to do so."""
    if not training or inplace or not 0 < p < 1:
        return None
    words = torch.empty(-(-input.numel() // PER_WORD), dtype=torch.int64).random_(-(2**63), None)
    drawn = words.view(torch.int16)[: input.numel()].view(input.shape)
    dropped = round(p * 2**BITS)
    kept = (drawn >= dropped - 2 ** (BITS - 1)).to(input.dtype)
    return input * kept.mul_(2**BITS / (2**BITS - dropped))


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor | None:
    """As plain products: torch's kernel knows no dropout, and in 16 bits its way back is slow. None where it is fast,
    or would be asked for more than encoders need."""
    fast = query.dtype == torch.float32 and not dropout_p
    if fast or not query.requires_grad or is_causal or enable_gqa:
        return None
    scores = query * (query.shape[-1] ** -0.5 if scale is None else scale) @ key.transpose(-1, -2)
    if attn_mask is not None:
        scores = scores.masked_fill(~attn_mask, -torch.inf) if attn_mask.dtype == torch.bool else scores + attn_mask
    wide = torch.float32 if key.shape[-2] <= SHORT else None
    weights = scores.softmax(-1, dtype=wide).to(value.dtype)
    kept = dropout(weights, dropout_p)
    return (weights if kept is None else kept) @ value


FASTER: dict[Any, Callable[..., Tensor | None]] = {F.dropout: dropout, F.scaled_dot_product_attention: attention}
