"""What the inputs of every linear map lie in, as some texts show it: the scales of eight bits are fixed by that."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cache, cached_property
from typing import Any

import torch
from torch import Tensor

from paredown.errors import BadSetting

MAPS = ("qkv", "output", "up", "down")  # the linear maps of a layer
OUTLIER = 2.0  # times the median of all channels: a channel that grows larger would take the others' precision
SPARE = 64  # terms at most, that the largest inner values of a feed-forward are a sum of
# Terms beyond the usual magnitude are so many times as steep as their activation: they bend more sharply where one ends
# and the next begins, and reach half as far.
STEEP = 2


@dataclass(frozen=True)
class Range:
    """What the inputs of a linear map lie in; those beyond are clipped."""

    low: float
    high: float

    @cached_property
    def scale(self) -> float:
        return max(max(self.high, 0.0) - min(self.low, 0.0), 1e-6) / 255

    @cached_property
    def zero(self) -> int:
        """The byte that stands for 0."""
        return round(-min(self.low, 0.0) / self.scale)

    def bytes_of(self, values: Tensor) -> Tensor:
        if not _rounds_to_bytes():
            shift = torch.tensor(self.zero + 0.5)  # a conversion to bytes rounds down
            return torch.add(shift, values, alpha=1 / self.scale).clamp_(0, 255).to(torch.uint8)
        rounded = torch.quantize_per_tensor(values.contiguous(), self.scale, self.zero, torch.quint8)
        found = torch.empty(0, dtype=torch.uint8)  # of the same memory: `int_repr` would copy
        return found.set_(rounded.untyped_storage(), 0, rounded.shape, rounded.stride())


@cache
def _rounds_to_bytes() -> bool:
    """Whether torch still does it at one go, four times as fast as step by step; it warns once that it will not for
    ever."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        try:
            torch.quantize_per_tensor(torch.zeros(1), 1.0, 0, torch.quint8)
        except (AttributeError, RuntimeError):
            return False
    return True


def spare_terms(channels: int) -> int:
    return min(SPARE, channels // 8)


@dataclass(frozen=True)
class Inputs:
    """What some texts have shown of the inputs of one linear map."""

    low: float
    high: float
    usual: float  # the magnitude that most channels stay below
    outliers: Mapping[int, float] = field(default_factory=dict)  # the largest magnitude of each other channel

    @classmethod
    def between(cls, low: Tensor, high: Tensor) -> Inputs:
        """From the least and the greatest value of every channel."""
        return cls._at(low, high, OUTLIER * float(torch.maximum(-low, high).median()))

    @classmethod
    def inner(cls, low: Tensor, high: Tensor) -> Inputs:
        """The same of the inner values of a feed-forward: as many are outliers as the spare terms suffice for."""
        usual = float(torch.maximum(-low, high).median())
        while len((found := cls._at(low, high, usual)).terms()) > spare_terms(len(low)):
            usual *= 1.05
        return found

    @classmethod
    def _at(cls, low: Tensor, high: Tensor, usual: float) -> Inputs:
        largest, usual = torch.maximum(-low, high), max(usual, 1e-6)
        outliers = {channel: float(largest[channel]) for channel in (largest > usual).nonzero().flatten().tolist()}
        return cls(float(low.min()), float(high.max()), usual, outliers)

    @property
    def usual_range(self) -> Range:
        """Of inputs whose outliers were divided."""
        return Range(max(self.low, -self.usual), min(self.high, self.usual))

    def divisors(self, width: int) -> Tensor:
        """[width] 1, and for outliers what takes them down to the usual magnitude."""
        if any(channel >= width for channel in self.outliers):
            raise BadSetting(f"these ranges are of another model: they name more than {width} channels")
        found = torch.ones(width)
        for channel, largest in self.outliers.items():
            found[channel] = largest / self.usual
        return found

    def terms(self) -> list[tuple[int, int]]:
        """(channel, number) of what the values of outliers beyond the usual magnitude are the sum of."""
        return [
            (channel, number)
            for channel, largest in self.outliers.items()
            for number in range(math.ceil((largest / self.usual - 1) * STEEP))
        ]

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"outliers": {str(channel): largest for channel, largest in self.outliers.items()}}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Inputs:
        outliers = {int(channel): float(largest) for channel, largest in data["outliers"].items()}
        found = cls(float(data["low"]), float(data["high"]), float(data["usual"]), outliers)
        if not (found.low <= found.high and 0 < found.usual < math.inf and all(channel >= 0 for channel in outliers)):
            raise ValueError(f"impossible: {data!r:.200}")
        return found


@dataclass(frozen=True)
class Ranges:
    """The inputs of every linear map, by layer."""

    layers: Mapping[int, Mapping[str, Inputs]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            str(layer): {name: inputs.to_json() for name, inputs in maps.items()} for layer, maps in self.layers.items()
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Ranges:
        try:
            return cls(
                {int(layer): {name: Inputs.from_json(maps[name]) for name in MAPS} for layer, maps in data.items()}
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise BadSetting(f"ranges describe the inputs of {', '.join(MAPS)} ({error!r})") from None
