"""Segments as CUDA graphs: small batches wait for launches, not for arithmetic, and a graph is one launch.

A graph has fixed sizes and addresses. A room is memory for so many tokens and rows; a batch enters it, every segment
reads it from there and writes it back, and nothing is copied until the batch has become small enough for another room.
What it lacks is padding: rows of no token, and a last one that owns the tokens nobody asked about.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from paredown.engine import Answering, Settling, run_steps
from paredown.runtime.packed_state import PackedState, Packing
from paredown.runtime.segments import Segment
from paredown.state import Memory

if TYPE_CHECKING:
    from paredown.network import Network

MOST = 8192  # tokens of a batch that is still small
LEAST = 32
LONGEST = 512  # tokens of a row


class Graphs:
    """Runs the segments of one route, each captured the first time that a batch of its size comes."""

    def __init__(self, network: Network, settling: Settling, segments: Sequence[Segment]):
        self.network, self.settling, self.segments = network, settling, segments
        self.rooms: dict[Any, Room] = {}
        self.memory = torch.cuda.graph_pool_handle()
        self.lock = threading.Lock()

    def fit(self, state: Any) -> bool:
        """Whether nothing on the way depends on more than sizes, and the batch is small enough to be worth it."""
        steps = [step for segment in self.segments for step in segment.steps]
        return (
            isinstance(state, PackedState)
            and state.size <= MOST
            and state.packing.longest <= LONGEST
            and state.group is None
            and state.answer_mask is None
            and all(step.reducer is None and not step.watch for step in steps)
            and (steps[-1].head is not None or self.network.walk.reads_first_token)
        )

    def run(self, first: int, state: Any, answering: Answering) -> None:
        """All segments from one on; units leave when a smaller room would do for those that stay."""
        with self.lock:  # a room holds one batch
            self._run(first, state, answering)

    def _run(self, first: int, state: Any, answering: Answering) -> None:
        room = self._enter(state)
        for segment in self.segments[first:]:
            staying, tokens = room.run(segment)
            if not staying:
                break
            if bucket(tokens) * 2 <= room.tokens or power(staying) * 4 <= room.rows:
                state = answering.cut(room.leave(state))
                room = self._enter(state)
        answering.cut(room.leave(state), everyone=True)

    def _enter(self, state: PackedState) -> Room:
        key = (bucket(state.size), power(len(state)), state.bounds is None)
        if key not in self.rooms:
            self.rooms[key] = Room(self, state, *key[:2])
        self.rooms[key].enter(state)
        return self.rooms[key]


class Room:
    def __init__(self, graphs: Graphs, state: PackedState, tokens: int, rows: int):
        self.tokens, self.rows, self.graphs = tokens, rows, graphs
        self.captured: dict[int, torch.cuda.CUDAGraph] = {}  # by the number of the segment's first step
        self.counts = torch.zeros(2, dtype=torch.long, device=state.hidden.device)  # units and tokens that stay
        self.lengths = state.packing.lengths.new_zeros(rows)
        self.hidden = state.hidden.new_zeros(tokens, state.hidden.shape[1])
        self.position = state.position.new_zeros(tokens)
        self.bounds = None if state.bounds is None else state.bounds.new_zeros(rows + 1, state.bounds.shape[1])
        self.work = state.row.new_zeros(rows + 1)
        self.row = state.row.new_zeros(rows + 1)
        self.noted: dict[str, Memory] = {"memory": {}, "settled": {}}
        self.steps = 0

    def enter(self, state: PackedState) -> None:
        """A batch in place of the one before."""
        tokens, rows = state.size, len(state)
        if rows < self.rows:
            self.lengths[rows:].zero_()
        pairs = [(self.hidden[:tokens], state.hidden), (self.position[:tokens], state.position)]
        pairs += [(self.lengths[:rows], state.packing.lengths), (self.work[:rows], state._work())]
        if self.bounds is not None and state.bounds is not None:
            pairs.append((self.bounds[:rows], state.bounds))
        pairs += [(self._note("memory", name, value)[:rows], value) for name, value in state.memory.items()]
        torch._foreach_copy_([target for target, _ in pairs], [source for _, source in pairs])
        self.steps = state.steps

    def run(self, segment: Segment) -> list[int]:
        """Run a segment; how many units stay, and their tokens."""
        first = segment.steps[0].number
        if first not in self.captured:
            self.captured[first] = self._capture(segment)
        self.captured[first].replay()
        self.steps = segment.steps[-1].number
        return self.counts.tolist()

    def leave(self, state: PackedState) -> PackedState:
        """The batch as it is now, in memory of its own."""
        tokens, rows = state.size, len(state)
        noted = {
            note: {name: value[:rows].clone() for name, value in values.items()} for note, values in self.noted.items()
        }
        return state._but(hidden=self.hidden[:tokens].clone(), steps=self.steps, received=None, **noted)

    def _capture(self, segment: Segment) -> torch.cuda.CUDAGraph:
        kept = self.hidden.clone()
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(2):  # kernels are chosen and compiled, and notes have their place, before they are captured
                found = self._through(segment)
        torch.cuda.current_stream().wait_stream(aside)
        for note in self.noted:
            for name, value in getattr(found, note).items():
                self._note(note, name, value)
        self.hidden.copy_(kept)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self.graphs.memory):
            self._write_back(self._through(segment))
        return graph

    def _through(self, segment: Segment) -> PackedState:
        begun = segment.steps[0].number > 1
        rest = self.tokens - self.lengths.sum(0, keepdim=True)
        state = PackedState(
            hidden=self.hidden,
            row=self.row,
            position=self.position,
            packing=Packing(torch.cat([self.lengths, rest]), self.tokens, min(self.tokens, LONGEST)),
            columns=min(self.tokens, LONGEST),
            bounds=self.bounds,
            work=self.work,
            dropped_at=segment.steps[0].number - 1,
            steps=segment.steps[0].number - 1,
            memory=self.noted["memory"] if begun else {},
            settled=self.noted["settled"] if begun else {},
        )
        return run_steps(self.graphs.network.backend, segment.steps, state, self.graphs.settling)

    def _write_back(self, found: PackedState) -> None:
        self.hidden.copy_(found.hidden)
        self.work.copy_(found._work())
        for note, values in self.noted.items():
            for name, value in getattr(found, note).items():
                values[name].copy_(value)
        if found.settled:
            stay = ~found.settled["leave"][: self.rows] & (self.lengths > 0)
            self.counts.copy_(torch.stack([stay.sum(), (self.lengths * stay).sum()]))

    def _note(self, note: str, name: str, value: Tensor) -> Tensor:
        """Where a note of every unit is written."""
        if name not in self.noted[note]:
            self.noted[note][name] = value.new_zeros(self.rows + 1, *value.shape[1:])
        return self.noted[note][name]


def bucket(tokens: int) -> int:
    """The next of 32, 48, 64, 96, 128, …"""
    whole = power(max(tokens, LEAST))
    return whole * 3 // 4 if whole > LEAST and tokens <= whole * 3 // 4 else whole


def power(number: int) -> int:
    return 1 << (number - 1).bit_length()
