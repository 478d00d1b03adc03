"""Initialises new heads where their kind of answer wants them: numbers at their mean."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from paredown.answers import Encoded
from paredown.model import AdaptiveModel


@torch.no_grad()
def centre(model: AdaptiveModel, rows: Sequence[Encoded], fresh_heads: Iterable[str]) -> None:
    """Initialises the biases of new heads, and of a classifier never trained, as the kind of answer wants them."""
    mean = model.kind.initial_bias(rows)
    if mean is None:
        return
    biases = [model.get_parameter(f"heads.{layer}.out.bias") for layer in fresh_heads]
    for name, value in model.stock.named_parameters():
        outside = not name.startswith(f"{model.stock.base_model_prefix}.")
        # Training never leaves a bias at exactly 0, where transformers starts it.
        if outside and name.endswith("bias") and value.shape == mean.shape and not value.any():
            biases.append(value)
    for bias in biases:
        bias.add_(mean.to(bias))
