"""How much memory is held at most."""

from __future__ import annotations

import pytest
import torch

from paredown.system.memory import HeldMemory

LARGE = 30_000_000  # numbers of four bytes


def test_the_peak_counts_and_what_came_before_it_does_not() -> None:
    held = HeldMemory(torch.device("cpu"))
    if held.peak is None:
        pytest.skip("this system does not tell")
    before = torch.ones(LARGE)
    del before
    held.watch()
    kept = torch.ones(LARGE // 10)
    assert 0 <= held.peak < 3 * LARGE
    passing = torch.ones(LARGE)
    del passing
    assert held.peak > 3.5 * LARGE and len(kept)
