"""The int8 backend: the packed one on a CPU, with the linear maps of its layers in eight bits.

Norms, heads and certainties stay in 32 bits; so does attention, but for long rows where bfloat16 is faster. Inputs of a
linear map become bytes by a scale that calibration texts have fixed, or, without any, by one for each token; never by
one of the batch, as rows must not know each other. A few channels are much larger than all others: they are divided
before and their weights multiplied, so that one scale suits all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from transformers.activations import GELUActivation

from paredown.encoders.probing import evaluating
from paredown.engine import run_steps
from paredown.errors import BadSetting
from paredown.route import Step, straight
from paredown.runtime.blocks import MAPS, Block, Dense, FeedForward
from paredown.runtime.half_attention import prefers_half
from paredown.runtime.int8_choice import choose
from paredown.runtime.int8_kernels import Kernel, Range, Weights, by_token, by_token_above
from paredown.runtime.packed import Packed
from paredown.runtime.parts import Map
from paredown.state import State

if TYPE_CHECKING:
    from paredown.encoders.walk import Walk

LEAST: dict[type, float] = {GELUActivation: -0.17, nn.ReLU: 0.0}  # of what activations answer
OUTLIER = 3.0  # times the median of all channels: a channel that grows larger would take the others' precision


@dataclass(frozen=True)
class Inputs:
    """What calibration texts have shown of the inputs of one linear map."""

    low: float
    high: float
    usual: float  # the magnitude that most channels stay below
    outliers: Mapping[int, float] = field(default_factory=dict)  # the largest magnitude of each other channel

    @classmethod
    def between(cls, low: Tensor, high: Tensor) -> Inputs:
        """From the least and the greatest value of every channel."""
        largest = torch.maximum(-low, high)
        usual = OUTLIER * float(largest.median())
        outliers = {channel: float(largest[channel]) for channel in (largest > usual).nonzero().flatten().tolist()}
        return cls(float(low.min()), float(high.max()), usual, outliers)

    @property
    def range(self) -> Range:
        return Range(self.low, self.high)

    @property
    def usual_range(self) -> Range:
        """Of inputs whose outliers were divided."""
        return Range(max(self.low, -self.usual), min(self.high, self.usual))

    def divisors(self, width: int) -> Tensor:
        """[width] 1, and for outliers what takes them down to the usual magnitude."""
        found = torch.ones(width)
        for channel, largest in self.outliers.items():
            found[channel] = largest / self.usual
        return found

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"outliers": {str(channel): largest for channel, largest in self.outliers.items()}}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Inputs:
        outliers = {int(channel): float(largest) for channel, largest in data["outliers"].items()}
        return cls(float(data["low"]), float(data["high"]), float(data["usual"]), outliers)


@dataclass(frozen=True)
class Calibration:
    """The inputs of every linear map, by layer."""

    layers: Mapping[int, Mapping[str, Inputs]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            str(layer): {name: inputs.to_json() for name, inputs in maps.items()} for layer, maps in self.layers.items()
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Calibration:
        try:
            return cls(
                {int(layer): {name: Inputs.from_json(maps[name]) for name in MAPS} for layer, maps in data.items()}
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise BadSetting(f"a calibration describes the inputs of {', '.join(MAPS)} ({error!r})") from None


class Int8(Packed):
    """Where a layer was not calibrated, every token has its own scale: as near to 32 bits, and slower. The fastest
    kernel of this machine is taken, unless one is named."""

    name = "in int8"

    def __init__(self, walk: Walk, calibration: Calibration | None = None, kernel: str | None = None):
        self.calibration = calibration or Calibration()
        self.kernel: Kernel | None = None  # layers stay in 32 bits while they are compared with the encoder's own
        super().__init__(walk)
        self.kernel = choose(*self._sizes(), kernel)
        self._forget()

    def _objection(self) -> str | None:
        base = self.walk.base
        if base.device.type != "cpu":
            return f"it needs a CPU, and the model is on {base.device.type}"
        if base.dtype != torch.float32:
            return f"it needs weights in float32, and these are {str(base.dtype).removeprefix('torch.')}"
        return super()._objection()

    def _sizes(self) -> tuple[int, int]:
        """The width of a layer, and that of its feed-forward."""
        width, inner = self._block(0).feed_forward.down.weight.shape
        return width, inner

    def calibrate(self, batches: Iterable[dict[str, Tensor]], steps: Iterable[Step] = ()) -> Calibration:
        """Notes what linear maps meet in 32 bits on the way of `steps`, by default all of the encoder's layers, and
        uses it from now on."""
        watching = _Watching(self.walk)
        way = tuple(steps) or straight(range(self.walk.num_base_layers))
        with evaluating(self.walk.stock), torch.no_grad():
            for batch in batches:
                run_steps(watching, way, watching.embed(batch))
        if not watching.seen:
            raise BadSetting("calibration needs texts, and there were none")
        seen = {
            layer: {name: Inputs.between(*extremes) for name, extremes in maps.items()}
            for layer, maps in watching.seen.items()
        }
        self.calibration = Calibration({**self.calibration.layers, **seen})
        self._forget()
        return self.calibration

    @torch.no_grad()
    def run(self, state: Any, step: Step) -> State:
        return super().run(state, step)

    def _copies_all(self, block: Block) -> bool:
        return True

    def _fitted(self, block: Block, layer: int) -> Block:
        if self.kernel is None:
            return super()._fitted(block, layer)
        return _quantized(block, self.kernel, self.calibration.layers.get(layer))


def _quantized(block: Block, kernel: Kernel, calibration: Mapping[str, Inputs] | None) -> Block:
    linears, fused = block.maps, None
    if calibration is None:
        maps = {name: by_token(kernel, Weights.of(one.weight, one.bias)) for name, one in linears.items()}
        if (low := _least(block.feed_forward)) is not None:
            maps["down"] = by_token_above(kernel, linears["down"].weight, linears["down"].bias, low)
    else:
        maps = {name: _static(kernel, one, calibration[name]) for name, one in linears.items()}
        if isinstance(block.feed_forward, FeedForward):
            fused = _fused(kernel, block.feed_forward, calibration["up"], calibration["down"])
    half = prefers_half(torch.get_num_threads())
    return replace(block.with_maps(maps), half=half).in_parts(kernel.rounds, fused)


def _least(feed_forward: Any) -> float | None:
    """What the inputs of the second product are never below; None where they can be."""
    if not isinstance(feed_forward, FeedForward):
        return None
    return LEAST.get(type(feed_forward.activation))


def _static(kernel: Kernel, dense: Dense, inputs: Inputs) -> Map:
    divisors = inputs.divisors(dense.weight.shape[1])
    function = kernel.linear(Weights.of(dense.weight * divisors, dense.bias), inputs.usual_range)
    return _divided(function, divisors) if inputs.outliers else function


def _fused(kernel: Kernel, feed_forward: FeedForward, inputs: Inputs, between: Inputs) -> Map | None:
    up, down = feed_forward.up, feed_forward.down
    divisors = inputs.divisors(up.weight.shape[1])
    weights = Weights.of(up.weight * divisors, up.bias), feed_forward.activation, Weights.of(down.weight, down.bias)
    function = kernel.fused(*weights, inputs.usual_range, between.range)
    return _divided(function, divisors) if function is not None and inputs.outliers else function


def _divided(function: Map, divisors: Tensor) -> Map:
    factors = 1 / divisors
    return lambda hidden: function(hidden * factors)


class _Watching(Packed):
    """Notes the least and the greatest input of every channel."""

    def __init__(self, walk: Walk):
        self.seen: dict[int, dict[str, tuple[Tensor, Tensor]]] = {}
        super().__init__(walk)
        self.seen.clear()  # of the sample that it was compared on

    def _fitted(self, block: Block, layer: int) -> Block:
        return block.with_maps({name: self._noted(dense, layer, name) for name, dense in block.maps.items()})

    def _noted(self, dense: Dense, layer: int, name: str) -> Map:
        def apply(hidden: Tensor) -> Tensor:
            maps = self.seen.setdefault(layer, {})
            low, high = hidden.amin(0), hidden.amax(0)
            known = maps.get(name, (low, high))
            maps[name] = torch.minimum(low, known[0]), torch.maximum(high, known[1])
            return dense(hidden)

        return apply
