"""Numbers start at their mean: a new answer that starts at 0 would spend its training on getting there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from paredown.answers import Encoded
from paredown.model import AdaptiveModel


@torch.no_grad()
def centre(model: AdaptiveModel, rows: Sequence[Encoded], fresh_heads: Iterable[str]) -> None:
    """Move what new heads, and a classifier that was never trained, say at first to the mean of the labels."""
    if model.kind.name != "regression":
        return
    mean = torch.tensor([row.label for row in rows], dtype=torch.float64).mean(0)
    biases = [model.get_parameter(f"heads.{layer}.out.bias") for layer in fresh_heads]
    for name, value in model.stock.named_parameters():
        outside = not name.startswith(f"{model.stock.base_model_prefix}.")
        # Training never leaves a bias at exactly 0, where transformers starts it.
        if outside and name.endswith("bias") and value.shape == mean.shape and not value.any():
            biases.append(value)
    for bias in biases:
        bias.add_(mean.to(bias))
