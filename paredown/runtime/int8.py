"""The int8 backend: the packed one on a CPU, with the linear maps of its layers in eight bits.

Norms, heads and certainties stay in 32 bits; so does attention, but where bfloat16 is faster. Inputs of a linear map
become bytes by a scale that training texts have fixed, or, without any, by one for each token; never by one of the
batch, as rows must not know each other. A few channels are much larger than all others: they are divided before and
their weights multiplied, so that one scale suits all, or, where a GELU lies between, become a sum of several columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers.activations import GELUActivation

from paredown.errors import BadSetting
from paredown.ranges import STEEP, Inputs, Ranges, spare_terms
from paredown.route import Step
from paredown.runtime.blocks import Block, Dense, FeedForward, PostNorm
from paredown.runtime.half_attention import faster_in_half
from paredown.runtime.int8_choice import choose
from paredown.runtime.int8_kernels import Kernel, Weights, by_token, by_token_above
from paredown.runtime.packed import Packed
from paredown.runtime.parts import Map
from paredown.state import State

if TYPE_CHECKING:
    from paredown.encoders.walk import Walk

LEAST: dict[type, float] = {GELUActivation: -0.17, nn.ReLU: 0.0}  # of what activations answer


class Int8(Packed):
    """Where no ranges are known, every token has its own scale, which is slower. The fastest kernel of this machine is
    taken, unless one is named."""

    name = "in int8"

    def __init__(self, walk: Walk, ranges: Ranges | None = None, kernel: str | None = None):
        self.ranges = ranges or Ranges()
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

    @torch.no_grad()
    def run(self, state: Any, step: Step) -> State:
        return super().run(state, step)

    def _copies_all(self, block: Block) -> bool:
        return True

    def _fitted(self, block: Block, layer: int) -> Block:
        if self.kernel is None:
            return super()._fitted(block, layer)
        return _quantized(block, self.kernel, self.ranges.layers.get(layer))


def _quantized(block: Block, kernel: Kernel, inputs: Mapping[str, Inputs] | None) -> Block:
    block = replace(block, half=faster_in_half())
    if inputs is None:
        return block.with_maps(_by_token(block, kernel)).in_parts(False)
    fused = _fused(block, kernel, inputs)
    maps: dict[str, Any] = {**block.maps} | _evened(block, inputs["output"])
    in_half = block.half is not None and isinstance(block, PostNorm) and block.distances is None
    for name in ("qkv", "up", "down") if fused is None else ("qkv",):
        maps[name] = _static(kernel, maps[name], inputs[name], in_half and name == "qkv")
    maps["output"] = kernel.linear(Weights.of(maps["output"].weight, maps["output"].bias), inputs["output"].usual_range)
    return block.with_maps(maps).in_parts(False, fused)


def _by_token(block: Block, kernel: Kernel) -> dict[str, Map]:
    linears = block.maps
    maps = {name: by_token(kernel, Weights.of(one.weight, one.bias)) for name, one in linears.items()}
    if (low := _least(block.feed_forward)) is not None:
        maps["down"] = by_token_above(kernel, linears["down"].weight, linears["down"].bias, low)
    return maps


def _least(feed_forward: Any) -> float | None:
    """What the inputs of the second product are never below; None where they can be."""
    if not isinstance(feed_forward, FeedForward):
        return None
    return LEAST.get(type(feed_forward.activation))


def _evened(block: Block, found: Inputs) -> dict[str, Dense]:
    """What attention finds is a mean of values: those that are larger than most are divided as they are made, and the
    next weights multiplied."""
    qkv, output = block.qkv, block.output
    divisors = found.divisors(output.weight.shape[1])
    each = torch.cat((torch.ones(len(qkv.weight) - len(divisors)), divisors))
    bias = None if qkv.bias is None else qkv.bias / each
    return {
        "qkv": Dense(qkv.weight / each.unsqueeze(1), bias),
        "output": Dense(output.weight * divisors, output.bias),
    }


def _static(kernel: Kernel, dense: Dense, inputs: Inputs, half: bool = False) -> Map:
    divisors = inputs.divisors(dense.weight.shape[1])
    function = kernel.linear(Weights.of(dense.weight * divisors, dense.bias), inputs.usual_range, half)
    return _divided(function, divisors) if inputs.outliers else function


def _fused(block: Block, kernel: Kernel, inputs: Mapping[str, Inputs]) -> Map | None:
    """The feed-forward at one go, where the kernel can."""
    if not isinstance(block.feed_forward, FeedForward) or block.feed_forward.up.bias is None:
        return None
    divisors = inputs["up"].divisors(block.feed_forward.up.weight.shape[1])
    up, down = _in_terms(block.feed_forward, inputs["down"])
    function = kernel.fused(
        Weights.of(up.weight * divisors, up.bias),
        block.feed_forward.activation,
        Weights.of(down.weight, down.bias),
        inputs["up"].usual_range,
        inputs["down"].usual_range,
    )
    return _divided(function, divisors) if function is not None and inputs["up"].outliers else function


def _in_terms(feed_forward: FeedForward, inner: Inputs) -> tuple[Dense, Dense]:
    """Inner values that grow larger than most, as a sum of several that do not: the value up to the usual magnitude,
    where bytes end, and what goes beyond in terms of their own. All layers get as many, to share kernels."""
    up, down, usual = feed_forward.up, feed_forward.down, inner.usual
    terms = inner.terms()
    channel = torch.tensor([one for one, _ in terms], dtype=torch.long)
    begin = torch.tensor([float(term) for _, term in terms])
    spare = spare_terms(len(up.weight)) - len(terms)
    if spare < 0 or any(one >= len(up.weight) for one, _ in terms):
        raise BadSetting(f"these ranges are of another model: {len(terms)} terms for {len(up.weight)} channels")
    assert up.bias is not None
    more = up.weight[channel] * STEEP
    shifted = (up.bias[channel] - usual) * STEEP - usual * begin
    return (
        Dense(torch.cat((up.weight, F.pad(more, (0, 0, 0, spare)))), torch.cat((up.bias, F.pad(shifted, (0, spare))))),
        Dense(torch.cat((down.weight, F.pad(down.weight[:, channel] / STEEP, (0, spare))), 1), down.bias),
    )


def _divided(function: Map, divisors: Tensor) -> Map:
    factors = 1 / divisors
    return lambda hidden: function(hidden * factors)
