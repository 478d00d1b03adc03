"""Segments: a route cut into a few layers each, with the heads among them. Units leave at the end of a segment."""

from __future__ import annotations

from dataclasses import dataclass

from paredown.route import Route, Step


@dataclass(frozen=True, eq=False)
class Segment:
    index: int
    steps: tuple[Step, ...]

    @property
    def last(self) -> bool:
        return self.steps[-1].last


def segments(route: Route, every: int = 1) -> tuple[Segment, ...]:
    """A cut after every so many steps at which a head is asked, and at the end."""
    found: list[list[Step]] = [[]]
    asked = 0
    for step in route.steps:
        found[-1].append(step)
        asked += step.asked
        if step.asked and asked % every == 0 and not step.last:
            found.append([])
    return tuple(Segment(index, tuple(steps)) for index, steps in enumerate(found))
