"""Layers run one after the other, as many as a test wants."""

from __future__ import annotations

from collections.abc import Iterable

from paredown.engine import Backend, run_steps
from paredown.route import straight
from paredown.state import State


def through(backend: Backend, state: State, layers: Iterable[int], watch: bool = False) -> State:
    return run_steps(backend, straight(layers, watch), state)
