"""What every exit rule shares: a knob that sets the bounds, the head's own answer, no memory."""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from paredown.answers import Kind
from paredown.errors import BadPlan
from paredown.registry import Knob
from paredown.state import Evidence, Memory

PerLayer = float | tuple[float, ...]  # one value, or one for each count of layers run: the first after one layer
ROUNDED = 1e-6  # from where on a probability is as good as 0 or 1


class Rule(Knob, ABC):
    """Base of the exit rules: a frozen dataclass of plain numbers whose `knob` trades caution for speed.

    A row leaves where its certainty is strictly above the bound.
    """

    per_layer = True

    @property
    def certainty_key(self) -> Hashable:
        """The type and all settings but the knob: rules with the same key have the same certainty."""
        fields = dataclasses.fields(self)  # type: ignore[arg-type]
        return type(self), *(getattr(self, field.name) for field in fields if field.name != self.knob)

    @abstractmethod
    def certainty(self, evidence: Evidence, memory: Memory) -> tuple[Tensor, Memory]:
        """[rows] how sure each row is in 32 bits, larger is surer, and the memory for the next head."""

    def bounds(self, steps: Sequence[int]) -> tuple[float, ...]:
        """What the certainty must exceed at each of these steps."""
        value = getattr(self, self.knob)
        if isinstance(value, tuple):  # the first is for one layer run
            return tuple(self._bound(value[step - 1]) for step in steps)
        return (self._bound(value),) * len(steps)

    def _bound(self, value: float) -> float:
        """The bound that a value of the knob means; as it stands, for a knob on the scale of the certainty."""
        return value

    def stretched(self, certainty: Tensor) -> Tensor:
        """The certainty on a scale along which errors get rarer evenly, as along log-odds, and which grows with it."""
        return certainty

    def at_bounds(self, bounds: Mapping[int, float]) -> Any:
        """The same rule with a bound for each of these steps: nobody leaves at infinity, and at other steps."""
        never, at_once = (getattr(self.at_speed(speed), self.knob) for speed in (0.0, 1.0))
        low, high = self.limits  # which rounding may have led a certainty beyond
        values = [never] * max(bounds)
        for step, bound in bounds.items():
            if bound < math.inf:
                value = at_once if bound == -math.inf else min(max(self._value_of(bound), low), high)
                values[step - 1] = float(f"{value:.6g}") if isinstance(value, float) else value  # short to read
        return dataclasses.replace(self, **{self.knob: tuple(values)})  # type: ignore[type-var]

    def _value_of(self, bound: float) -> float:
        """The value of the knob that means a bound: what `_bound` is of it."""
        return bound

    def answer(self, evidence: Evidence, memory: Memory) -> Tensor:
        return evidence.logits

    def check(self, kind: Kind, asked: tuple[int, ...], has_error_probability: bool) -> None:
        value = getattr(self, self.knob, None)
        if isinstance(value, tuple) and len(value) < max(asked):
            raise BadPlan(
                f"{self.name}.{self.knob} has {len(value)} values, but it is asked after up to {max(asked)} layers; "
                "give one value, or one for each count of layers run"
            )


class ProbabilityRule(Rule):
    """Base of the rules that read probabilities, so that they refuse answers that have none."""

    def check(self, kind: Kind, asked: tuple[int, ...], has_error_probability: bool) -> None:
        super().check(kind, asked, has_error_probability)
        _check_probabilities(kind)


@cache
def _check_probabilities(kind: Kind) -> None:
    kind.log_probs(torch.zeros(1, 1, 2))  # regression raises, and names what to use instead


class UncertaintyRule(Rule):
    """Base of the rules that leave where a value is below the threshold: the certainty is minus the value."""

    def stretched(self, certainty: Tensor) -> Tensor:
        return -certainty.neg().clamp(min=ROUNDED).log()

    def _bound(self, value: float) -> float:
        return -value

    def _value_of(self, bound: float) -> float:
        return -bound


def count_at(speed: float) -> int:
    """A count for a speed: 1 at speed 1, 2 at a half, 4 at a quarter; at 0 a million, which no encoder reaches."""
    return math.ceil(1 / max(speed, 1e-6))
