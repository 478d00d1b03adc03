"""Rows that are padded to a common length, to be computed together."""

from __future__ import annotations

import pytest
import torch

from paredown.runtime.slots import CALL, GRID, HIDDEN, TOGETHER, slots_of


@pytest.mark.parametrize("lengths", [[7, 3, 12, 12, 5, 9], [1, 2], [40, 0, 3, 41, 4, 200, 5, 39], list(range(1, 60))])
def test_every_token_has_a_slot_and_padding_is_hidden(lengths: list[int]) -> None:
    slots = slots_of(torch.tensor(lengths), len(lengths))
    assert slots is not None and len(slots.runs) < len(lengths)
    owner = torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths))
    assert torch.equal(slots.token[slots.slot], torch.arange(sum(lengths)))
    real = torch.zeros(len(slots.token), dtype=torch.bool)
    real[slots.slot] = True
    end = 0
    for (start, rows, length), added in slots.runs:
        assert start == end and rows <= TOGETHER
        end += rows * length
        assert owner[slots.token[start:end]].view(rows, length).unique(dim=1).shape == (rows, 1)
        hidden = torch.zeros(rows, 1, 1, length) if added is None else added
        assert torch.equal(hidden.flatten() == HIDDEN, ~real[start:end])
    assert end == len(slots.token)


def test_rows_are_joined_where_it_saves_time() -> None:
    assert slots_of(torch.tensor([12, 12, 12]), 1) is None
    long = int(CALL**0.5)
    assert slots_of(torch.tensor([long, 2 * long]), 2) is None
    slots = slots_of(torch.tensor([5, long, 6, long - 1]), 4)
    assert slots is not None
    assert [run for run, _ in slots.runs] == [(0, 2, 8), (16, 2, -(-long // GRID) * GRID)]
