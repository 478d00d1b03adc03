"""Batches of like length: every row once per epoch, a pure function of the seed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from paredown.training.batches import Batches

LENGTHS = st.lists(st.integers(1, 60), min_size=1, max_size=200)


@given(LENGTHS, st.integers(1, 20), st.integers(0, 99), st.integers(0, 3))
def test_every_row_once_per_epoch(lengths: list[int], size: int, seed: int, epoch: int) -> None:
    batches = Batches(lengths, size, (seed, 0))
    found = batches.epoch(epoch)
    assert sorted(row for batch in found for row in batch) == list(range(len(lengths)))
    assert len(found) == batches.per_epoch and sorted(map(len, found))[1:] == [size] * (len(found) - 1)
    assert found == Batches(lengths, size, (seed, 0)).epoch(epoch)


def test_epochs_stages_and_seeds_differ() -> None:
    lengths = list(range(1, 200))
    orders = [Batches(lengths, 4, seed).epoch(epoch) for seed in ((0, 0), (1, 0), (0, 1)) for epoch in range(2)]
    assert all(one != other for index, one in enumerate(orders) for other in orders[:index])


def test_steps_walk_through_the_epochs() -> None:
    batches = Batches([5] * 10, 3, (0, 0))
    assert (batches.per_epoch, batches.steps(2), batches.steps(0.3), batches.steps(0)) == (4, 8, 2, 0)
    assert Batches([5] * 33, 3, (0, 0)).steps(50 / 11) == 50  # rounding must not add a step
    assert [batches.steps(2, least) for least in (5, 30, 500)] == [8, 30, 20 * 4]  # no more than 20 epochs for a floor
    assert [batches.at(step) for step in range(8)] == batches.epoch(0) + batches.epoch(1)


def test_like_lengths_come_together() -> None:
    lengths = [1 + index % 64 for index in range(3200)]
    padding = sum(max(lengths[row] for row in batch) * len(batch) for batch in Batches(lengths, 32, (0, 0)).epoch(0))
    assert padding < 1.06 * sum(lengths)
