"""What layers receive beside the hidden states, and how it changes when rows or tokens leave."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from paredown.errors import BadPlan

TRACE = 1e-12  # of the attention it would get, what a token with a soft mask of 0 still gets; some would get nearly all


@dataclass(frozen=True)
class Axes:
    """Which dimensions of a layer argument are rows and tokens, as found by probing the encoder."""

    rows: int | None = None
    tokens: tuple[int, ...] = ()
    masked: float | bool | None = None  # the value that hides a token, where the argument is an attention mask
    sliceable: bool = True  # False: its size follows the length in a way tokens cannot be cut out of


@dataclass(frozen=True)
class Argument:
    """A tensor that layers receive beside the hidden states: a mask, rotary tables, a position bias."""

    value: Tensor
    axes: Axes

    def take(self, index: Tensor) -> Argument:
        if self.axes.rows is None:
            return self
        return replace(self, value=self.value.index_select(self.axes.rows, index))

    def gather(self, index: Tensor, real: Tensor) -> Argument:
        """`index` [rows, tokens] old positions, `real` [rows, tokens] False where a row is shorter than the widest."""
        if not self.axes.tokens:
            return self
        if not self.axes.sliceable:
            raise BadPlan("this encoder ties its layers to the length in a way that does not allow dropping tokens")
        value, axes = self.value, self.axes
        if axes.rows is None:  # shared by all rows so far; from now on each row has its own positions
            value, axes = self._per_row(len(index))
        for dim in axes.tokens:
            value = torch.take_along_dim(value, _along(index, value.dim(), axes.rows, dim), dim)
        if axes.masked is not None:
            # Probed in the precision that the encoder was loaded in; a shorter one has a lowest number of its own.
            lowest = torch.finfo(value.dtype).min if value.is_floating_point() else axes.masked
            value = value.masked_fill(~_along(real, value.dim(), axes.rows, axes.tokens[-1]), max(axes.masked, lowest))
        return Argument(value, axes)

    def _per_row(self, rows: int) -> tuple[Tensor, Axes]:
        if self.value.shape[0] != 1 or 0 in self.axes.tokens:
            raise BadPlan("this encoder shares a position table between rows, so tokens cannot be dropped per row")
        return self.value.expand(rows, *self.value.shape[1:]), replace(self.axes, rows=0)

    def soft_masked(self, gate: Tensor, dtype: torch.dtype) -> Argument:
        """`gate` [rows, tokens] in 0..1: how much attention each token gets of what it would get."""
        value, axes, masked = self.value, self.axes, self.axes.masked
        if masked is None:
            return self
        if value.dtype == torch.bool:
            lowest = torch.finfo(dtype).min
            value = torch.zeros(value.shape, dtype=dtype, device=value.device).masked_fill(value == masked, lowest)
            axes = replace(axes, masked=lowest)
        elif axes.rows is None or not value.is_floating_point() or masked > -100:
            raise BadPlan("this encoder's attention takes no soft mask, so tokens can only be cut out, not masked")
        # A gate of 0 leaves a trace, and with it the gradient that tells what opening it would do.
        logs = (TRACE + (1 - TRACE) * gate).log().to(dtype)
        return Argument(value + _along(logs, value.dim(), axes.rows, axes.tokens[-1]), axes)

    @staticmethod
    def concat(arguments: Sequence[Argument], rows: Sequence[int]) -> Argument:
        """The same argument of several states that have so many rows each."""
        first = arguments[0]
        shared = all(one.axes.rows is None for one in arguments)
        if shared and all(torch.equal(one.value, first.value) for one in arguments[1:]):
            return first
        pairs = [
            one._per_row(count) if one.axes.rows is None else (one.value, one.axes)
            for one, count in zip(arguments, rows, strict=True)
        ]
        return Argument(torch.cat([value for value, _ in pairs], dim=pairs[0][1].rows or 0), pairs[0][1])


def _along(values: Tensor, dims: int, rows: int | None, tokens: int) -> Tensor:
    """[rows, tokens] stretched so that it broadcasts over a tensor of `dims` dimensions."""
    shape = [1] * dims
    shape[rows or 0], shape[tokens] = values.shape
    return values.view(shape)
