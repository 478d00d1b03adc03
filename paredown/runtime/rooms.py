"""Rooms: fixed memory in which batches of about one size run as captured work (paredown.runtime.graphs)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from paredown.engine import run_steps
from paredown.runtime.capture import Captured
from paredown.runtime.packed import FACTS
from paredown.runtime.packed_state import PackedState, Packing
from paredown.runtime.segments import Segment
from paredown.state import Memory

if TYPE_CHECKING:
    from paredown.runtime.graphs import Graphs

LEAST = 32  # tokens of a room
COARSE = 4096  # tokens up to which rooms differ by a quarter or more
CAPTURED = 16384  # tokens of the largest room whose work is captured
RULE = 1  # the lane in which the exit rule is asked; those of the heads follow


class Size(NamedTuple):
    tokens: int
    rows: int
    longest: int  # tokens of a row

    @classmethod
    def of(cls, tokens: int, rows: int, longest: int) -> Size:
        """The smallest that holds so much: 32, 48, 64, 96 … tokens, by eighths where tokens count; 1, 8, 64 … rows."""
        return cls(_rounded(max(tokens, LEAST)), 1 << -(-(rows - 1).bit_length() // 3) * 3, max(_power(longest), 64))

    @property
    def timed(self) -> Size:
        """One of few that is at least as large."""
        return self._replace(tokens=_power(self.tokens))

    @classmethod
    def of_lengths(cls, lengths: Tensor) -> Size:
        return cls.of(int(lengths.sum()), len(lengths), int(lengths.max()))


def _rounded(tokens: int) -> int:
    whole = _power(tokens)
    step = whole // (4 if whole <= COARSE else 16)
    return -(-tokens // step) * step


def _power(number: int) -> int:
    return 1 << (number - 1).bit_length()


class Fittings(NamedTuple):
    """What rooms are made for, beside a size."""

    inputs: tuple[str, ...]  # of every token
    bounds: bool  # whether units have their own
    width: int
    dtype: torch.dtype
    device: torch.device

    @classmethod
    def of(cls, weight: Tensor, width: int, batch: dict[str, Tensor], bounds: Tensor | None) -> Fittings:
        inputs = tuple(name for name in FACTS if name in batch and name != "protected")
        return cls(inputs, bounds is not None, width, weight.dtype, weight.device)

    @classmethod
    def of_state(cls, state: PackedState) -> Fittings:
        hidden = state.hidden
        return cls(("position",), state.bounds is not None, hidden.shape[1], hidden.dtype, hidden.device)


class Ledger:
    """The answers of a batch, by the number of a row in it. The last line is nobody's."""

    def __init__(self, rows: int):
        self.nobody = rows
        self.lines: Memory = {}

    def write(self, rows: Tensor, **values: Tensor) -> None:
        for name, value in values.items():
            if name not in self.lines:
                self.lines[name] = value.new_zeros(self.nobody + 1, *value.shape[1:])
            self.lines[name].index_copy_(0, rows, value)

    def read(self, rows: int) -> list[Tensor]:
        return [self.lines[name][:rows].clone() for name in ("logits", "layers")]


class Room:
    def __init__(self, size: Size, fittings: Fittings, graphs: Graphs):
        self.size, self.fittings, self.graphs = size, fittings, graphs
        self.network, self.backend, self.ledger, self.device = (
            graphs.network, graphs.backend, graphs.ledger, graphs.device,
        )  # fmt: skip
        self.captured: dict[Any, Captured | None] = {}
        on = fittings.device
        self.layers = torch.tensor([segment.asked.number for segment in graphs.segments], device=on)
        # All that the host sends lies together: one transfer.
        sent = len(fittings.inputs) * size.tokens + 2 * size.rows
        self.sending = torch.zeros(sent, dtype=torch.long, pin_memory=on.type == "cuda")
        self.sent = torch.zeros(sent, dtype=torch.long, device=on)
        self.inputs, self.arrived, self.numbers = self._parts(self.sent)
        self.on_its_way: Any = None
        self.hidden = torch.zeros(size.tokens, fittings.width, dtype=fittings.dtype, device=on)
        self.position = torch.zeros(size.tokens, dtype=torch.long, device=on)
        # What is timed before a batch comes should not find it empty.
        usual = max(1, min(size.tokens // size.rows, size.longest))
        self.lengths = torch.full((size.rows,), usual, dtype=torch.long, device=on)
        self.lengths[size.tokens // usual :] = 0
        self.row = torch.full((size.rows,), self.ledger.nobody, dtype=torch.long, device=on)  # its line in the ledger
        self.bounds = torch.zeros(size.rows, graphs.segments[-1].asked.number, device=on) if fittings.bounds else None
        self.memory: Memory = {}
        self.staying = torch.zeros(2, dtype=torch.long, pin_memory=on.type == "cuda")  # units, and their tokens

    def _parts(self, flat: Tensor) -> tuple[dict[str, Tensor], Tensor, Tensor]:
        tokens, rows = self.size.tokens, self.size.rows
        parts = flat.split([*[tokens] * len(self.fittings.inputs), rows, rows])
        return dict(zip(self.fittings.inputs, parts, strict=False)), parts[-2], parts[-1]

    # Who comes in takes the place of the batch before

    def admit(self, batch: dict[str, Tensor], bounds: Tensor | None) -> None:
        """A packed batch from the host, before its first segment."""
        if self.on_its_way is not None:
            self.on_its_way.synchronize()
        inputs, lengths, numbers = self._parts(self.sending)
        rows = len(batch["lengths"])
        for name, values in inputs.items():
            values[: len(batch[name])] = batch[name]
        lengths.zero_()[:rows] = batch["lengths"]
        numbers.fill_(self.ledger.nobody)[:rows] = torch.arange(rows)
        self.sent.copy_(self.sending, non_blocking=True)
        if self.sent.is_cuda:
            self.on_its_way = self.on_its_way or torch.cuda.Event()
            self.on_its_way.record()
        if self.bounds is not None and bounds is not None:
            self.bounds[:rows] = bounds

    def take_in(self, state: PackedState) -> None:
        """A batch that has run some segments."""
        tokens, rows = state.size, len(state)
        self.lengths.zero_()
        self.row.fill_(self.ledger.nobody)
        self.hidden[:tokens], self.position[:tokens] = state.hidden[:tokens], state.position[:tokens]
        self.lengths[:rows], self.row[:rows] = state.packing.lengths, torch.arange(rows, device=self.row.device)
        for name, value in state.memory.items():
            self._noted(name, value)[:rows] = value
        if self.bounds is not None and state.bounds is not None:
            self.bounds[:rows] = state.bounds

    def take_over(self, other: Room) -> None:
        """The units of a larger room that was closed."""
        sources = [*other._of_units(), *other.memory.values()]
        targets = [*self._of_units(), *(self._noted(name, value) for name, value in other.memory.items())]
        torch._foreach_copy_(targets, [source[: len(target)] for source, target in zip(sources, targets, strict=True)])

    def _of_units(self) -> list[Tensor]:
        """What units bring with them, beside what the rule remembers."""
        found = [self.hidden, self.position, self.lengths, self.row]
        return found if self.bounds is None else [*found, self.bounds]

    # Captured work

    def run(self, segments: Sequence[Segment]) -> None:
        """Some segments one after the other; who is left then, `staying` says."""
        self._do((segments[0].index, len(segments)), lambda: self._run(segments))

    def close(self) -> None:
        """Units that stay, and their tokens, come to the front."""
        self._do("close", self._close)

    def _do(self, name: Any, work: Callable[[], None]) -> None:
        """The first time as it is, since many sizes come but once; captured from the second time on, where launches
        take longer than what they launch."""
        if name not in self.captured or self.size.tokens > CAPTURED:
            self.captured[name] = None
            return work()
        captured = self.captured[name]
        if captured is None:
            kept = [*self._of_units(), *self.memory.values()]
            self.captured[name] = captured = self.device.capture(work, kept)
        captured()

    @cached_property
    def layer_seconds(self) -> float:
        """What the layers of a segment take, the mean of all."""
        segments = self.graphs.segments
        steps = segments[len(segments) // 2].steps
        layers = sum(len(segment.steps) for segment in segments) / len(segments)
        self.timed_layer = self.device.capture(lambda: run_steps(self.backend, steps, self._state(self.hidden)))
        return self.timed_layer.seconds * layers / len(steps)

    @cached_property
    def timed_head(self) -> Captured:
        step = self.graphs.segments[len(self.graphs.segments) // 2].asked
        return self.device.capture(lambda: self._ask(self._state(self.hidden), step))

    def _run(self, segments: Sequence[Segment]) -> None:
        state = self._begun() if segments[0].index == 0 else self._state(self.hidden).remembering(dict(self.memory))
        memory, seen, logits, leave = state.memory, [], [], []  # what a lane reads must stay until it has
        for number, segment in enumerate(segments):
            state = run_steps(self.backend, segment.steps, state)
            with self.device.lane(RULE + 1 + number):
                evidence = self.network.evidence(state, segment.asked)
            with self.device.lane(RULE, after=RULE + 1 + number):
                judged = self.graphs.answering.judged(state.remembering(memory), segment.asked, evidence)
                memory = judged[0].memory
            seen += [(state, evidence, judged)]
            logits.append(judged[1])
            leave.append(torch.ones_like(self.row, dtype=torch.bool) if judged[2] is None else judged[2])
        self.device.join(RULE)
        self._write(segments, torch.stack(logits), torch.stack(leave))
        if not segments[-1].asked.last:
            self._keep(state.hidden, memory)

    def _begun(self) -> PackedState:
        """The batch before its first segment, as it was sent."""
        self.lengths.copy_(self.arrived)
        self.row.copy_(self.numbers)
        inputs = dict(self.inputs)
        self.position.copy_(inputs.pop("position"))
        return self._state(self.backend.embedded(**inputs))

    def _write(self, segments: Sequence[Segment], logits: Tensor, leave: Tensor) -> None:
        """Units that leave after one of some segments write down the answer of the first, and are nobody from then on.

        `logits` [segments, units, …], `leave` [segments, units]"""
        first, gone, nobody = leave.to(torch.uint8).argmax(0), leave.any(0), self.ledger.nobody
        layers = self.layers[segments[0].index :]
        found = logits[first, torch.arange(len(first), device=first.device)]
        self.ledger.write(self.row.masked_fill(~gone, nobody), logits=found, layers=layers[first])
        self.row.masked_fill_(gone, nobody)

    def _keep(self, hidden: Tensor, memory: Memory) -> None:
        self.hidden.copy_(hidden)
        for name, value in memory.items():
            self._noted(name, value).copy_(value)
        stay = self.row != self.ledger.nobody
        self.staying.copy_(torch.stack([stay, self.lengths * stay]).sum(1), non_blocking=True)

    def _close(self) -> None:
        gone = self.row == self.ledger.nobody
        order = gone.to(torch.uint8).argsort(stable=True)
        before = Packing(self.lengths, self.size.tokens, self.size.longest)
        packing = Packing(self.lengths.masked_fill(gone, 0)[order], self.size.tokens, self.size.longest)
        source = (before.starts[order][packing.owner] + packing.within).clamp_(max=self.size.tokens - 1)
        self.lengths.copy_(packing.lengths)
        for value in (self.hidden, self.position):
            value.copy_(value[source])
        for value in (self.row, *self.memory.values(), *([] if self.bounds is None else [self.bounds])):
            value.copy_(value[order])

    def _ask(self, state: PackedState, step: Any) -> None:
        answering = self.graphs.answering
        memory = {name: value.clone() for name, value in self.memory.items()}
        answering.judged(state.remembering(memory), step, self.network.evidence(state, step))

    def _state(self, hidden: Tensor) -> PackedState:
        """The batch as layers and heads see it. Nobody owns the tokens after the last row's."""
        packing = Packing(self.lengths, self.size.tokens, self.size.longest)
        for each in (packing, packing.firsts):  # what lanes share is made before they part
            _ = each.offsets, each.first
        return PackedState(
            hidden=hidden,
            row=self.row,
            position=self.position,
            packing=packing,
            columns=self.size.longest,
            bounds=self.bounds,
        )

    def _noted(self, name: str, value: Tensor) -> Tensor:
        """Where the rule's memory of every unit is."""
        if name not in self.memory:
            self.memory[name] = value.new_zeros(self.size.rows, *value.shape[1:])
        return self.memory[name]
