"""A batch padded to its longest row: what an encoder's own layers run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from paredown.encoders.arguments import Argument
from paredown.errors import BadInput
from paredown.state import Pool, State, Tokens


@dataclass(frozen=True)
class PaddedTokens(Tokens):
    hidden: Tensor  # [rows, tokens, width]
    mask: Tensor  # [rows, tokens]  True where a token is real

    def each(self) -> Tensor:
        return self.hidden

    def pooled(self, pool: Pool) -> Tensor:
        if pool == "first":
            return self.hidden[:, 0]
        real = self.mask.unsqueeze(-1)
        if pool == "max":
            return self.hidden.masked_fill(~real, float("-inf")).amax(1)
        # Summed in 32 bits or more: half precision overflows or forgets small terms in long texts.
        wide = torch.promote_types(self.hidden.dtype, torch.float32)
        total = self.hidden.masked_fill(~real, 0.0).sum(1, dtype=wide)
        return (total / real.sum(1).clamp(min=1)).to(self.hidden.dtype)

    def map(self, function: Any) -> PaddedTokens:
        return PaddedTokens(function(self.hidden), self.mask)

    def silenced(self) -> PaddedTokens:
        return PaddedTokens(self.hidden.masked_fill(~self.mask.unsqueeze(-1), 0.0), self.mask)

    def first(self) -> PaddedTokens:
        return PaddedTokens(self.hidden[:, :1], self.mask[:, :1])

    def attend(self, query: PaddedTokens, value: PaddedTokens, heads: int, dropout: float) -> PaddedTokens:
        asking, keys, values = (
            one.hidden.unflatten(-1, (heads, -1)).transpose(1, 2) for one in (query, self, value)
        )  # [rows, heads, tokens, width / heads]
        mixed = F.scaled_dot_product_attention(asking, keys, values, self.mask[:, None, None, :], dropout)
        return PaddedTokens(mixed.transpose(1, 2).flatten(2), query.mask)

    def weighted(self, sought: Tensor) -> Tensor:
        scores = sought @ self.hidden.transpose(1, 2)
        return scores.masked_fill(~self.mask.unsqueeze(1), float("-inf")).softmax(-1) @ self.hidden

    def padded(self) -> tuple[Tensor, Tensor]:
        return self.hidden, self.mask


@dataclass(frozen=True, kw_only=True)
class PaddedState(State):
    """Tokens are [rows, tokens]; what layers receive beside the hidden states travels along."""

    mask: Tensor  # [rows, tokens]  True where a token is real
    arguments: tuple[Argument, ...] = ()  # what the layers receive beside the hidden states
    calls: tuple[Any, ...] = ()  # how each layer is called; `arguments` fills the slots
    all_mask: Tensor | None = None  # [rows, all tokens] the mask before any token was dropped
    filled: dict[int, Any] = field(default_factory=dict, compare=False)  # calls with their slots filled, by identity

    row_facts = (*State.row_facts, "hidden", "mask", "position", "parked", "all_mask", "protected", "received")

    def _take(self, rows: Tensor, units: Tensor, *sizes: int) -> PaddedState:
        arguments = tuple(argument.take(rows) for argument in self.arguments)
        return super()._take(rows, units)._but(arguments=arguments, filled={})

    @property
    def free(self) -> Tensor:
        held = self.position == 0
        return self.mask & ~(held if self.protected is None else held | self.protected)

    def drop(self, keep: Tensor) -> PaddedState:
        keep = (keep | ~self.free) & self.mask
        left = keep.sum(1)
        # Kept tokens first, in their order; positions beyond a row's own length repeat its first token, masked.
        order = torch.argsort(~keep, dim=1, stable=True)[:, : int(left.max())]
        real = torch.arange(order.shape[1], device=keep.device) < left.unsqueeze(1)
        parked = {"parked": self.full_sequence(), "all_mask": self.full_mask}
        settled = {"work": self._work(), "dropped_at": self.steps}
        return self._gather(torch.where(real, order, order[:, :1]), real)._but(**parked, **settled)

    def _gather(self, index: Tensor, real: Tensor) -> PaddedState:
        """Tokens by their old positions, `index` [rows, tokens]; masked where not `real`."""
        return self._but(
            hidden=torch.take_along_dim(self.hidden, index.unsqueeze(-1), 1),
            mask=real,
            position=self.position.gather(1, index),
            arguments=tuple(argument.gather(index, real) for argument in self.arguments),
            protected=None if self.protected is None else self.protected.gather(1, index) & real,
            received=None if self.received is None else self.received.gather(1, index),
            filled={},
        )

    def soft_masked(self, gate: Tensor) -> PaddedState:
        """Nothing is cut out, but attention to a token is multiplied by its gate [rows, tokens], 0 or 1 with the
        gradient of what lies between. For training: the answers are those of `drop`."""
        gate = torch.where(self.free, gate, 1.0)
        return self._but(
            mask=self.mask & (gate > 0.5),
            arguments=tuple(argument.soft_masked(gate, self.hidden.dtype) for argument in self.arguments),
            all_mask=self.full_mask,
            filled={},
        )

    @property
    def full_mask(self) -> Tensor:
        """[rows, all tokens] the mask of the tokens that came."""
        return self.mask if self.all_mask is None else self.all_mask

    def full_sequence(self) -> Tensor:
        """[rows, all tokens, width]: every token's last state, dropped ones included, in the original positions."""
        if self.parked is None:
            return self.hidden
        # Positions beyond a row's own length go to a column that is cut off again: no step waits for the device.
        width = self.parked.shape[1]
        rows = torch.arange(len(self), device=self.row.device).unsqueeze(1)
        everywhere = F.pad(self.parked, (0, 0, 0, 1))
        everywhere[rows, torch.where(self.mask, self.position, width)] = self.hidden
        return everywhere[:, :width]

    def tokens(self, all: bool = False) -> PaddedTokens:
        if all:
            return PaddedTokens(self.full_sequence(), self.full_mask)
        return PaddedTokens(self.hidden, self.mask)

    @property
    def size(self) -> int:
        return self.mask.numel()

    def lengths(self) -> Tensor:
        return self.mask.sum(1)

    def rank(self, scores: Tensor) -> Tensor:
        scores = scores.masked_fill(self.mask & ~self.free, float("inf")).masked_fill(~self.mask, float("-inf"))
        return scores.argsort(dim=1, descending=True, stable=True).argsort(dim=1)

    def spread(self, values: Tensor) -> Tensor:
        return values.unsqueeze(1)

    def _concat(self, states: Sequence[PaddedState]) -> PaddedState:
        if any(state.calls != self.calls for state in states):
            raise BadInput("these states call their layers differently; embed both with joinable=True")
        parked = any(state.parked is not None for state in states)
        alike = [state._widened(max(one.hidden.shape[1] for one in states), parked) for state in states]
        counts = [len(state) for state in alike]
        pairs = zip(*(state.arguments for state in alike), strict=True)
        arguments = tuple(Argument.concat(same, counts) for same in pairs)
        return self._but(**self._joined(alike), arguments=arguments, filled={})

    def _widened(self, width: int, parked: bool) -> PaddedState:
        """As many tokens, masked where there were fewer; every fact that another state may have is there."""
        state = self._but(work=self._work(), dropped_at=self.steps)
        if parked:
            state = state._but(parked=self.full_sequence(), all_mask=self.full_mask)
        if (own := self.hidden.shape[1]) == width:
            return state
        index = torch.arange(width, device=self.row.device)
        index = torch.where(index < own, index, 0).expand(len(self), width)
        return state._gather(index, F.pad(self.mask, (0, width - own)))
