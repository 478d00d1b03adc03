"""What a stage begins with: frozen parameters, seeds, 32 bits."""

from __future__ import annotations

import hashlib
import random

import numpy as np
import torch
from torch import nn

from paredown.methods._stage import Stage
from paredown.model import AdaptiveModel


def freeze(model: AdaptiveModel, stage: Stage) -> dict[str, nn.Parameter]:
    """Let exactly the stage's parameters learn, put all that is frozen into eval mode; return those that learn."""
    idle = model.idle(stage.depth or model.depth)
    for name, parameter in model.named_parameters():
        parameter.grad = None
        parameter.requires_grad_(name not in idle and bool(stage.trains(name)))
    _set_mode(model, False)
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def _set_mode(module: nn.Module, learning: bool) -> None:
    """A module learns if any parameter in it does; one without parameters (dropout) follows what it belongs to."""
    parameters = list(module.parameters())
    if parameters:
        learning = any(parameter.requires_grad for parameter in parameters)
    module.training = learning
    for child in module.children():
        _set_mode(child, learning)


def seed_from(*parts: int | str) -> int:
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=8).digest(), "little")


def seed_everything(*parts: int | str) -> None:
    """Seed every random source from a few numbers; seeded at each step, a resumed run draws what the first drew."""
    seed = seed_from(*parts)
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed % 2**63)


def widen(model: AdaptiveModel) -> set[torch.dtype]:
    """Make parameters of 16 bits 32 wide, to be trained: in 16, most steps are rounded away. Returns what they were."""
    narrow = {value.dtype for value in model.parameters() if value.is_floating_point() and value.element_size() < 4}
    if narrow:
        model.float()
    return narrow
