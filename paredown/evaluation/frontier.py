"""The frontier of a cloud of points: the ones worth having, and how much score is lost on the way to a lower cost."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

Point = dict[str, Any]


def front(points: Iterable[Point], cost: str = "flops") -> list[Point]:
    """The points that no other beats in both score and cost, cheapest first."""
    found: list[Point] = []
    for point in sorted(points, key=lambda point: (point[cost], -point["score"])):
        if not found or point["score"] > found[-1]["score"]:
            found.append(point)
    return found


def area(points: Iterable[Point], first: Point, full: Point, cost: str = "flops") -> float:
    """Mean score lost against full depth, over all costs between leaving at the first head and full depth.

    Between the points of the front scores are interpolated, which a random mixture of two rules attains. `first` (all
    rows leave at the first head) and `full` (none does) belong to every front, so that all rules cover the same costs.
    Small is good; below 0, exits are better than full depth.
    """
    inside = [point for point in points if first[cost] <= point[cost] <= full[cost]]
    best = front([*inside, first, full], cost)
    best += [full | {"score": best[-1]["score"]}]  # what is reached cheaper need not be given up
    span = full[cost] - first[cost]
    if span <= 0:
        return 0.0
    lost = 0.0
    for left, right in pairwise(best):
        loss = full["score"] - (left["score"] + right["score"]) / 2
        lost += loss * (right[cost] - left[cost])
    return lost / span
