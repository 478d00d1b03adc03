"""State: a batch on its way through the layers. Rows and tokens leave it, and rows of other batches may join."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from paredown.encoders.arguments import Argument
from paredown.errors import BadInput

if TYPE_CHECKING:
    from paredown.answers import Kind

Pool = Literal["first", "mean", "max"]


@dataclass(frozen=True)
class Tokens:
    """What a head reads: the tokens of every row, here padded to the same length."""

    hidden: Tensor  # [rows, tokens, width]
    mask: Tensor  # [rows, tokens]  True where a token is real

    def each(self) -> Tensor:
        """[rows, tokens, width]"""
        return self.hidden

    def pooled(self, pool: Pool) -> Tensor:
        """[rows, width] from the real tokens of each row: the first alone, their mean, their maximum."""
        if pool == "first":
            return self.hidden[:, 0]
        real = self.mask.unsqueeze(-1)
        if pool == "max":
            return self.hidden.masked_fill(~real, float("-inf")).amax(1)
        # Summed in 32 bits or more: half precision overflows or forgets small terms in long texts.
        wide = torch.promote_types(self.hidden.dtype, torch.float32)
        total = self.hidden.masked_fill(~real, 0.0).sum(1, dtype=wide)
        return (total / real.sum(1).clamp(min=1)).to(self.hidden.dtype)

    def map(self, function: Any) -> Tokens:
        """The same tokens with other states; `function` acts on the last dimension."""
        return Tokens(function(self.hidden), self.mask)

    def silenced(self) -> Tokens:
        """The same tokens with padding at 0: a weight of 0 does not silence NaN or infinity, which it may hold."""
        return Tokens(self.hidden.masked_fill(~self.mask.unsqueeze(-1), 0.0), self.mask)

    def first(self) -> Tokens:
        """The first token of each row."""
        return Tokens(self.hidden[:, :1], self.mask[:, :1])

    def attend(self, query: Tokens, value: Tokens, heads: int, dropout: float) -> Tokens:
        """What each query finds among these tokens, which are the keys."""
        asking, keys, values = (
            one.hidden.unflatten(-1, (heads, -1)).transpose(1, 2) for one in (query, self, value)
        )  # [rows, heads, tokens, width / heads]
        mixed = F.scaled_dot_product_attention(asking, keys, values, self.mask[:, None, None, :], dropout)
        return Tokens(mixed.transpose(1, 2).flatten(2), query.mask)


@dataclass(frozen=True)
class State:
    """Per-row facts have rows first; per-unit facts (memory, bounds, answer mask) have units first. A unit is what is
    answered: a row, or a question whose options are several rows."""

    hidden: Tensor  # [rows, tokens, width]
    mask: Tensor  # [rows, tokens]  True where a token is real
    row: Tensor  # [rows]          index into the request
    position: Tensor  # [rows, tokens]  position in the original text
    arguments: tuple[Argument, ...] = ()  # what the layers receive beside the hidden states
    calls: tuple[Any, ...] = ()  # how each layer is called; `arguments` fills the slots
    parked: Tensor | None = None  # [rows, all tokens, width] last states, once tokens were dropped
    all_mask: Tensor | None = None  # [rows, all tokens] the mask before any token was dropped
    protected: Tensor | None = None  # [rows, tokens]  True where a token must stay; the first always must
    received: Tensor | None = None  # [rows, tokens]  attention in the layer just run, if it was watched; 1 is average
    group: Tensor | None = None  # [rows]  the unit whose option each row is; None: every row is a unit
    answer_mask: Tensor | None = None  # [units, tokens, …] or [units, options]: what may be answered; None: everything
    bounds: Tensor | None = None  # [units, steps]  the certainty above which a unit leaves; None: the route's
    memory: Memory = field(default_factory=dict)  # what the exit rule remembers of each unit
    steps: int = 0  # run so far
    work: Tensor | None = None  # [rows]  token-layers run until tokens were last dropped; None: none were
    dropped_at: int = 0  # step after which tokens were last dropped
    filled: dict[int, Any] = field(default_factory=dict, compare=False)  # calls with their slots filled, by identity

    def __len__(self) -> int:
        return len(self.row)

    def _but(self, **changes: Any) -> State:
        """A copy with some fields changed, in a fraction of the time of `dataclasses.replace`."""
        fresh = object.__new__(State)
        fresh.__dict__.update(self.__dict__)
        fresh.__dict__.update(changes)
        return fresh

    def advance(self, hidden: Tensor, received: Tensor | None = None) -> State:
        """After a layer."""
        return self._but(hidden=hidden, received=received, steps=self.steps + 1)

    def showing(self, hidden: Tensor) -> State:
        """The same with other hidden states."""
        return self._but(hidden=hidden)

    def remembering(self, memory: Memory) -> State:
        return self._but(memory=memory)

    def bounded(self, bounds: Tensor) -> State:
        return self._but(bounds=bounds)

    def asking(self, answer_mask: Tensor) -> State:
        return self._but(answer_mask=answer_mask)

    def nobody(self) -> State:
        """The state after everyone has left."""
        return self._but(row=self.row[:0])

    @property
    def units(self) -> Tensor:
        """[units] index into the request."""
        return self.row if self.group is None else self.group.unique_consecutive()

    @property
    def tokens_run(self) -> Tensor:
        """[units] token-layers run so far."""
        rows = self._work()
        if self.group is None:
            return rows
        number = self.group.unique_consecutive(return_inverse=True)[1]
        return rows.new_zeros(int(number[-1]) + 1).index_add_(0, number, rows)

    def _work(self) -> Tensor:
        since = self.mask.sum(1) * (self.steps - self.dropped_at)
        return since if self.work is None else self.work + since

    def take(self, stay: Tensor) -> State:
        """Only the units where `stay` [units] is True go on, with everything that belongs to them."""
        units = stay.nonzero().squeeze(1)
        rows = units
        if self.group is not None:
            rows = stay[self.group.unique_consecutive(return_inverse=True)[1]].nonzero().squeeze(1)

        def taken(value: Tensor | None, index: Tensor) -> Tensor | None:
            return None if value is None else value.index_select(0, index)

        by_row = {name: taken(getattr(self, name), rows) for name in ROW_FACTS}
        by_unit = {name: taken(getattr(self, name), units) for name in UNIT_FACTS}
        return self._but(
            **by_row,
            **by_unit,
            memory={name: value.index_select(0, units) for name, value in self.memory.items()},
            arguments=tuple(argument.take(rows) for argument in self.arguments),
            filled={},
        )

    @property
    def free(self) -> Tensor:
        """[rows, tokens] True where a token may be dropped."""
        held = self.position == 0
        return self.mask & ~(held if self.protected is None else held | self.protected)

    def drop(self, keep: Tensor) -> State:
        """Only the tokens where `keep` [rows, tokens] is True go on; the others keep their last state, parked."""
        keep = (keep | ~self.free) & self.mask
        left = keep.sum(1)
        # Kept tokens first, in their order; positions beyond a row's own length repeat its first token, masked.
        order = torch.argsort(~keep, dim=1, stable=True)[:, : int(left.max())]
        real = torch.arange(order.shape[1], device=keep.device) < left.unsqueeze(1)
        parked = {"parked": self.full_sequence(), "all_mask": self.full_mask}
        settled = {"work": self._work(), "dropped_at": self.steps}
        return self._gather(torch.where(real, order, order[:, :1]), real)._but(**parked, **settled)

    def _gather(self, index: Tensor, real: Tensor) -> State:
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

    def soft_masked(self, gate: Tensor) -> State:
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

    # What reducers ask

    def lengths(self) -> Tensor:
        """[rows] tokens that are left."""
        return self.mask.sum(1)

    def rank(self, scores: Tensor) -> Tensor:
        """[rows, tokens] the rank of each token in its row, from 0. Tokens that must stay come first, padding last; of
        equals, the earlier one."""
        scores = scores.masked_fill(self.mask & ~self.free, float("inf")).masked_fill(~self.mask, float("-inf"))
        return scores.argsort(dim=1, descending=True, stable=True).argsort(dim=1)

    def spread(self, values: Tensor) -> Tensor:
        """[rows] as [rows, tokens]: the value of a row for each of its tokens."""
        return values.unsqueeze(1)

    # Rows of several batches

    @staticmethod
    def concat(states: Sequence[State]) -> State:
        """Rows of several batches that have run the same steps go on together. They must have been embedded as
        `joinable`, with numbers of their own (`first`)."""
        first = states[0]
        if any(state.steps != first.steps for state in states):
            raise BadInput(f"states can be joined after the same step only, not after {[one.steps for one in states]}")
        if any(state.calls != first.calls for state in states):
            raise BadInput("these states call their layers differently; embed both with joinable=True")
        parked = any(state.parked is not None for state in states)
        alike = [state._widened(max(one.hidden.shape[1] for one in states), parked) for state in states]
        counts = [len(state) for state in alike]
        facts = {name: joined([getattr(state, name) for state in alike]) for name in (*ROW_FACTS, *UNIT_FACTS)}
        pairs = zip(*(state.arguments for state in alike), strict=True)
        return first._but(
            **facts,
            memory={name: joined([state.memory[name] for state in alike]) for name in first.memory},
            arguments=tuple(Argument.concat(same, counts) for same in pairs),
            dropped_at=first.steps,
            filled={},
        )

    def _widened(self, width: int, parked: bool) -> State:
        """As many tokens, masked where there were fewer; every fact that another state may have is there."""
        state = self._but(work=self._work(), dropped_at=self.steps)
        if parked:
            state = state._but(parked=self.full_sequence(), all_mask=self.full_mask)
        if (own := self.hidden.shape[1]) == width:
            return state
        index = torch.arange(width, device=self.row.device)
        index = torch.where(index < own, index, 0).expand(len(self), width)
        return state._gather(index, F.pad(self.mask, (0, width - own)))


ROW_FACTS = ("hidden", "mask", "row", "position", "parked", "all_mask", "protected", "received", "group", "work")
UNIT_FACTS = ("answer_mask", "bounds")


def joined(values: Sequence[Tensor | None]) -> Any:
    """Tensors one after the other, each dimension after the first padded with 0 to the widest."""
    tensors = [value for value in values if value is not None]
    if not tensors:
        return None
    if len(tensors) < len(values):
        raise BadInput("these states do not carry the same facts, so their rows cannot go on together")
    sizes = [max(one.shape[dim] for one in tensors) for dim in range(1, tensors[0].dim())]
    return torch.cat([one if list(one.shape[1:]) == sizes else F.pad(one, _padding(one, sizes)) for one in tensors])


def _padding(value: Tensor, sizes: Sequence[int]) -> list[int]:
    """What torch's pad wants, last dimension first."""
    missing = [size - have for size, have in zip(sizes, value.shape[1:], strict=True)]
    return [amount for one in reversed(missing) for amount in (0, one)]


@dataclass
class Answer:
    logits: Tensor  # [units, labels], in the order the units came
    layers: Tensor  # [units]  layers run
    tokens: Tensor  # [units]  token-layers run: the work done


Memory = dict[str, Tensor]  # what a rule remembers of each row; every tensor is row-first, so rows can leave


@dataclass(frozen=True)
class Evidence:
    kind: Kind
    logits: Tensor  # [rows, labels], or [rows, tokens, labels] where every token is answered; [questions, options]
    step: int  # layers run so far, from 1
    answer_mask: Tensor | None = (
        None  # what may be answered, [rows, tokens, …] or [questions, options]; None: every label
    )
    error_probability: Tensor | None = None  # [rows, 1 or tokens] as the model estimates it; None where it does not

    @cached_property
    def log_probs(self) -> Tensor:
        """[rows, items, classes]; an error for regression."""
        return self.kind.log_probs(self.logits)

    @property
    def classes(self) -> int | Tensor:
        """How many there are; [rows, 1 or items] where that differs: the tokens or options that may be it."""
        return self.kind.classes(self.log_probs, self.answer_mask)

    @cached_property
    def predicted(self) -> Tensor:
        """[rows, items] class, or value for regression."""
        return self.kind.predicted(self.logits)

    def least(self, values: Tensor) -> Tensor:
        """[rows] of [rows, items]: the least over the items that count, +inf where none does, NaN where one is NaN."""
        if self.answer_mask is not None and self.kind.per_word:
            values = values.masked_fill(~self.answer_mask, float("inf"))
        return values.amin(1)

    def with_logits(self, logits: Tensor) -> Evidence:
        """The same evidence with other logits."""
        return replace(self, logits=logits)


def not_a_number(logits: Tensor) -> Tensor:
    """[rows]: True where an answer is NaN or +inf (-inf is a class that is ruled out)."""
    bad = torch.isnan(logits) | (logits == float("inf"))
    return bad.flatten(1).any(1)
