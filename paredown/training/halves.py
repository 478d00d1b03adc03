"""The weights of linear maps in 16 bits, cast all at once: autocast casts each of them by itself, and its gradient."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn


class Halves:
    """Linear maps have weights in 16 bits while it is entered. What else reads those weights keeps them in 32."""

    def __init__(self, model: nn.Module, dtype: torch.dtype):
        owners: dict[nn.Parameter, list[tuple[nn.Module, str]]] = {}
        for module in model.modules():
            for name, weight in module.named_parameters(recurse=False):
                owners.setdefault(weight, []).append((module, name))
        self.owners = {
            weight: its
            for weight, its in owners.items()
            if weight.dtype == torch.float32 and all(isinstance(module, nn.Linear) for module, _ in its)
        }
        self.of = {
            weight: torch.empty_like(weight, dtype=dtype).requires_grad_(weight.requires_grad) for weight in self.owners
        }

    @torch.no_grad()
    def refresh(self) -> None:
        """Cast the weights as they are now."""
        if self.of:
            torch._foreach_copy_(list(self.of.values()), list(self.of))

    def __enter__(self) -> None:
        self._put(self.of)

    def __exit__(self, *unused: object) -> None:
        self._put({weight: weight for weight in self.of})

    def _put(self, values: dict[nn.Parameter, Tensor]) -> None:
        for weight, its in self.owners.items():
            for module, name in its:
                module._parameters[name] = values[weight]  # type: ignore[assignment]

    def trained(self, parameters: Iterable[nn.Parameter]) -> dict[nn.Parameter, Tensor]:
        """Those of some parameters."""
        return {weight: self.of[weight] for weight in parameters if weight in self.of}


def widened(values: Sequence[Tensor]) -> list[Tensor]:
    """In 32 bits, all at once."""
    wide = [torch.empty_like(value, dtype=torch.float32) for value in values]
    if wide:
        torch._foreach_copy_(wide, list(values))
    return wide
