"""transformers itself: the model's own forward pass, with sdpa or eager attention, or compiled."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from paredown.encoders.walk import logits_of
from paredown.model import AdaptiveModel
from paredown.runtime.rivals._rival import Inputs, Rival, Run


def twin(stock: Any, attention: str) -> Any:
    """The same model with another attention: it shares the weights, and has a config of its own."""
    shared = {id(value): value for value in chain(stock.parameters(), stock.buffers())}
    other = copy.deepcopy(stock, shared)
    other.set_attn_implementation(attention)
    return other


def with_attention(name: str) -> Callable[[AdaptiveModel, Sequence[Inputs]], Run]:
    return lambda model, _: _forward(twin(model.stock, name))


def compiled(model: AdaptiveModel, _: Sequence[Inputs]) -> Run:
    return _forward(torch.compile(twin(model.stock, "sdpa"), dynamic=True))


def _forward(model: Callable[..., Any]) -> Run:
    def run(inputs: Inputs) -> Tensor:
        with torch.inference_mode():
            return logits_of(model(**inputs))

    return run


SDPA = Rival("transformers sdpa", with_attention("sdpa"), cpu_only=False, own_weights=False)
EAGER = Rival("transformers eager", with_attention("eager"), cpu_only=False, own_weights=False)
COMPILED = Rival("transformers compiled", compiled, cpu_only=False, own_weights=False, on_request=True)
