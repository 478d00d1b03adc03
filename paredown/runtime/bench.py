"""How fast a plan is on this machine, beside full depth and beside what a user would run instead.

All ways answer the same batches and take turns in random order; no batch comes twice, so shapes hardly repeat. Rows
that warm a way up, and those it is calibrated by, are not those that are timed and judged. No speed without its
accuracy: beside it stands how many answers are those of transformers and, where rows have labels, the score.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from paredown.answers import Encoded, Kind
from paredown.errors import BadInput, BadSetting
from paredown.evaluation import Bill, Cost, metric_for, record, replay
from paredown.model import AdaptiveModel
from paredown.plan import Plan
from paredown.runtime.rivals import RIVALS, Rival
from paredown.runtime.timing import Batch, Clock, Times, answering, take_turns
from paredown.system.machine import machine
from paredown.system.memory import HeldMemory

RUNTIMES = ("reference", "packed", "int8", "fp8")
FULL, PLANNED = "full depth", "plan"
ROUND = 32  # rows of a round at least, where there are so many: some leave early and some do not
CALIBRATION = 300  # rows that rivals are calibrated by, at most

Answer = Callable[[Batch], Tensor]
Maker = Callable[[], list[Answer]]


@dataclass(frozen=True)
class Course:
    """What all ways run, and what they are warmed up and calibrated by."""

    size: int  # rows of a batch
    warm: list[Batch]
    rounds: list[list[Batch]]

    @classmethod
    def of(cls, warm: Sequence[Encoded], rows: Sequence[Encoded], size: int, rounds: int) -> Course:
        """All rows in so many rounds, as even as whole batches allow."""
        batches = _batches(rows, size)
        ends = [len(batches) * number // rounds for number in range(rounds + 1)]
        return cls(size, _batches(warm, size), [batches[start:end] for start, end in pairwise(ends)])

    @property
    def batches(self) -> list[Batch]:
        return [batch for batches in self.rounds for batch in batches]

    @property
    def rows(self) -> list[Encoded]:
        return [row for batch in self.batches for row in batch]


def courses(rows: Sequence[Encoded], sizes: Sequence[int], rounds: int) -> tuple[list[Course], list[Encoded]]:
    """For every size a course out of these rows, and the rows to calibrate by: none of them is timed."""
    found, starts, ends = [], [], []
    for size in sizes:
        if len(rows) < size * (rounds + 1):
            raise BadInput(
                f"{rounds} rounds of {size} rows, and one to warm up, need {size * (rounds + 1):,} rows; "
                f"there are {len(rows):,}"
            )
        part = max(size, min(rows_of_a_round(size), len(rows) // (rounds + 1)) // size * size)
        starts.append(part)
        ends.append(part * (rounds + 1))
        found.append(Course.of(rows[:part], rows[part : ends[-1]], size, rounds))
    return found, [*rows[: min(starts)], *rows[max(ends) :]][:CALIBRATION]


def rows_of_a_round(size: int) -> int:
    """Whole batches, that have together as many rows as a round should have."""
    return -(-max(size, ROUND) // size) * size


@dataclass
class Way:
    """One way to answer. What fails once is not asked again, and says why."""

    name: str
    answer: Answer | None = None
    memory: int | None = None  # bytes that it holds at most
    why_not: str = ""
    logits: list[Tensor] = field(default_factory=list)  # of the batches since these were last cleared

    def __call__(self, batch: Batch) -> None:
        if self.answer is None:
            return
        try:
            self.logits.append(self.answer(batch))
        except Exception as error:
            self.fail(error)

    def fail(self, error: Exception) -> None:
        first = next(iter(str(error).strip().splitlines()), "")
        self.why_not = first if isinstance(error, BadSetting) else f"{type(error).__name__}: {first}".rstrip(": ")
        self.answer = None


class Bench:
    """A model's ways, ready to be timed. The model runs afterwards as it did before."""

    def __init__(
        self,
        model: AdaptiveModel,
        plan: Plan,
        calibration: Sequence[Encoded],
        rivals: Iterable[str] | None = None,
        runtimes: Sequence[str] = RUNTIMES,
    ):
        self.model, self.plan = model, plan
        asked = [name for name, rival in RIVALS.items() if not rival.on_request] if rivals is None else list(rivals)
        self.rivals = [RIVALS[name] for name in RIVALS if name in asked]
        self.ways: dict[str, Way] = {}
        self._warm = list(calibration[:ROUND])
        self._kernel: str | None = None  # of our int8
        with model.keeping_runtime():
            for rival in self.rivals:
                way = self.ways[rival.name] = Way(rival.name, why_not=rival.why_not(model.device) or "")
                if not way.why_not:
                    self._start([way], partial(self._rival, rival, calibration), rival.own_weights)
            for runtime in runtimes:
                own = {name: Way(f"{runtime}, {name}") for name in self.own_plans}
                self.ways |= {way.name: way for way in own.values()}
                self._start(list(own.values()), partial(self._own, runtime), own_weights=False)

    @property
    def own_plans(self) -> dict[str, Plan]:
        return {FULL: Plan()} | ({} if self.plan == Plan() else {PLANNED: self.plan})

    @property
    def missing(self) -> dict[str, str]:
        """By the name of each way that was not measured: why."""
        return {way.name: way.why_not for way in self.ways.values() if way.why_not}

    def facts(self) -> dict[str, Any]:
        """What the figures depend on."""
        packages = [name for rival in self.rivals for name in rival.packages if rival.name not in self.missing]
        return machine(self.model.device, list(dict.fromkeys(packages))) | {"int8_kernel": self._kernel}

    def run(self, course: Course, cpu_time: bool = False) -> dict[str, dict[str, Any]]:
        """The facts of every way that could be measured, by its name."""
        with self.model.keeping_runtime():
            able = {way.name: way for way in self.ways.values() if way.answer is not None}
            for way in able.values():
                for batch in course.warm:
                    way(batch)
                way.logits.clear()
            taken = take_turns(able, course.rounds, Clock(self.model.device, cpu_time))
            done = {name: taken[name] for name, way in able.items() if way.answer is not None}
            if not done:
                raise BadInput("no way could be measured: " + "; ".join(map(": ".join, self.missing.items())))
            judge = Judge(self.model.kind, self.model.tokenizer.pad_token_id, course.batches)
            first = next(iter(done))
            expected = judge.predicted(able[first].logits)
            found = {name: self._figures(able[name], times, done[first]) for name, times in done.items()}
            for name in done:
                found[name] |= judge.facts(able[name].logits, expected)
                able[name].logits.clear()
            return _with_efficiency(found, done, lambda: self._less_work(course.rows))

    def _start(self, ways: list[Way], make: Maker, own_weights: bool) -> None:
        """Make ways ready and let each answer some rows, while their memory is watched; the weights of the model, which
        are there already, belong to it where they are shared."""
        held, model = HeldMemory(self.model.device), self.model
        shared = 0 if own_weights else sum(value.numel() * value.element_size() for value in model.stock.parameters())
        try:
            made = make()
        except Exception as error:  # whatever another library raises
            for way in ways:
                way.fail(error)
            return
        for way, answer in zip(ways, made, strict=True):
            way.answer = answer
            held.watch()
            way(self._warm)
            way.logits.clear()
            way.memory = None if held.peak is None else held.peak + shared

    def _rival(self, rival: Rival, calibration: Sequence[Encoded]) -> list[Answer]:
        return [rival.answering(self.model, calibration)]

    def _own(self, runtime: str) -> list[Answer]:
        self.model.use(runtime)
        kernel = getattr(self.model.backend, "kernel", None)
        self._kernel = kernel.name if kernel is not None else self._kernel
        return [answering(self.model, plan) for plan in self.own_plans.values()]

    def _figures(self, way: Way, times: Times, beside: Times) -> dict[str, Any]:
        return {
            "texts_per_second": 1 / times.seconds_per_row,
            "p50_ms": 1000 * times.percentile(50),
            "p99_ms": 1000 * times.percentile(99),
            "times_transformers": times.times_faster(beside),
            "memory_mb": None if way.memory is None else round(way.memory / 1e6, 1),
        }

    def _less_work(self, rows: Sequence[Encoded]) -> float:
        """How many times fewer FLOPs the plan takes than full depth."""
        model, plan = self.model.use("reference"), self.plan
        seen = record(model, rows, plan=plan)
        bill = Bill(seen, Cost.of(model, plan))
        return bill.mean(replay(seen, plan.exit).layers, plan.exit is not None)["flops_speedup"]


@dataclass(frozen=True)
class Judge:
    """What logits of some batches are worth."""

    kind: Kind
    pad: int
    batches: list[Batch]

    def predicted(self, logits: Sequence[Tensor]) -> list[Tensor]:
        return [self.kind.predicted(one) for one in logits]

    def facts(self, logits: Sequence[Tensor], expected: Sequence[Tensor]) -> dict[str, float]:
        """The share of rows with the expected answers, where these are no numbers; the score where rows have labels."""
        found = {}
        if not self.kind.numeric:
            pairs = zip(self.batches, self.predicted(logits), expected, strict=True)
            found["agreement"] = torch.cat([self._same(*pair) for pair in pairs]).float().mean().item()
        if all(row.label is not None and row.unit is None for batch in self.batches for row in batch):
            found["score"] = self._score(logits)
        return found

    def _same(self, batch: Batch, predicted: Tensor, expected: Tensor) -> Tensor:
        """[rows] whether all of an answer is the same."""
        asked = self.kind.items(self.kind.answer_mask(self.kind.collate(batch, self.pad)), predicted)
        return ((predicted == expected) | ~asked).all(1)

    def _score(self, logits: Sequence[Tensor]) -> float:
        pairs = zip(self.batches, logits, strict=True)
        judged = [self.kind.judged(its, self.kind.collate(batch, self.pad)["labels"])[:2] for batch, its in pairs]
        predicted, labels = (np.concatenate([np.asarray(part) for part in parts]) for parts in zip(*judged))
        return metric_for(self.kind)(predicted, labels)


def _with_efficiency(
    found: dict[str, dict[str, Any]], done: dict[str, Times], less_work: Callable[[], float]
) -> dict[str, dict[str, Any]]:
    """Of every runtime's plan: how much less work it is than full depth, and how much of that became time."""
    planned = [name for name in done if name.endswith(f", {PLANNED}")]
    fewer = less_work() if planned else 1.0
    for name in planned:
        found[name]["fewer_flops"] = fewer
        full = done.get(f"{name.rpartition(', ')[0]}, {FULL}")
        if full is not None:
            found[name]["efficiency"] = done[name].times_faster(full) / fewer
    return found


def _batches(rows: Sequence[Encoded], size: int) -> list[Batch]:
    return [rows[at : at + size] for at in range(0, len(rows), size)]
