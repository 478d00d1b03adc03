"""Pools: units that stay wait before the next segment, and go on with units of other batches, so deep layers run full.

Whoever has rows to answer hands them in (`submit`), and lets the fullest work be done (`advance`) until they are back.
The clock is the caller's: offline nothing is urgent, a server gives every batch a time at which it is due.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torch import Tensor

from paredown.engine import Answering
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
    """The pools of one route. Rows whose routes differ in their bounds alone share them."""

    def __init__(self, runner: Runner, full: int):
        self.runner, self.full = runner, full  # tokens that make a batch worth running
        self.answering = Answering(runner.network, runner.route)
        self.pools = [Pool(segment) for segment in runner.segments]

    def submit(self, state: State, due: float = math.inf) -> None:
        """Units that begin."""
        self.pools[0].put(state, due)

    def advance(self, now: float = -math.inf, hurry: bool = False) -> bool:
        """Run the deepest segment whose pool is full or due; in a hurry the shallowest that is not empty, so that the
        later ones fill. False: there is none."""
        for pool in reversed(self.pools):
            if pool.waiting and (pool.tokens >= self.full or pool.due <= now):
                return self._run(pool)
        waiting = [pool for pool in self.pools if pool.waiting]
        return self._run(waiting[0]) if hurry and waiting else False

    def _run(self, pool: Pool) -> bool:
        state, due = pool.empty()
        state = self.runner.run(pool.segment, state, self.answering)
        if len(state):
            self.pools[pool.segment.index + 1].put(state, due)
        return True

    def drain(self) -> tuple[Tensor, ...] | None:
        """Units, logits, layers and tokens of those that are back since this was last asked, on the host."""
        left, self.answering.left = self.answering.left, []
        if not left:
            return None
        parts: Any = zip(*left, strict=True)
        return tuple(joined(part).cpu() for part in parts)
