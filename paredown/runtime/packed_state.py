"""A batch without padding: the tokens of all rows one after the other, in one [tokens, width] tensor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import torch
from torch import Tensor

from paredown.runtime.attention import attend
from paredown.runtime.slots import Run, Slots, slots_of
from paredown.state import Pool, State, Tokens

NEIGHBOURS = 16  # rows whose queries are asked of all their tokens, as one product: most answers are not wanted


@dataclass(frozen=True, eq=False)
class Packing:
    """Where the tokens of each row lie. Sizes are known on the host, so that nothing waits for the device."""

    lengths: Tensor  # [rows]
    tokens: int  # of all rows; the tensors may be longer, and nobody reads their end
    longest: int  # at least the tokens of the longest row
    memo: dict[Any, Any] = field(default_factory=dict, repr=False)  # what layers derive from positions, while they last

    def __len__(self) -> int:
        return len(self.lengths)

    @cached_property
    def offsets(self) -> Tensor:
        """[rows + 1] where each row begins, and the last one ends."""
        return torch.nn.functional.pad(self.lengths.cumsum(0), (1, 0)).to(torch.int32)

    @cached_property
    def starts(self) -> Tensor:
        """[rows] the index of each row's first token."""
        return self.offsets[:-1].long()

    @cached_property
    def first(self) -> Tensor:
        """[rows] the same, of rows without tokens some other."""
        return self.starts.clamp(max=self.tokens - 1)

    @cached_property
    def firsts(self) -> Packing:
        """Of the first token of each row alone."""
        return Packing(torch.ones_like(self.lengths), len(self), 1)

    @cached_property
    def owner(self) -> Tensor:
        """[tokens] the row of each token. Tokens after the last row, where there are any, are counted as its own."""
        tokens = torch.arange(self.tokens, device=self.lengths.device)
        return torch.searchsorted(self.lengths.cumsum(0), tokens, right=True).clamp_(max=len(self) - 1)

    @cached_property
    def within(self) -> Tensor:
        """[tokens] the index of each token in its row."""
        within = torch.arange(self.tokens, device=self.lengths.device) - self.starts[self.owner]
        return within.clamp_(max=self.longest - 1)

    @cached_property
    def runs(self) -> list[Run]:
        """Neighbouring rows of one length; read on the host."""
        found: list[Run] = []
        at = 0
        for length in self.lengths.tolist():
            if found and found[-1][2] == length:
                start, rows, _ = found[-1]
                found[-1] = (start, rows + 1, length)
            elif length:
                found.append((at, 1, length))
            at += length
        return found

    @cached_property
    def slots(self) -> Slots | None:
        """Rows of about one length, padded to it; None where those of one length lie together already."""
        return slots_of(self.lengths, len(self.runs))

    @cached_property
    def neighbours(self) -> list[tuple[slice, slice, Tensor]]:
        """Some rows and their tokens, and [rows, tokens] which of these are not the row's own; read on the host."""
        ends = self.offsets.tolist()
        found = []
        for first in range(0, len(self), NEIGHBOURS):
            last = min(first + NEIGHBOURS, len(self))
            tokens = slice(ends[first], ends[last])
            foreign = self.owner[tokens] != torch.arange(first, last).unsqueeze(1)
            found.append((slice(first, last), tokens, foreign))
        return found

    def index(self, rows: Tensor, into: Packing) -> Tensor:
        """[tokens] of some rows, which lie as `into` says."""
        return self.starts[rows][into.owner] + into.within


@dataclass(frozen=True)
class PackedTokens(Tokens):
    hidden: Tensor  # [tokens, width]
    packing: Packing
    columns: int  # tokens of a row, where answers to each are padded

    def each(self) -> Tensor:
        return self.padded()[0]

    def pooled(self, pool: Pool) -> Tensor:
        if pool == "first":
            return self._first()
        # Summed in 32 bits or more: half precision overflows or forgets small terms in long texts.
        wide = self.hidden.to(torch.promote_types(self.hidden.dtype, torch.float32))[: self.packing.tokens]
        return torch.segment_reduce(wide, pool, lengths=self.packing.lengths, unsafe=True).to(self.hidden.dtype)

    def _first(self) -> Tensor:
        return self.hidden.index_select(0, self.packing.first)

    def map(self, function: Any) -> PackedTokens:
        return PackedTokens(function(self.hidden), self.packing, self.columns)

    def silenced(self) -> PackedTokens:
        return self

    def first(self) -> PackedTokens:
        return PackedTokens(self._first(), self.packing.firsts, 1)

    def attend(self, query: PackedTokens, value: PackedTokens, heads: int, dropout: float) -> PackedTokens:
        asking, keys, values = (one.hidden.unflatten(-1, (heads, -1)) for one in (query, self, value))
        mixed = attend(asking, keys, values, query.packing, self.packing)
        return PackedTokens(mixed.flatten(1), query.packing, query.columns)

    def weighted(self, sought: Tensor) -> Tensor:
        found = torch.empty_like(sought)
        for rows, tokens, foreign in self.packing.neighbours:
            hidden, asking = self.hidden[tokens], sought[rows]
            scores = (asking.flatten(0, 1) @ hidden.t()).unflatten(0, asking.shape[:2])
            weights = scores.masked_fill(foreign.unsqueeze(1), -torch.inf).softmax(-1)
            finite = hidden.nan_to_num(0.0, 0.0, 0.0)  # a weight of 0 would not keep another row's NaN away
            found[rows] = (weights.flatten(0, 1) @ finite).unflatten(0, asking.shape[:2])
        return found

    def padded(self) -> tuple[Tensor, Tensor]:
        packing = self.packing
        hidden = self.hidden.new_zeros(len(packing), self.columns, self.hidden.shape[-1])
        hidden[packing.owner, packing.within] = self.hidden[: packing.tokens]
        positions = torch.arange(self.columns, device=hidden.device)
        return hidden, positions < packing.lengths.unsqueeze(1)


class Begun(Protocol):
    """A layer in two parts: only the first mixes tokens."""

    def found(self, state: PackedState) -> tuple[Tensor, Any]:
        """[tokens, width] what tokens find among those of their row."""

    def after(self, found: Tensor, hidden: Tensor) -> Tensor:
        """[tokens, width] after the layer, of some tokens."""


@dataclass(frozen=True, kw_only=True)
class PackedState(State):
    """Tokens are [tokens], those of a row together."""

    packing: Packing
    columns: int  # tokens of the longest row that came: as wide as answers to each token are
    whole: bool = True  # no row has lost a token
    all_packing: Packing | None = None  # of the tokens that came, where those that were dropped are parked

    begun: Begun | None = None  # a layer of which all tokens have passed the attention, and first ones the rest
    found: Tensor | None = None  # [tokens, width] by the attention there
    ahead: Tensor | None = None  # [rows, width] of first tokens after it

    row_facts = (*State.row_facts, "ahead")
    token_facts = ("hidden", "position", "protected", "received", "found")

    def begin(self, layer: Begun) -> PackedState:
        """After a layer, of which only first tokens will be read; the others can be `finished` when rows have left."""
        (found, _), first = layer.found(self), self.packing.first
        ahead = layer.after(found.index_select(0, first), self.hidden.index_select(0, first))
        return self._but(begun=layer, found=found, ahead=ahead, received=None, steps=self.steps + 1)

    def finished(self) -> PackedState:
        """With all tokens after the last layer."""
        if self.begun is None or self.found is None:
            return self
        return self._but(hidden=self.begun.after(self.found, self.hidden), begun=None, found=None, ahead=None)

    def numbers_of(self, leave: Tensor) -> Tensor:
        """How many units leave; of the rows that stay the tokens and the longest, where rows are units."""
        if self.group is not None:
            return super().numbers_of(leave)
        staying = self.packing.lengths.masked_fill(leave, 0)
        return torch.stack([leave.sum(), staying.sum(), staying.max()])

    def _take(self, rows: Tensor, units: Tensor, *sizes: int) -> PackedState:
        packing = self._picked(self.packing, rows, *sizes)
        changes: dict[str, Any] = {"packing": packing, **self._gathered(self.packing.index(rows, packing))}
        if self.parked is not None and self.all_packing is not None:
            changes["all_packing"] = self._picked(self.all_packing, rows)
            changes["parked"] = self.parked[self.all_packing.index(rows, changes["all_packing"])]
        return super()._take(rows, units)._but(**changes)

    def _picked(self, packing: Packing, rows: Tensor, *sizes: int) -> Packing:
        """`sizes`: of the rows, where the host knows them."""
        lengths = packing.lengths.index_select(0, rows)
        return Packing(lengths, *(sizes or torch.stack([lengths.sum(), lengths.max()]).tolist()))

    def _gathered(self, index: Tensor) -> dict[str, Any]:
        """Facts of tokens, by their index."""
        facts = {name: getattr(self, name) for name in self.token_facts}
        return {name: None if value is None else value.index_select(0, index) for name, value in facts.items()}

    @property
    def free(self) -> Tensor:
        held = self.position == 0
        return ~(held if self.protected is None else held | self.protected)

    def drop(self, keep: Tensor) -> PackedState:
        keep = keep | ~self.free
        lengths = torch.zeros_like(self.packing.lengths).index_add_(0, self.packing.owner, keep.long())
        index = keep.nonzero().squeeze(1)
        changes: dict[str, Any] = {"work": self._work(), "dropped_at": self.steps, "whole": False}
        if self.each_token:
            changes |= {"parked": self._everything(), "all_packing": self.all_packing or self.packing}
        packing = Packing(lengths, len(index), min(self.packing.longest, len(index)))
        return self._but(packing=packing, **self._gathered(index), **changes)

    def _everything(self) -> Tensor:
        """[all tokens, width]: every token's last state, dropped ones included."""
        if self.parked is None or self.all_packing is None:
            return self.hidden
        everything = self.parked.clone()
        everything[self.all_packing.starts[self.packing.owner] + self.position] = self.hidden
        return everything

    def tokens(self, all: bool = False) -> PackedTokens:
        if all and self.parked is not None and self.all_packing is not None:
            return PackedTokens(self._everything(), self.all_packing, self.columns)
        if self.ahead is not None:
            return PackedTokens(self.ahead, self.packing.firsts, 1)
        return PackedTokens(self.hidden, self.packing, self.columns)

    @property
    def size(self) -> int:
        return self.packing.tokens

    def lengths(self) -> Tensor:
        return self.packing.lengths

    def rank(self, scores: Tensor) -> Tensor:
        scores = scores.masked_fill(~self.free, float("inf"))
        best = scores.argsort(descending=True, stable=True)
        order = best[self.packing.owner[best].argsort(stable=True)]  # row after row, the best of each first
        rank = torch.empty_like(order)
        rank[order] = self.packing.within
        return rank

    def spread(self, values: Tensor) -> Tensor:
        return values[self.packing.owner]

    def _concat(self, states: Sequence[PackedState]) -> PackedState:
        """Rows are ordered by length, so that those of one length lie together."""
        if any(state.begun is not states[0].begun for state in states):
            states = [state.finished() for state in states]
        parked = any(state.parked is not None for state in states)
        alike = [
            state._but(
                work=state._work(),
                dropped_at=state.steps,
                parked=state._everything() if parked else None,
                all_packing=(state.all_packing or state.packing) if parked else None,
            )
            for state in states
        ]
        together = alike[0]._but(
            **self._joined(alike),
            **{name: _strung([getattr(one, name) for one in alike]) for name in (*self.token_facts, "parked")},
            packing=_strung_packings([one.packing for one in alike]),
            all_packing=_strung_packings([one.all_packing for one in alike if one.all_packing]) if parked else None,
            whole=all(state.whole for state in states),
            columns=max(state.columns for state in states),
        )
        if self.group is not None or self.hidden.is_cuda:
            return together
        rows = together.packing.lengths.argsort(stable=True)
        return together._reordered(rows)

    def _reordered(self, rows: Tensor) -> PackedState:
        packing = Packing(self.packing.lengths[rows], self.packing.tokens, self.packing.longest)
        changes: dict[str, Any] = {"packing": packing, **self._gathered(self.packing.index(rows, packing))}
        if self.all_packing is not None:
            other = self.all_packing
            changes["all_packing"] = Packing(other.lengths[rows], other.tokens, other.longest)
            if self.parked is not None:
                changes["parked"] = self.parked[other.index(rows, changes["all_packing"])]
        return super()._take(rows, rows)._but(**changes)


def _strung(values: Sequence[Tensor | None]) -> Tensor | None:
    return None if values[0] is None else torch.cat([value for value in values if value is not None])


def _strung_packings(layouts: Sequence[Packing]) -> Packing:
    lengths = torch.cat([packing.lengths for packing in layouts])
    return Packing(lengths, sum(packing.tokens for packing in layouts), max(packing.longest for packing in layouts))
