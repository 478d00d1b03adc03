"""Batches as CUDA graphs: small ones wait for launches, not for arithmetic, and a graph is one launch.

A graph has fixed sizes and addresses. A room is memory for so many tokens and rows. A batch enters the smallest one
that holds it, and runs some segments at once: layers after layers, and every head beside the layers after it. Units
that have their answer write it down in the ledger and stay where they are, as nobody, until those that are left move to
a smaller room. How many segments run at once, and whether a move is worth it, is decided by measured time.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from paredown.engine import Answering
from paredown.runtime.capture import Device
from paredown.runtime.pace import SMALLER, Pace, Seconds
from paredown.runtime.packed_state import PackedState
from paredown.runtime.rooms import Fittings, Ledger, Room, Size
from paredown.runtime.segments import Segment
from paredown.state import Answer

if TYPE_CHECKING:
    from paredown.network import Network
    from paredown.route import Route

TOKENS, ROWS, LONGEST = 65536, 16384, 512  # of a batch that is still small, and of its longest row


class Graphs:
    """Runs one route; what is not known yet is captured when a batch of its size first comes."""

    def __init__(self, network: Network, route: Route, segments: Sequence[Segment], device: Device):
        self.network, self.device = network, device
        self.segments = [segment.for_all_tokens() for segment in segments]  # a room has memory for them all
        self.backend: Any = network.backend
        self.weight = next(network.parameters())
        self.answering = Answering(network, route)
        self.rooms: dict[tuple[Size, Fittings], Room] = {}
        self.times: dict[tuple[Size, Fittings], Seconds] = {}
        self.ledger = Ledger(ROWS)
        self.pace = Pace(len(segments))
        self.number_of = {segment.asked.number: segment.index for segment in segments}
        self.lock = threading.Lock()

    @property
    def able(self) -> bool:
        """Whether nothing on the way depends on more than sizes."""
        steps = [step for segment in self.segments for step in segment.steps]
        kind = self.network.kind
        return (
            not (kind.per_token or kind.grouped)
            and all(step.reducer is None and not step.watch for step in steps)
            and (steps[-1].head is not None or self.network.walk.reads_first_token)
        )

    def hold(self, size: Size) -> bool:
        """Whether a batch is small enough to be worth it."""
        padded = 0 if self.backend.pads_nothing else size.rows * size.longest
        return max(size.tokens, padded) <= TOKENS and size.rows <= ROWS and size.longest <= LONGEST

    def answer(self, batch: dict[str, Tensor], bounds: Tensor | None) -> Answer | None:
        """Answer a packed batch; None where it is too large."""
        size = Size.of_lengths(batch["lengths"])
        if not self.hold(size):
            return None
        with self.lock:  # a room holds one batch, and so does the ledger
            room = self._room(size, Fittings.of(self.weight, self.network.walk.width, batch, bounds))
            room.admit(batch, bounds)
            self._run(room, 0, len(batch["lengths"]), int(batch["lengths"].sum()))
            logits, layers = self.ledger.read(len(batch["lengths"]))
            tokens = room.arrived[: len(layers)] * layers
        self._learn(layers)
        return Answer(logits, layers, tokens)

    def finish(self, index: int, state: PackedState, answering: Answering) -> bool:
        """Run the segments from one on, of a batch that was large; False where it is too large."""
        size = Size.of(state.size, len(state), state.packing.longest)
        if not self.hold(size):
            return False
        state = state.finished()
        with self.lock:
            room = self._room(size, Fittings.of_state(state))
            room.take_in(state)
            self._run(room, index, len(state), state.size)
            logits, layers = self.ledger.read(len(state))
        work = state._work() + state.lengths() * (layers - state.steps)
        answering.left.append((state.row, logits, layers, work))
        return True

    def _run(self, room: Room, index: int, rows: int, tokens: int) -> None:
        while True:
            stride = self.pace.stride(index, rows, self._times(room.size, room.fittings))
            room.run(self.segments[index : index + stride])
            index += stride
            if index == len(self.segments):
                return
            self.device.wait()
            rows, tokens = room.staying.tolist()
            if not rows:
                return
            room = self._better(room, rows, tokens, len(self.segments) - index)

    def _better(self, room: Room, rows: int, tokens: int, ahead: int) -> Room:
        """The room in which those that stay go on; as far as is known, for half of the way that is ahead."""
        size = Size.of(tokens, rows, room.size.longest)
        if size.tokens > SMALLER * room.size.tokens:
            return room
        here, there = self._times(room.size, room.fittings), self._times(size, room.fittings)
        if (here.layer - there.layer) * ahead / 2 <= here.moving:
            return room
        room.close()
        other = self._room(size, room.fittings)
        other.take_over(room)
        return other

    def _times(self, size: Size, fittings: Fittings) -> Seconds:
        """Measured in rooms of a few sizes."""
        if (size, fittings) not in self.times:
            room, smallest = self._room(size.timed, fittings), self._room(Size.of(1, 1, 1), fittings)
            least = min(smallest.layer_seconds, room.layer_seconds)
            more = (room.layer_seconds - least) * size.tokens / room.size.tokens
            head = room.timed_head
            self.times[size, fittings] = Seconds(least + more, least, head.seconds, head.latency)
        return self.times[size, fittings]

    def _room(self, size: Size, fittings: Fittings) -> Room:
        if (size, fittings) not in self.rooms:
            self.rooms[size, fittings] = Room(size, fittings, self)
        return self.rooms[size, fittings]

    def _learn(self, layers: Tensor) -> None:
        if len(self.segments) > 1 and self.pace.looks:
            found = np.bincount(layers.cpu().numpy(), minlength=max(self.number_of) + 1)
            self.pace.learn(np.array([found[number] for number in self.number_of], dtype=float))
