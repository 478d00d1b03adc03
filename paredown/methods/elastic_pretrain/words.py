"""A start for the heads: the checkpoint's own head for masked words, where it still has one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from paredown.heads.pretraining import PretrainingHead
from paredown.model import AdaptiveModel

Start = tuple[nn.Linear, nn.LayerNorm, Tensor]


def start_words(model: AdaptiveModel, source: str | Path) -> bool:
    """Let every head guess words as the checkpoint at `source` does after its last layer; False: it cannot."""
    heads = [head for head in model.heads.values() if isinstance(head, PretrainingHead)]
    found = _head_of(source, model.walk.width, model.stock.get_input_embeddings().weight.shape) if heads else None
    if found is None:
        return False
    dense, norm, bias = found
    with torch.no_grad():
        for head in heads:
            for ours, theirs in ((head.transform, dense), (head.norm, norm)):
                ours.weight.copy_(theirs.weight)
                ours.bias.copy_(torch.zeros_like(ours.bias) if theirs.bias is None else theirs.bias)
            head.bias.copy_(bias)
    return True


def _head_of(source: str | Path, width: int, words: torch.Size) -> Start | None:
    """A linear map, a norm and a bias over the vocabulary, known by their shapes; all must be in the file."""
    from transformers import AutoModelForMaskedLM

    vocabulary, size = words
    settings: dict[str, Any] = {"use_safetensors": True, "trust_remote_code": False, "output_loading_info": True}
    try:
        stock, info = AutoModelForMaskedLM.from_pretrained(source, **settings)
    except (OSError, ValueError, RuntimeError):  # a family without such a head
        return None
    inside = set(stock.base_model.modules())
    parts = {name: module for name, module in stock.named_modules() if module not in inside}
    embeddings = stock.get_input_embeddings().weight
    dense = {
        name: module
        for name, module in parts.items()
        if isinstance(module, nn.Linear) and module.weight.shape == (size, width) and module.weight is not embeddings
    }
    norms = {name: module for name, module in parts.items() if isinstance(module, nn.LayerNorm)}
    norms = {name: module for name, module in norms.items() if module.weight.shape == (size,)}
    biases = {name: value for name, value in stock.named_parameters() if value.shape == (vocabulary,)}
    if any(len(found) != 1 for found in (dense, norms, biases)):
        return None
    if any(key.startswith((*dense, *norms, *biases)) for key in info["missing_keys"]):
        return None
    return dense.popitem()[1], norms.popitem()[1], biases.popitem()[1]
