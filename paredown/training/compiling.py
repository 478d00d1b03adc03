"""Compiled layers, for as long as a step runs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

log = logging.getLogger("paredown.training")


class CompiledLayers:
    """Layers run compiled while it is entered. They share their code, so that it is compiled once for all of them;
    where that fails, they run as they are."""

    def __init__(self, layers: Sequence[nn.Module]):
        self.failed = False
        self._forwards = {layer: self._guarded(layer.forward) for layer in layers}
        self._before: dict[nn.Module, Any] = {}

    def __enter__(self) -> None:
        self._before = {layer: layer.__dict__.get("forward") for layer in self._forwards}
        for layer, forward in self._forwards.items():
            layer.forward = forward

    def __exit__(self, *unused: Any) -> None:
        for layer, forward in self._before.items():
            layer.__dict__.pop("forward", None)
            if forward is not None:
                layer.forward = forward

    def _guarded(self, forward: Callable[..., Any]) -> Callable[..., Any]:
        from torch._dynamo.exc import TorchDynamoException

        fast = torch.compile(forward, dynamic=True)

        def run(*args: Any, **kwargs: Any) -> Any:
            if not self.failed:
                try:
                    return fast(*args, **kwargs)
                except TorchDynamoException as error:
                    self.failed = True
                    reason = str(error).strip().partition("\n")[0]
                    log.warning("warning: layers cannot be compiled here, so they run as they are: %s", reason)
            return forward(*args, **kwargs)

        return run
