"""Where weights lie in memory. Some kernels sum in another order where memory is not aligned, so bits are promised only
of the same weights in the same memory; what was saved and loaded is compared by `close` and `agree`."""

from __future__ import annotations

import copy
import dataclasses
import itertools
from collections.abc import Iterable
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

Model = TypeVar("Model", bound=nn.Module)
CLOSE = 1e-5  # how far logits and scores may lie apart where the same weights lie elsewhere
_shifts = itertools.cycle(range(4, 64, 4))  # another for every tensor, so that no two models lie alike


def close(ours: Tensor, theirs: Tensor) -> bool:
    return ours.shape == theirs.shape and torch.allclose(ours, theirs, rtol=0, atol=CLOSE)


def agree(ours: Iterable[Any], theirs: Iterable[Any]) -> bool:
    """Whether predictions or answers are the same, their numbers up to rounding."""
    return _near([dataclasses.asdict(one) for one in ours], [dataclasses.asdict(one) for one in theirs])


def _near(ours: Any, theirs: Any) -> bool:
    if isinstance(ours, float):
        return abs(ours - theirs) <= CLOSE
    if isinstance(ours, dict):
        return ours.keys() == theirs.keys() and _near(list(ours.values()), list(theirs.values()))
    if isinstance(ours, (list, tuple)):
        return len(ours) == len(theirs) and all(map(_near, ours, theirs))
    return ours == theirs


def unaligned(model: Model) -> Model:
    """The model with every parameter at an address that is no multiple of 64."""
    for parameter in model.parameters():
        parameter.data = _moved(parameter.data)
    return model


def copied(model: Model) -> Model:
    """A copy that lies no better than the model does; copying alone would align it."""
    found = copy.deepcopy(model)
    return unaligned(found) if any(parameter.data_ptr() % 64 for parameter in model.parameters()) else found


def _moved(value: Tensor) -> Tensor:
    if value.device.type != "cpu" or not value.numel():
        return value
    shift, size = next(_shifts), value.numel() * value.element_size()
    room = torch.empty(size + 64, dtype=torch.uint8)  # torch's own allocations are aligned
    return room[shift : shift + size].view(value.dtype).view(value.shape).copy_(value)


def unalign_everything() -> None:
    """From now on, of every module that is made; `bundle.load` and training align what they are given."""
    register = nn.Module.register_parameter

    def register_moved(self: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        if parameter is not None and not parameter.data_ptr() % 64:
            parameter.data = _moved(parameter.data)
        register(self, name, parameter)

    nn.Module.register_parameter = register_moved  # type: ignore[method-assign]
