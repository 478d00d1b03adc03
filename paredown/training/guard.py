"""What keeps a run safe: frozen parameters, seeds, signals, out of memory, NaN."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from paredown.errors import CannotSave
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
    """Every random source from a few numbers. Seeding each step anew makes a resumed run draw what the first drew."""
    seed = seed_from(*parts)
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed % 2**63)


def is_out_of_memory(error: BaseException) -> bool:
    """Also where a library of the GPU found no room for its own needs; that is a plain RuntimeError."""
    said = str(error).lower()
    return isinstance(error, torch.OutOfMemoryError) or "out of memory" in said or "status_alloc_failed" in said


def widen(model: AdaptiveModel) -> set[torch.dtype]:
    """Make parameters of 16 bits 32 wide, to be trained: in 16, most steps are rounded away. Returns what they were."""
    narrow = {value.dtype for value in model.parameters() if value.is_floating_point() and value.element_size() < 4}
    if narrow:
        model.float()
    return narrow


@contextmanager
def saving(path: str | os.PathLike[str], tensors: dict[str, Tensor] | None = None) -> Iterator[None]:
    """Turn what the system says when a disk is full or read-only into one clear error."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        size = sum(value.numel() * value.element_size() for value in (tensors or {}).values())
        what = f"{path} ({size:,} bytes)" if size else str(path)
        raise CannotSave(f"cannot write {what}: {error}; what was saved before is intact") from error


class _Now(BaseException):
    """Raised by the signal handler inside work that can be dropped and done again."""


class Signals:
    """SIGTERM and SIGINT ask the run to stop after its step; the second one stops it at once."""

    def __init__(self) -> None:
        self.asked: int | None = None  # the first signal that came
        self._droppable = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Signals:
        if threading.current_thread() is threading.main_thread():  # Python allows handlers nowhere else
            for number in (signal.SIGTERM, signal.SIGINT):
                self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        self._restore()
        if self.asked is not None and kind is None:  # the run ended before it could obey: hand the signal on
            signal.raise_signal(self.asked)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.asked is not None:
            self._restore()
            signal.raise_signal(number)
            return
        self.asked = number
        if self._droppable:
            raise _Now

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def finish(self, work: Callable[[], None]) -> bool:
        """Do work that may be dropped when a signal comes; False: it was dropped and must be done again."""
        try:
            self._droppable = True
            work()
        except _Now:
            return False
        finally:
            self._droppable = False
        return True


@contextmanager
def compiled(layers: list[nn.Module]) -> Iterator[None]:
    """Compile every layer on its own, for a while; a layer that is called many times is compiled once."""
    before = {layer: layer.__dict__.get("forward") for layer in layers}
    try:
        for layer in before:
            layer.forward = torch.compile(layer.forward, dynamic=True)
        yield
    finally:
        for layer, forward in before.items():
            layer.__dict__.pop("forward", None)
            if forward is not None:
                layer.forward = forward
