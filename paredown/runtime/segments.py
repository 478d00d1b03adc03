"""Segments: a route cut after every layer at which a head is asked, since units can leave nowhere else."""

from __future__ import annotations

from dataclasses import dataclass, replace

from paredown.route import Route, Step


@dataclass(frozen=True, eq=False)
class Segment:
    index: int
    steps: tuple[Step, ...]  # a head is asked after the last of them

    @property
    def asked(self) -> Step:
        return self.steps[-1]

    def for_all_tokens(self) -> Segment:
        """No layer leaves tokens for later that its head does not read."""
        return replace(self, steps=tuple(replace(step, reads_first=False) for step in self.steps))


def segments(route: Route) -> tuple[Segment, ...]:
    found: list[list[Step]] = [[]]
    for step in route.steps:
        found[-1].append(step)
        if step.asked and not step.last:
            found.append([])
    return tuple(Segment(index, tuple(steps)) for index, steps in enumerate(found))
