"""Pace: how many segments to run before the host asks who is left.

A batch whose rows are nearly all left behind by the time the host has heard of it is better run to the end at once; a
single text, or a batch of many tokens, is not. What layers, heads and the host's question take is measured on the
device; where units leave is learned from those that did. Answers do not depend on it."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

STRIDES = (1, 2, 3, 6)  # and all that are left; few, since every stretch of a route is captured by itself
FIRST, LOOKS = 16, 32  # batches that are looked at; later on, until one is looked at again
MOST = 4096  # units that are remembered
SMALLER = 0.75  # share of a room that those who stay must fit in before a move is thought of


@dataclass(frozen=True)
class Seconds:
    """In seconds."""

    layer: float  # of a segment's layers, for the tokens that are here
    least: float  # of the same for hardly any token
    head: float
    wait: float  # until the host has heard who is left, and the device of the host

    @property
    def moving(self) -> float:
        """Of those that stay to a smaller room; about what a head takes."""
        return self.head + self.wait


@dataclass
class Pace:
    segments: int
    batches: int = 0
    left: np.ndarray = field(init=False)  # units that left after each segment, and one more

    def __post_init__(self) -> None:
        self.left = np.ones(self.segments)
        self.strides: dict[tuple[int, int, Seconds], int] = {}

    @property
    def looks(self) -> bool:
        """Whether the layers that a batch ran should be told."""
        self.batches += 1
        return self.batches < FIRST or self.batches % LOOKS == 0

    def learn(self, left: np.ndarray) -> None:
        """Units that left after each segment; those of long ago count less."""
        self.left += left
        self.left *= min(1.0, MOST / self.left.sum())
        self.strides.clear()

    def stride(self, index: int, rows: int, seconds: Seconds) -> int:
        """How many segments to run, of a batch that is before one."""
        rows = 1 << (rows - 1).bit_length()  # what is nearly the same is not worked out again
        known = self.strides.get((index, rows, seconds))
        if known is None:
            known = self.strides[index, rows, seconds] = self._stride(index, rows, seconds)
        return known

    def _stride(self, index: int, rows: int, seconds: Seconds) -> int:
        here = self.left[index:]
        gone = np.append(0.0, here.cumsum() / here.sum())
        ahead = len(here)
        choices = [stride for stride in STRIDES if stride < ahead] + [ahead]
        return min(choices, key=lambda stride: _expected(stride, gone, rows, seconds))


def _expected(stride: int, gone: np.ndarray, rows: int, seconds: Seconds) -> float:
    """Seconds until everyone has left; `gone`: the share of units that have left after so many segments."""
    total, room, ahead = 0.0, 1.0, len(gone) - 1
    for done in range(0, ahead, stride):
        somebody, share = 1 - gone[done] ** rows, 1 - gone[done]
        moving = 0.0
        if share <= SMALLER * room:
            room, moving = share, seconds.moving
        run = min(stride, ahead - done)
        asking = seconds.wait if done + run < ahead else 0.0
        layers = run * (seconds.least + (seconds.layer - seconds.least) * room)
        total += somebody * (layers + seconds.head + asking + moving)
    return total
