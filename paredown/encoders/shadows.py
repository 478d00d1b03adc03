"""Shadows of a model: copies of its containers that share its parameters, so that the part before its layers or the
part after them can be run alone.

A shadow is made once, when a model is adopted. It shares the dictionaries of parameters and buffers, so it follows the
model to another device or precision. Nothing of the model itself is changed, and what a call needs to hand over goes
through storage of the calling thread: threads, forks and copies of the model do not feel each other.
"""

from __future__ import annotations

import copy
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

HOOKS = [name for name, value in vars(nn.Module()).items() if "_hooks" in name and isinstance(value, dict)]
_thread = threading.local()  # what a shadow reads and writes while this thread runs it


@dataclass(frozen=True)
class RecordedCall:
    """How a model called one of its layers."""

    args: tuple[Any, ...]  # after the hidden states
    kwargs: dict[str, Any]
    by_name: bool  # the hidden states were passed as hidden_states=…

    def repeats(self, other: RecordedCall) -> bool:
        """Whether the other call has the very same arguments."""
        mine, theirs = self.kwargs, other.kwargs
        return (
            self.by_name == other.by_name
            and len(self.args) == len(other.args)
            and all(a is b for a, b in zip(self.args, other.args))
            and mine.keys() == theirs.keys()
            and all(mine[name] is theirs[name] for name in mine)
        )


class _AllRecorded(Exception):
    """Ends the forward of a prologue after its last layer."""


@dataclass(frozen=True)
class _Record:
    """Stands for the layers of a prologue: notes how they are called."""

    layers: int
    output: Callable[[Tensor], Any]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        by_name = "hidden_states" in kwargs
        hidden = kwargs.pop("hidden_states") if by_name else args[0]
        if not _thread.calls:
            _thread.first = hidden
        _thread.calls.append(RecordedCall(args if by_name else args[1:], kwargs, by_name))
        if len(_thread.calls) == self.layers:
            raise _AllRecorded
        return self.output(hidden)


@dataclass(frozen=True)
class _Give:
    """Stands for a module of an epilogue: returns what is made of the given states."""

    output: Callable[[Tensor], Any]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.output(_thread.hidden)


class Prologue:
    """The part of an encoder before its layers. User hooks on the containers of the layers do not fire here."""

    def __init__(self, base: nn.Module, layers: Sequence[nn.Module], output: Callable[[Tensor], Any]):
        record = _Record(len(layers), output)
        self.shadow = _Shadow(base, {layer: _stand_in(layer, record) for layer in layers}, hooks=False)

    def __call__(self, inputs: dict[str, Tensor]) -> tuple[Tensor, list[RecordedCall]]:
        """Hidden states before the first layer, and how every layer is called."""
        _thread.calls = []
        with suppress(_AllRecorded):
            self.shadow(**inputs)
        return _thread.__dict__.pop("first"), _thread.__dict__.pop("calls")


class Epilogue:
    """The part of a model after its layers: norm, pooler, classifier.

    What is given in the place of `given`, the layers or the whole encoder, has the form of its `output`. Hooks of a
    whole encoder fire here, as do those of what follows; those of layers and of `muted`, which run again although they
    belong to the prologue, have fired before.
    """

    def __init__(
        self,
        stock: nn.Module,
        given: Collection[nn.Module],
        output: Callable[[Tensor], Any],
        muted: Collection[nn.Module] = (),
        hooks: bool = False,
    ):
        replaced = {module: _stand_in(module, _Give(output), hooks) for module in given}
        replaced |= {module: _without_hooks(module) for module in muted}
        self.shadow = _Shadow(stock, replaced, hooks=True)

    def __call__(self, hidden: Tensor, mask: Tensor) -> Any:
        """What the model returns for these last hidden states."""
        _thread.hidden = hidden
        tokens = mask.long()  # only the shape and the mask are read
        try:
            return self.shadow(input_ids=tokens, attention_mask=tokens)
        finally:
            del _thread.hidden


class _Shadow:
    """A model in which some modules are replaced. Containers on the way to them are copied, all else is shared."""

    def __init__(self, model: nn.Module, replaced: dict[nn.Module, nn.Module], hooks: bool):
        self.copies: list[tuple[nn.Module, nn.Module]] = []  # containers and their copies
        self.hooks = hooks
        self.model = self._shadowed(model, replaced)

    def __call__(self, **inputs: Tensor) -> Any:
        for container, twin in self.copies:
            if twin.training is not container.training:
                twin.__dict__["training"] = container.training
        return self.model(**inputs)

    def _shadowed(self, module: nn.Module, replaced: dict[nn.Module, nn.Module]) -> nn.Module:
        if module in replaced:
            return replaced[module]
        children = {
            name: None if child is None else self._shadowed(child, replaced) for name, child in module._modules.items()
        }
        if all(children[name] is child for name, child in module._modules.items()):
            return module
        twin = _twin(module, self.hooks)
        twin.__dict__["_modules"] = children
        self.copies.append((module, twin))
        return twin


def _twin(module: nn.Module, hooks: bool) -> nn.Module:
    """A module of the same parameters, buffers and children."""
    twin = copy.copy(module)
    if not hooks:
        twin.__dict__.update({name: OrderedDict() for name in HOOKS})
    return twin


def _stand_in(module: nn.Module, forward: Callable[..., Any], hooks: bool = False) -> nn.Module:
    """A module with the attributes of another, which its container may read, and a forward of our own."""
    twin = _twin(module, hooks)
    twin.__dict__["training"] = False  # a layer that learns may recompute itself; there is nothing to recompute
    twin.__dict__["forward"] = forward
    return twin


def _without_hooks(module: nn.Module) -> nn.Module:
    twin = _twin(module, hooks=False)
    twin.__dict__["_modules"] = {
        name: None if child is None else _without_hooks(child) for name, child in module._modules.items()
    }
    return twin
