"""Times that belong together: ways take turns, so that a machine that slows down slows all of them down."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from paredown.answers import Encoded
from paredown.plan import Plan
from paredown.runtime import timing
from paredown.runtime.timing import Clock, Times, answering, milliseconds, spread, take_turns, time_plans
from tests.families import adaptive

ROWS = [Encoded({"input_ids": [5, 6, 7] + [8] * length}) for length in range(12)]


class Machine:
    """A clock that ways advance; everything takes longer the later it is."""

    def __init__(self) -> None:
        self.now, self.slower = 0.0, 1.0

    def way(self, seconds: float) -> Callable[[Any], None]:
        def run(batch: Any) -> None:
            self.now += seconds * self.slower * len(batch)
            self.slower *= 1.05

        return run

    def __call__(self) -> float:
        return self.now


def test_a_machine_that_slows_down_changes_no_ratio() -> None:
    machine = Machine()
    ways = {"slow": machine.way(3.0), "fast": machine.way(1.0)}
    found = take_turns(ways, [[ROWS[:2], ROWS[2:3]]] * 9, machine)  # type: ignore[arg-type]
    assert found["fast"].times_faster(found["slow"]) == pytest.approx(3, rel=0.06)
    assert found["slow"].times_faster(found["slow"]) == 1 and found["fast"].rows == (3,) * 9


def test_the_order_is_drawn_for_each_batch_and_the_same_again() -> None:
    def order() -> list[str]:
        seen: list[str] = []
        ways = {name: lambda _, name=name: seen.append(name) for name in "abc"}
        take_turns(ways, [[ROWS[:1]] * 4] * 5, Clock(torch.device("cpu"), cpu_time=True))
        return seen

    turns = [tuple(order()[at : at + 3]) for at in range(0, 60, 3)]
    assert all(sorted(turn) == ["a", "b", "c"] for turn in turns) and len(set(turns)) > 3 and order() == order()


def test_a_round_is_the_sum_of_its_batches() -> None:
    """Rows that leave early and rows that stay are of one plan: the mean counts, not whichever is more common."""
    times = Times(((1.0, 1.0, 7.0), (2.0, 2.0, 14.0)), (3, 3))
    assert times.rounds == [9.0, 18.0] and times.seconds_per_row == 4.5
    assert (times.percentile(50), times.percentile(99)) == (2.0, 14.0)
    assert times.times_faster(Times(((9.0, 9.0), (9.0, 9.0)), (3, 3))) == 1.5


def test_plans_run_through_the_executor(tokenizer: Any, monkeypatch: Any) -> None:
    model = adaptive("bert", tokenizer=tokenizer, vocab_size=len(tokenizer)).use("packed")
    plans = [Plan(), Plan(exit="entropy:0.9")]
    calls: list[Plan] = []

    def counted(model: Any, plan: Plan) -> Any:
        answer = answering(model, plan)
        return lambda batch: (calls.append(plan), answer(batch))

    monkeypatch.setattr(timing, "answering", counted)
    found = time_plans(model, ROWS, plans, 5, rounds=2)
    assert list(found) == plans and all(times.rows == (12, 12) for times in found.values())
    warm, turns = calls[:6], calls[6:]
    assert warm == [plans[0]] * 3 + [plans[1]] * 3 and len(turns) == 12
    assert all(set(turns[at : at + 2]) == set(plans) for at in range(0, 12, 2))
    assert milliseconds(model, ROWS, Plan(), 4) > 0


def test_answers_are_those_of_the_model_in_its_order(tokenizer: Any) -> None:
    model = adaptive("bert", tokenizer=tokenizer, vocab_size=len(tokenizer)).use("packed")
    answer = answering(model, plan := Plan(exit="entropy:0.5"))
    model.use("reference")  # the way keeps what ran the model when it was made
    rows = ROWS[::-1]
    found = answer(rows)
    expected = torch.cat([model.answer(model.kind.collate([row], 0), plan).logits for row in rows])
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)


def test_some_rows_stand_for_all() -> None:
    assert [len(row) for row in spread(ROWS, 3)] == [5, 9, 13] and spread(ROWS, 99) == ROWS
