"""The fp8 backend: the packed one on a GPU, with the linear maps of its layers in floats of eight bits.

Weights have a scale for each channel, inputs one for each token, so rows do not know each other. Norms, attention,
heads and certainties stay as they are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from paredown.runtime.attention import TRITON
from paredown.runtime.blocks import Block, Dense, FeedForward
from paredown.runtime.packed import Packed

if TYPE_CHECKING:
    from paredown.encoders.walk import Walk

EIGHT = torch.float8_e4m3fn
CAPABLE = (8, 9)  # the first GPUs that multiply such floats
LEAST = 1e-12  # of a scale, so that nothing is divided by zero
MULTIPLE = 16  # widths that products take


class Fp8(Packed):
    name = "in fp8"

    def __init__(self, walk: Walk):
        self.checked = False  # layers stay in 16 bits while they are compared with the encoder's own
        super().__init__(walk)
        self.checked = True
        self._forget()

    def _objection(self) -> str | None:
        weight = next(self.walk.base.parameters())
        if weight.dtype != torch.bfloat16:
            return f"it needs weights in bfloat16, and these are {str(weight.dtype).removeprefix('torch.')}"
        if weight.is_cuda and torch.cuda.get_device_capability(weight.device) < CAPABLE:
            return "it needs a GPU that multiplies floats of eight bits"
        if (reason := super()._objection()) is not None:
            return reason
        if any(size % MULTIPLE for one in self._block(0).maps.values() for size in one.weight.shape):
            return f"it needs widths that are multiples of {MULTIPLE}"
        return None

    def _copies_all(self, block: Block) -> bool:
        return self.checked

    def _fitted(self, block: Block, layer: int) -> Block:
        return _in_eight_bits(block) if self.checked else super()._fitted(block, layer)


def _in_eight_bits(block: Block) -> Block:
    maps = {name: Eight.of(dense) for name, dense in block.maps.items()}
    feed_forward = block.feed_forward
    block = block.with_maps(maps)
    if isinstance(feed_forward, FeedForward) and feed_forward.gelu:
        return replace(block, feed_forward=EightWithGelu(maps["up"], maps["down"]))  # type: ignore[arg-type]
    return block


@dataclass(frozen=True, eq=False)
class Eight:
    """A linear map."""

    weight: Tensor  # [outputs, inputs], in eight bits
    scales: Tensor  # [1, outputs]
    bias: Tensor | None

    @classmethod
    def of(cls, dense: Dense) -> Eight:
        values, scales = scaled(dense.weight.detach())
        return cls(values, scales.t().contiguous(), dense.bias)

    def __call__(self, hidden: Tensor, gelu: bool = False) -> Tensor:
        """`gelu`: of the input, before it is rounded."""
        values, scales = by_token(hidden, gelu)
        return torch._scaled_mm(
            values,
            self.weight.t(),
            scale_a=scales,
            scale_b=self.scales,
            bias=self.bias,
            out_dtype=hidden.dtype,
            use_fast_accum=hidden.is_cuda,
        )


@dataclass(frozen=True, eq=False)
class EightWithGelu:
    """A feed-forward that reads its inner values once, for the GELU and to round them."""

    up: Eight
    down: Eight

    def __call__(self, hidden: Tensor) -> Tensor:
        return self.down(self.up(hidden), gelu=True)


def by_token(hidden: Tensor, gelu: bool) -> tuple[Tensor, Tensor]:
    """Inputs in eight bits, and their scales [tokens, 1]."""
    if hidden.is_cuda and TRITON:
        from paredown.runtime.kernels import in_eight_bits

        return in_eight_bits(hidden, EIGHT, LEAST, gelu)
    return scaled(F.gelu(hidden) if gelu else hidden)


def scaled(values: Tensor) -> tuple[Tensor, Tensor]:
    """Rows of values in eight bits, and the scale of each, [rows, 1]: the largest becomes the largest such float."""
    values = values.float()
    scales = values.abs().amax(1, keepdim=True).clamp_(min=LEAST) / torch.finfo(EIGHT).max
    return (values / scales).to(EIGHT), scales
