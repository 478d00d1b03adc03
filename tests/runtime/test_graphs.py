"""Batches that run as captured work answer as others do: whichever rooms they pass through."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from paredown.engine import Answering
from paredown.model import AdaptiveModel
from paredown.plan import Plan
from paredown.runtime import rooms
from paredown.runtime.graphs import Graphs
from paredown.runtime.pace import Pace, Seconds
from paredown.runtime.rooms import Room, Size
from paredown.runtime.runner import Runner
from paredown.runtime.segments import segments
from paredown.state import Answer
from tests.families import adaptive, batch

RULES = ("entropy:0.5", "patience:2", "vote:2", "learned:0.4", None)


class Plain:
    """In place of a GPU: work is not captured but done, and takes as long as we say."""

    def __init__(self, layer_seconds: float):
        self.layer_seconds = layer_seconds  # of a token; all else takes no time
        self.done: list[str] = []

    def capture(self, work: Callable[[], Any], kept: Sequence[Tensor] = ()) -> Work:
        before = [one.clone() for one in kept]
        work()  # capturing does it, too
        for one, value in zip(kept, before, strict=True):
            one.copy_(value)
        seconds = 0.0
        if _named(work) == "layer_seconds":
            rooms = [cell.cell_contents for cell in work.__closure__ or ()]
            seconds = self.layer_seconds * next(one.size.tokens for one in rooms if isinstance(one, Room))
        return Work(work, seconds, self.done)

    @contextmanager
    def lane(self, number: int, after: int = 0) -> Iterator[None]:
        yield

    def join(self, number: int) -> None:
        pass

    def wait(self) -> None:
        self.done.append("wait")


class Work:
    def __init__(self, work: Callable[[], Any], seconds: float, done: list[str]):
        self.work, self.seconds, self.done, self.latency = work, seconds, done, 40e-6

    def __call__(self) -> None:
        self.work()
        self.done.append(_named(self.work))


def _named(work: Callable[[], Any]) -> str:
    """The method of a room that it comes from."""
    return work.__qualname__.split(".")[1]


def answered(
    model: AdaptiveModel, plan: Plan, inputs: dict[str, Tensor], device: Plain, bounds: Tensor | None = None
) -> Answer:
    route = model.route(plan)
    graphs = Graphs(model, route, segments(route), device)
    assert graphs.able
    packed = model.backend.packed(inputs)  # type: ignore[attr-defined]
    with torch.inference_mode():
        once, again = (graphs.answer(packed, bounds) for _ in range(2))  # in rooms that are new, and in used ones
        answering, runner = Answering(model, route), Runner(model, route)
        first = runner.ask(runner.segments[0], runner.embed(inputs, bounds), answering)  # as if it were a large batch
        if len(state := answering.part(first)):
            assert graphs.finish(1, state, answering)
    assert once is not None and again is not None
    same(once, again)
    same(once, answering.answer())
    return again


def same(wanted: Answer, found: Answer) -> None:
    assert torch.equal(wanted.layers, found.layers) and torch.equal(wanted.tokens, found.tokens)
    assert (wanted.logits - found.logits).abs().max() <= 1e-5


@pytest.fixture(scope="module", autouse=True)
def small_rooms() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rooms, "LEAST", 4)
        yield


@pytest.mark.parametrize("rule", RULES)
@settings(max_examples=12)
@given(
    lengths=st.lists(st.integers(1, 24), min_size=1, max_size=12),
    at_once=st.booleans(),
    scattered=st.booleans(),
    seed=st.integers(0, 99),
)
def test_answers_do_not_depend_on_rooms(
    rule: str | None, lengths: list[int], at_once: bool, scattered: bool, seed: int
) -> None:
    """All segments at once where layers take no time; one by one, with moves to smaller rooms, where they do."""
    model, inputs = adaptive("bert").use("packed"), batch(99, lengths, seed=seed)
    plan = Plan(exit=rule)
    bounds = None
    if scattered and rule is not None:
        bounds = torch.tensor([model.route(plan).bounds for _ in lengths])
        bounds[::2] += torch.rand(bounds[::2].shape, generator=torch.Generator().manual_seed(seed)) - 0.5
    found = answered(model, plan, inputs, Plain(0.0 if at_once else 1.0), bounds)
    same(model.executor.answer(model.route(plan), inputs, bounds), found)


def test_those_that_stay_move_to_a_smaller_room() -> None:
    model, inputs = adaptive("bert").use("packed"), batch(99, [9, 4, 30, 7, 25, 3])
    plan = Plan(exit="entropy:0.5")
    bounds = torch.full((6, len(model.route(plan).steps)), 9.0)
    bounds[:4, 0] = -9.0  # they leave after the first layer
    device = Plain(1.0)
    same(model.executor.answer(model.route(plan), inputs, bounds), answered(model, plan, inputs, device, bounds))
    assert "_close" in device.done


def test_the_host_does_not_wait_where_all_runs_at_once() -> None:
    model, inputs = adaptive("bert").use("packed"), batch(99, [9, 4])
    device = Plain(0.0)
    answered(model, Plan(exit="entropy:0.5"), inputs, device)
    assert "wait" not in device.done


TIMES = Seconds(layer=40e-6, least=38e-6, head=50e-6, wait=40e-6)


def test_a_single_text_is_asked_about_more_often_than_many() -> None:
    """Nearly everyone leaves early, but of many rows some do not."""
    pace = Pace(12)
    pace.learn(1000 * 0.7 ** np.arange(12))
    one, many = pace.stride(0, 1, TIMES), pace.stride(0, 64, TIMES)
    assert one < 12 and many == 12
    assert pace.stride(0, 512, Seconds(2e-3, 38e-6, 50e-6, 40e-6)) <= 2  # layers that take long are worth a question
    assert pace.stride(11, 64, TIMES) == 1


def test_pace_follows_those_that_leave() -> None:
    pace = Pace(12)
    late, early = np.zeros(12), np.zeros(12)
    late[-1] = early[0] = 1000
    pace.learn(late)
    before = pace.stride(0, 1, TIMES)
    for _ in range(20):
        pace.learn(early)
    assert pace.stride(0, 1, TIMES) == 1 < before


@given(st.integers(1, 65536), st.integers(1, 16384), st.integers(1, 512))
def test_a_room_holds_its_batch(tokens: int, rows: int, longest: int) -> None:
    size = Size.of(tokens, rows, longest)
    assert size.tokens >= tokens and size.rows >= rows and size.longest >= longest
    assert size.tokens <= max(4, tokens * 1.5)
    assert Size.of(*size) == size
