"""What `forward` returns, so that transformers' pipelines can read it; apart, as its base class is transformers'."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from transformers.utils import ModelOutput


@dataclass
class AdaptiveOutput(ModelOutput):
    logits: Tensor | None = None
    layers: Tensor | None = None
    tokens: Tensor | None = None
