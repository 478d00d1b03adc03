"""State: a batch on its way through the layers. It only ever loses rows or tokens."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from paredown.errors import BadPlan

if TYPE_CHECKING:
    from paredown.answers import Kind

TRACE = 1e-12  # of the attention it would get, what a veiled token still gets; some tokens would get nearly all


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

    def keep_rows(self, index: Tensor) -> Argument:
        if self.axes.rows is None:
            return self
        return replace(self, value=self.value.index_select(self.axes.rows, index))

    def keep_tokens(self, index: Tensor, real: Tensor) -> Argument:
        """`index` [rows, kept] old places, `real` [rows, kept] False where a row has fewer tokens than the widest."""
        if not self.axes.tokens:
            return self
        if not self.axes.sliceable:
            raise BadPlan("this encoder ties its layers to the length in a way that does not allow dropping tokens")
        value, axes = self.value, self.axes
        if axes.rows is None:  # shared by all rows so far; from now on each row has its own places
            if value.shape[0] != 1 or 0 in axes.tokens:
                raise BadPlan("this encoder shares a position table between rows, so tokens cannot be dropped per row")
            value = value.expand(len(index), *value.shape[1:])
            axes = replace(axes, rows=0)
        for dim in axes.tokens:
            value = torch.take_along_dim(value, _along(index, value.dim(), axes.rows, dim), dim)
        if axes.masked is not None:
            # Probed in the precision that the encoder was loaded in; a shorter one has a lowest number of its own.
            lowest = torch.finfo(value.dtype).min if value.is_floating_point() else axes.masked
            value = value.masked_fill(~_along(real, value.dim(), axes.rows, axes.tokens[-1]), max(axes.masked, lowest))
        return Argument(value, axes)

    def veiled(self, gate: Tensor, dtype: torch.dtype) -> Argument:
        """`gate` [rows, tokens] in 0..1: how much attention each token gets of what it would get."""
        value, axes, masked = self.value, self.axes, self.axes.masked
        if masked is None:
            return self
        if value.dtype == torch.bool:
            lowest = torch.finfo(dtype).min
            value = torch.zeros(value.shape, dtype=dtype, device=value.device).masked_fill(value == masked, lowest)
            axes = replace(axes, masked=lowest)
        elif axes.rows is None or not value.is_floating_point() or masked > -100:
            raise BadPlan("this encoder's attention takes no soft mask, so tokens can only be cut out, not veiled")
        # A gate of 0 leaves a trace, and with it the gradient that tells what opening it would do.
        logs = (TRACE + (1 - TRACE) * gate).log().to(dtype)
        return Argument(value + _along(logs, value.dim(), axes.rows, axes.tokens[-1]), axes)


def _along(values: Tensor, dims: int, rows: int | None, tokens: int) -> Tensor:
    """[rows, tokens] stretched so that it broadcasts over a tensor of `dims` dimensions."""
    shape = [1] * dims
    shape[rows or 0], shape[tokens] = values.shape
    return values.view(shape)


@dataclass(frozen=True)
class State:
    hidden: Tensor  # [rows, tokens, width]
    mask: Tensor  # [rows, tokens]  True where a real token stands
    row: Tensor  # [rows]          index into the request
    position: Tensor  # [rows, tokens]  place in the original text
    arguments: tuple[Argument, ...] = ()  # what the layers receive beside the hidden states
    calls: tuple[Any, ...] = ()  # how each layer is called; `arguments` fills the slots
    parked: Tensor | None = None  # [rows, all tokens, width] last states, once tokens were dropped
    all_mask: Tensor | None = None  # [rows, all tokens] the mask before any token was dropped
    protected: Tensor | None = None  # [rows, tokens]  True where a token must stay; the first always must
    received: Tensor | None = None  # [rows, tokens]  attention in the layer just run, if it was watched; 1 is average
    group: Tensor | None = None  # [rows]  the question whose option each row is; None: every row is asked alone

    def __len__(self) -> int:
        return len(self.row)

    def advance(self, hidden: Tensor, received: Tensor | None = None) -> State:
        """After a layer."""
        return replace(self, hidden=hidden, received=received)

    def keep_rows(self, stay: Tensor) -> State:
        """Only the rows where `stay` [rows] is True go on, with everything that belongs to them."""
        index = stay.nonzero().squeeze(1)
        return replace(
            self,
            hidden=self.hidden.index_select(0, index),
            mask=self.mask.index_select(0, index),
            row=self.row.index_select(0, index),
            position=self.position.index_select(0, index),
            arguments=tuple(argument.keep_rows(index) for argument in self.arguments),
            parked=None if self.parked is None else self.parked.index_select(0, index),
            all_mask=None if self.all_mask is None else self.all_mask.index_select(0, index),
            protected=None if self.protected is None else self.protected.index_select(0, index),
            received=None if self.received is None else self.received.index_select(0, index),
            group=None if self.group is None else self.group.index_select(0, index),
        )

    @property
    def asked(self) -> Tensor:
        """[questions] index into the request of what is answered: rows, or questions with all their options."""
        return self.row if self.group is None else self.group.unique_consecutive()

    def keep_asked(self, stay: Tensor) -> State:
        """Only what is asked where `stay` [questions] is True goes on; the options of a question go together."""
        if self.group is None:
            return self.keep_rows(stay)
        return self.keep_rows(stay[self.group.unique_consecutive(return_inverse=True)[1]])

    @property
    def free(self) -> Tensor:
        """[rows, tokens] True where a token may be dropped."""
        held = self.position == 0
        return self.mask & ~(held if self.protected is None else held | self.protected)

    def keep_tokens(self, keep: Tensor) -> State:
        """Only the tokens where `keep` [rows, tokens] is True go on; the others keep their last state, parked."""
        keep = (keep | ~self.free) & self.mask
        left = keep.sum(1)
        # Kept tokens first, in their order; places beyond a row's own length repeat its first token, masked.
        order = torch.argsort(~keep, dim=1, stable=True)[:, : int(left.max())]
        real = torch.arange(order.shape[1], device=keep.device) < left.unsqueeze(1)
        index = torch.where(real, order, order[:, :1])
        return replace(
            self,
            hidden=torch.take_along_dim(self.hidden, index.unsqueeze(-1), 1),
            mask=real,
            position=self.position.gather(1, index),
            arguments=tuple(argument.keep_tokens(index, real) for argument in self.arguments),
            parked=self.rejoined(),
            all_mask=self.mask if self.all_mask is None else self.all_mask,
            protected=None if self.protected is None else self.protected.gather(1, index) & real,
            received=None if self.received is None else self.received.gather(1, index),
        )

    def veiled(self, gate: Tensor) -> State:
        """Nothing is cut out, but attention to a token is multiplied by its gate [rows, tokens], 0 or 1 with the
        gradient of what lies between. For training: the answers are those of `keep_tokens`."""
        gate = torch.where(self.free, gate, 1.0)
        return replace(
            self,
            mask=self.mask & (gate > 0.5),
            arguments=tuple(argument.veiled(gate, self.hidden.dtype) for argument in self.arguments),
            all_mask=self.mask if self.all_mask is None else self.all_mask,
        )

    def rejoined(self) -> Tensor:
        """[rows, all tokens, width]: every token's last state, dropped ones included, in the original places."""
        if self.parked is None:
            return self.hidden
        # Places beyond a row's own length go to a column that is cut off again: no step waits for the device.
        width = self.parked.shape[1]
        rows = torch.arange(len(self), device=self.row.device).unsqueeze(1)
        everywhere = F.pad(self.parked, (0, 0, 0, 1))
        everywhere[rows, torch.where(self.mask, self.position, width)] = self.hidden
        return everywhere[:, :width]


Memory = dict[str, Tensor]  # what a rule remembers of each row; every tensor is row-first, so rows can leave


@dataclass(frozen=True)
class Evidence:
    kind: Kind
    logits: Tensor  # [rows, labels], or [rows, tokens, labels] where every token is answered; [questions, options]
    step: int  # layers run so far, from 1
    counts: Tensor | None = None  # what may be answered, [rows, tokens, …] or [questions, options]; None: every label
    doubt: Tensor | None = None  # [rows, 1 or tokens] learned estimate of being wrong, 0..1; None without one

    @cached_property
    def log_probs(self) -> Tensor:
        """[rows, items, classes]; an error for regression."""
        return self.kind.log_probs(self.logits)

    @property
    def classes(self) -> int | Tensor:
        """How many there are; [rows, 1 or items] where that differs: the tokens or options that may be it."""
        return self.kind.classes(self.log_probs, self.counts)

    @cached_property
    def predicted(self) -> Tensor:
        """[rows, items] class, or value for regression."""
        return self.kind.predicted(self.logits)

    def least(self, values: Tensor) -> Tensor:
        """[rows] of [rows, items]: the least over the items that count, +inf where none does, NaN where one is NaN."""
        if self.counts is not None and self.kind.per_word:
            values = values.masked_fill(~self.counts, float("inf"))
        return values.amin(1)

    def saying(self, logits: Tensor) -> Evidence:
        """The same evidence with other logits."""
        return replace(self, logits=logits)


def keep_rows(memory: Memory, stay: Tensor) -> Memory:
    """The memory of the rows that stay."""
    return {name: value[stay] for name, value in memory.items()}


def not_a_number(logits: Tensor) -> Tensor:
    """[rows]: True where an answer is NaN or +inf (-inf is a class that is ruled out)."""
    bad = torch.isnan(logits) | (logits == float("inf"))
    return bad.flatten(1).any(1)


@dataclass
class Answer:
    logits: Tensor  # [rows, labels], in the order the rows came
    layers: Tensor  # [rows]  layers run
    tokens: Tensor  # [rows]  token-layers run: the work done


@dataclass
class Ledger:
    """Who left with which answer, and the work done for each row, or for all options of a question."""

    rows: int
    device: torch.device
    said: list[tuple[Tensor, Tensor]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.layers = torch.zeros(self.rows, dtype=torch.long, device=self.device)
        self.tokens = torch.zeros(self.rows, dtype=torch.long, device=self.device)

    def ran(self, state: State) -> None:
        owner = state.row if state.group is None else state.group
        self.layers[owner] = self.layers[owner] + 1
        self.tokens.index_add_(0, owner, state.mask.sum(1))

    def left(self, rows: Tensor, logits: Tensor) -> None:
        self.said.append((rows, logits))

    def answer(self) -> Answer:
        rows, logits = (torch.cat(parts) for parts in zip(*self.said, strict=True))
        return Answer(logits[rows.argsort()], self.layers, self.tokens)
