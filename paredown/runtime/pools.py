"""Pools: units that stay wait before the next segment, and go on with units of other batches, so deep layers run full.

Whoever has rows to answer hands them in (`submit`), and lets the fullest work be done (`advance`) until they are back.
The clock is the caller's: offline nothing is urgent, a server gives every batch a time at which it is due.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torch import Tensor

from paredown.engine import Answering, Verdict
from paredown.runtime.segments import Segment
from paredown.state import State, joined

if TYPE_CHECKING:
    from paredown.runtime.runner import Runner


@dataclass
class Pool:
    """The units that wait before one segment."""

    segment: Segment
    waiting: list[State] = field(default_factory=list)
    tokens: int = 0
    due: float = math.inf  # when the most urgent of them must be back

    def put(self, state: State, due: float) -> None:
        self.waiting.append(state)
        self.tokens += state.size
        self.due = min(self.due, due)

    def empty(self) -> tuple[State, float]:
        """All that waits, as one state."""
        state = self.waiting[0] if len(self.waiting) == 1 else State.concat(self.waiting)
        due, self.waiting, self.tokens, self.due = self.due, [], 0, math.inf
        return state, due


class Pools:
    """The pools of one route. Rows whose routes differ in their bounds alone share them.

    On a GPU the units of one segment are told apart while the next segment runs, so the device never waits for it."""

    def __init__(self, runner: Runner, full: int):
        self.runner, self.full = runner, full  # tokens that make a batch worth running
        self.answering = Answering(runner.network, runner.route)
        self.pools = [Pool(segment) for segment in runner.segments]
        self.ahead = int(runner.parameter.is_cuda)  # segments that wait to be parted while one runs
        self.asked: deque[tuple[Pool, Verdict, float]] = deque()

    def submit(self, state: State, due: float = math.inf) -> None:
        """Units that begin."""
        self.pools[0].put(state, due)

    def advance(self, now: float = -math.inf, hurry: bool = False) -> bool:
        """Run the deepest segment whose pool is full or due; in a hurry the shallowest that is not empty, so that the
        later ones fill. False: there is nothing to do."""
        if hurry:  # who comes to the later pools must be known, so that they fill
            self._part(0)
        pool = self._next(now, hurry)
        if pool is None and not self.asked:
            return False
        if pool is not None:
            state, due = pool.empty()
            self.asked.append((pool, self.runner.ask(pool.segment, state, self.answering), due))
        self._part(0 if pool is None else self.ahead)
        return True

    def _next(self, now: float, hurry: bool) -> Pool | None:
        for pool in reversed(self.pools):
            if pool.waiting and (pool.tokens >= self.full or pool.due <= now):
                return pool
        return next((pool for pool in self.pools if hurry and pool.waiting), None)

    def _part(self, ahead: int) -> None:
        """Units of all segments but the last few that ran leave, or go on to the next pool."""
        while len(self.asked) > ahead:
            pool, verdict, due = self.asked.popleft()
            staying = self.answering.part(verdict)
            if len(staying):
                self.pools[pool.segment.index + 1].put(staying, due)

    def drain(self) -> tuple[Tensor, ...] | None:
        """Units, logits, layers and tokens of those that are back since this was last asked, on the host."""
        left, self.answering.left = self.answering.left, []
        if not left:
            return None
        parts: Any = zip(*left, strict=True)
        return tuple(joined(part).cpu() for part in parts)
