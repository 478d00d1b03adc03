"""State: a batch on its way through the layers. Rows and tokens leave it, and rows of other batches may join.

How the tokens of a batch lie in memory is the business of a backend: padded (paredown.encoders.padded) or packed
(paredown.runtime.packed_state). Heads, exit rules and reducers ask for views and need not know.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from paredown.errors import BadInput

if TYPE_CHECKING:
    from paredown.answers import Kind

S = TypeVar("S", bound="State")
Pool = Literal["first", "mean", "max"]
Memory = dict[str, Tensor]  # what a rule remembers of each unit; every tensor is unit-first, so units can leave


class Tokens(ABC):
    """What a head reads: the tokens of every row."""

    hidden: Tensor  # […, width]

    @abstractmethod
    def each(self) -> Tensor:
        """[rows, tokens, width]"""

    @abstractmethod
    def pooled(self, pool: Pool) -> Tensor:
        """[rows, width] from the real tokens of each row: the first alone, their mean, their maximum."""

    @abstractmethod
    def map(self, function: Any) -> Tokens:
        """The same tokens with other states; `function` acts on the last dimension."""

    @abstractmethod
    def silenced(self) -> Tokens:
        """The same tokens with padding at 0: a weight of 0 does not silence NaN or infinity, which it may hold."""

    @abstractmethod
    def first(self) -> Tokens:
        """The first token of each row."""

    @abstractmethod
    def attend(self, query: Any, value: Any, heads: int, dropout: float) -> Tokens:
        """What each query finds among these tokens, which are the keys."""

    @abstractmethod
    def weighted(self, sought: Tensor) -> Tensor:
        """[rows, queries, width] means of each row's tokens, weighted by the softmax of their products with what each
        query of the row seeks [rows, queries, width]."""

    @abstractmethod
    def padded(self) -> tuple[Tensor, Tensor]:
        """[rows, tokens, width], and [rows, tokens] True where a token is real."""


@dataclass(frozen=True, kw_only=True)
class State(ABC):
    """Per-row facts have rows first, per-unit facts (memory, bounds, answer mask) have units first. A unit is
    what is answered: a row, or a question whose options are several rows."""

    hidden: Tensor  # […, width] of every token
    row: Tensor  # [rows]  index into the request
    position: Tensor  # […] of every token, in the original text
    protected: Tensor | None = None  # […] True where a token must stay; the first always must
    received: Tensor | None = None  # […] attention in the layer just run, if it was watched; 1 is average
    parked: Tensor | None = None  # last states of all tokens, once some were dropped
    group: Tensor | None = None  # [rows]  the unit whose option each row is; None: every row is a unit
    answer_mask: Tensor | None = None  # [units, tokens, …] or [units, options]: what may be answered; None: everything
    each_token: bool = False  # whether all tokens are answered, also those that were dropped
    bounds: Tensor | None = None  # [units, steps]  the certainty above which a unit leaves; None: the route's
    memory: Memory = field(default_factory=dict)  # what the exit rule remembers of each unit
    steps: int = 0  # run so far
    work: Tensor | None = None  # [rows]  token-layers run until tokens were last dropped; None: none were
    dropped_at: int = 0  # step after which tokens were last dropped

    row_facts: ClassVar[tuple[str, ...]] = ("row", "group", "work")  # tensors with rows first
    unit_facts: ClassVar[tuple[str, ...]] = ("answer_mask", "bounds")  # with units first

    def __len__(self) -> int:
        return len(self.row)

    def _but(self: S, **changes: Any) -> S:
        """A copy with some fields changed, in a fraction of the time of `dataclasses.replace`."""
        fresh = object.__new__(type(self))
        fresh.__dict__.update(self.__dict__)
        fresh.__dict__.update(changes)
        return fresh

    def advance(self: S, hidden: Tensor, received: Tensor | None = None) -> S:
        """After a layer."""
        return self._but(hidden=hidden, received=received, steps=self.steps + 1)

    def showing(self: S, hidden: Tensor) -> S:
        """The same with other hidden states."""
        return self._but(hidden=hidden)

    def remembering(self: S, memory: Memory) -> S:
        return self._but(memory=memory)

    def bounded(self: S, bounds: Tensor) -> S:
        return self._but(bounds=bounds)

    def asking(self: S, answer_mask: Tensor, each_token: bool = False) -> S:
        return self._but(answer_mask=answer_mask, each_token=each_token)

    def numbered(self: S, numbers: Tensor) -> S:
        """Units with other numbers [units]."""
        if self.group is None:
            return self._but(row=numbers)
        return self._but(group=numbers[self.unit_of_row])

    def nobody(self: S) -> S:
        """The state after everyone has left."""
        return self._but(row=self.row[:0])

    # Units

    @property
    def units(self) -> Tensor:
        """[units] index into the request."""
        return self.row if self.group is None else self.group.unique_consecutive()

    @property
    def unit_of_row(self) -> Tensor:
        """[rows] the index of a row's unit among those that are here."""
        if self.group is None:
            return torch.arange(len(self), device=self.row.device)
        return self.group.unique_consecutive(return_inverse=True)[1]

    @property
    def tokens_run(self) -> Tensor:
        """[units] token-layers run so far."""
        rows = self._work()
        if self.group is None:
            return rows
        number = self.unit_of_row
        return rows.new_zeros(int(number[-1]) + 1).index_add_(0, number, rows)

    def _work(self) -> Tensor:
        since = self.lengths() * (self.steps - self.dropped_at)
        return since if self.work is None else self.work + since

    # Rows leave and come

    def split(self: S, leaving: Leaving) -> tuple[S | None, Tensor | None]:
        """Those that stay, and the indexes of those that go; None for none."""
        leave, number, *sizes = leaving.mask, *leaving.numbers
        if number == 0:
            return self, None
        if number == len(leave):
            return None, torch.arange(number, device=leave.device)
        order = leave.to(torch.uint8).argsort(stable=True)  # nonzero would wait for the device
        units = rows = order[: len(leave) - number]
        if self.group is not None:
            rows = (~leave)[self.unit_of_row].nonzero().squeeze(1)
        return self._take(rows, units, *sizes), order[len(leave) - number :]

    def take(self: S, stay: Tensor) -> S:
        """Only the units where `stay` [units] is True go on, with everything that belongs to them."""
        return self.split(Leaving(self, ~stay))[0] or self.nobody()

    def numbers_of(self, leave: Tensor) -> Tensor:
        """What the host must know before units leave: how many do, and what else `_take` wants."""
        return leave.sum(0, keepdim=True)

    def _take(self: S, rows: Tensor, units: Tensor, *sizes: int) -> S:
        """Rows, and their units, by index. Layouts add what they keep of tokens."""

        def taken(value: Tensor | None, index: Tensor) -> Tensor | None:
            return None if value is None else value.index_select(0, index)

        return self._but(
            **{name: taken(getattr(self, name), rows) for name in self.row_facts},
            **{name: taken(getattr(self, name), units) for name in self.unit_facts},
            memory={name: value.index_select(0, units) for name, value in self.memory.items()},
        )

    @staticmethod
    def concat(states: Sequence[Any]) -> Any:
        """Rows of several batches that have run the same steps go on together. They must have been embedded as
        `joinable`, with numbers of their own (`first`)."""
        first = states[0]
        if any(state.steps != first.steps for state in states):
            raise BadInput(f"states can be joined after the same step only, not after {[one.steps for one in states]}")
        return first._concat(states)

    def _joined(self, states: Sequence[State]) -> dict[str, Any]:
        """The facts of rows and units, one state after the other."""
        facts = {name: joined([getattr(state, name) for state in states]) for name in self.row_facts + self.unit_facts}
        memory = {name: joined([state.memory[name] for state in states]) for name in self.memory}
        return facts | {"memory": memory, "dropped_at": self.steps}

    @abstractmethod
    def _concat(self, states: Sequence[Any]) -> Any: ...

    # What backends, heads and reducers ask

    @property
    @abstractmethod
    def free(self) -> Tensor:
        """[…] True where a token may be dropped."""

    @abstractmethod
    def drop(self: S, keep: Tensor) -> S:
        """Only the tokens where `keep` […] is True go on; the others keep their last state, parked."""

    def detach_dropped(self: S) -> S:
        """The same, but no gradient reaches the last states of tokens that were dropped."""
        return self if self.parked is None else self._but(parked=self.parked.detach())

    @abstractmethod
    def tokens(self, all: bool = False) -> Tokens:
        """The tokens that are left, or all that came, each with its last state."""

    @property
    @abstractmethod
    def size(self) -> int:
        """Tokens of all rows, padding included: what a layer works on."""

    @abstractmethod
    def lengths(self) -> Tensor:
        """[rows] tokens that are left."""

    @abstractmethod
    def rank(self, scores: Tensor) -> Tensor:
        """[…] the rank of each token in its row, from 0. Tokens that must stay come first, padding last; of equals,
        the earlier one."""

    @abstractmethod
    def spread(self, values: Tensor) -> Tensor:
        """[rows] as […]: the value of a row for each of its tokens."""


class Leaving:
    """Units that are about to leave, where `mask` [units] is True. Their numbers are on their way to the host from the
    beginning; who reads them waits until they are there."""

    def __init__(self, state: State, mask: Tensor):
        self.mask, self.ready = mask, None
        self.found = state.numbers_of(mask)
        if mask.is_cuda:
            here = torch.empty(self.found.shape, dtype=self.found.dtype, pin_memory=True)
            self.found = here.copy_(self.found, non_blocking=True)
            self.ready = torch.cuda.Event()
            self.ready.record()

    @property
    def numbers(self) -> list[int]:
        if self.ready is not None:
            self.ready.synchronize()
        return self.found.tolist()


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
        return values.squeeze(1) if values.shape[1] == 1 else values.amin(1)

    def with_logits(self, logits: Tensor) -> Evidence:
        """The same evidence with other logits."""
        return replace(self, logits=logits)


def not_a_number(logits: Tensor) -> Tensor:
    """[rows]: True where an answer is NaN or +inf (-inf is a class that is ruled out)."""
    bad = torch.isnan(logits) | (logits == float("inf"))
    return bad.flatten(1).any(1)
