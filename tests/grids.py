"""Combinations that are too many to run every time."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pytest


def combinations(*axes: Sequence[Any], times: int = 1) -> list[Any]:
    """All of them for `pytest.mark.parametrize`, those marked `thorough` that are not needed to see every value of the
    longest axis so many times and every other value at least as often."""
    longest = max(map(len, axes))
    usual = {
        tuple((index + turn * number) % len(axis) for number, axis in enumerate(axes))
        for turn in range(times)
        for index in range(longest)
    }
    return [
        pytest.param(
            *(axis[index] for axis, index in zip(axes, indexes, strict=True)),
            id="-".join(str(axis[index]) for axis, index in zip(axes, indexes, strict=True)),
            marks=() if indexes in usual else pytest.mark.thorough,
        )
        for indexes in itertools.product(*(range(len(axis)) for axis in axes))
    ]


def halved(cases: Sequence[Any]) -> list[Any]:
    """The cases, every second of them marked `thorough`."""
    return [pytest.param(case, marks=pytest.mark.thorough if index % 2 else ()) for index, case in enumerate(cases)]


def thorough(cases: Sequence[Any]) -> list[Any]:
    """The cases, all of them marked."""
    return [pytest.param(case, marks=pytest.mark.thorough) for case in cases]
