"""Measured time: ways take turns in random order on the same batches, because no machine is as fast twice.

Ratios are taken within a round, where the machine was the same for all, and their median over the rounds counts.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeVar

import torch

from paredown.answers import Encoded
from paredown.model import AdaptiveModel
from paredown.plan import Plan

Batch = Sequence[Encoded]
Answering = Callable[[Batch], Any]
Name = TypeVar("Name")
ROUNDS = 3  # in which plans take turns, by default


@dataclass(frozen=True)
class Clock:
    """Seconds, when all work of the device is done."""

    device: torch.device
    cpu_time: bool = False  # of this process, for a machine that others use too

    def __call__(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.process_time() if self.cpu_time else time.perf_counter()


@dataclass(frozen=True)
class Times:
    """What one way took: seconds of every batch of every round, and the rows of each round."""

    batches: tuple[tuple[float, ...], ...]
    rows: tuple[int, ...]

    @property
    def rounds(self) -> list[float]:
        return [sum(batches) for batches in self.batches]

    @property
    def seconds_per_row(self) -> float:
        return statistics.median(took / rows for took, rows in zip(self.rounds, self.rows, strict=True))

    def times_faster(self, other: Times) -> float:
        """Than another way in the same rounds."""
        return statistics.median(theirs / ours for ours, theirs in zip(self.rounds, other.rounds, strict=True))

    def percentile(self, percent: float) -> float:
        """Seconds of a batch that so many percent of the batches do not exceed."""
        ordered = sorted(chain.from_iterable(self.batches))
        return ordered[min(len(ordered) - 1, int(percent / 100 * len(ordered)))]


def take_turns(
    ways: Mapping[Name, Answering], rounds: Sequence[Sequence[Batch]], clock: Clock, seed: int = 0
) -> dict[Name, Times]:
    """Run every batch of every round in every way; the order of the ways is drawn anew for each batch."""
    order, chance = list(ways), random.Random(seed)
    taken: dict[Name, list[list[float]]] = {name: [[] for _ in rounds] for name in ways}
    for number, batches in enumerate(rounds):
        for batch in batches:
            chance.shuffle(order)
            for name in order:
                start = clock()
                ways[name](batch)
                taken[name][number].append(clock() - start)
    rows = tuple(sum(map(len, batches)) for batches in rounds)
    return {name: Times(tuple(map(tuple, its)), rows) for name, its in taken.items()}


def time_plans(
    model: AdaptiveModel, rows: Sequence[Encoded], plans: Sequence[Plan], batch_size: int, rounds: int = ROUNDS
) -> dict[Plan, Times]:
    """The times of plans through the model's executor, in rounds over all rows after one that warms up; rows of like
    length share a batch."""
    ways = {plan: answering(model, plan) for plan in plans}
    order = sorted(rows, key=len, reverse=True)
    batches = [order[at : at + batch_size] for at in range(0, len(order), batch_size)]
    for answer in ways.values():
        for batch in batches:
            answer(batch)
    return take_turns(ways, [batches] * rounds, Clock(model.device))


def milliseconds(
    model: AdaptiveModel, rows: Sequence[Encoded], plan: Plan, batch_size: int, rounds: int = ROUNDS
) -> float:
    """Of one row, by one plan."""
    return 1000 * time_plans(model, rows, [plan], batch_size, rounds)[plan].seconds_per_row


def answering(model: AdaptiveModel, plan: Plan) -> Answering:
    """Answers a batch by a plan through what runs the model now, whatever will run it later: logits of the rows."""
    executor, backend, route = model.executor, model.backend, model.route(plan)

    def answer(batch: Batch) -> torch.Tensor:
        model.backend = backend
        stream = executor.stream(len(batch))
        stream.put(batch, [route] * len(batch))
        stream.finish()
        answered = stream.take()
        return answered.logits[answered.rows.argsort()]

    return answer


def spread(rows: Sequence[Encoded], most: int) -> list[Encoded]:
    """At most so many rows, their lengths distributed as in all."""
    order = sorted(rows, key=len)
    if len(order) <= most:
        return order
    return [order[(2 * index + 1) * len(order) // (2 * most)] for index in range(most)]
