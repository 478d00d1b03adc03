"""How a linear map is computed in eight bits on a CPU: by FBGEMM, by oneDNN or by ONNX Runtime.

All kernels compute the same: inputs become bytes by a fixed scale, products are summed exactly, the sum is scaled back.
Which is the fastest depends on the CPU.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers.activations import GELUActivation

from paredown.ranges import Range
from paredown.runtime.parts import Map
from paredown.system.products import rounded


def narrow() -> bool:
    """Whether the CPU adds two products in 16 bits, which overflow unless inputs or weights have 7 bits only."""
    return not torch.cpu.get_capabilities().get("avx512_vnni", False)


@dataclass(frozen=True, eq=False)
class Weights:
    """A linear map in eight bits: symmetric, a scale for every output."""

    values: Tensor  # int8 [outputs, inputs]
    scale: Tensor  # [outputs]
    bias: Tensor | None

    @classmethod
    def of(cls, weight: Tensor, bias: Tensor | None, whole: bool = False) -> Weights:
        """`whole`: with 8 bits, whatever the CPU; then inputs must do with 7 where it is narrow."""
        weight, steps = weight.detach(), 127 if whole or not narrow() else 63
        scale = weight.abs().amax(1).clamp(min=torch.finfo(weight.dtype).tiny) / steps
        values = (weight / scale.unsqueeze(1)).round_().clamp_(-steps, steps).to(torch.int8)
        return cls(values, scale, None if bias is None else bias.detach().clone())


class Kernel:
    """How linear maps are computed."""

    name: ClassVar[str]

    def objection(self) -> str | None:
        """Why it cannot be used here; None where it can."""
        raise NotImplementedError

    def linear(self, weights: Weights, inputs: Range, half: bool = False) -> Map:
        """`half`: for who reads answers in bfloat16; they may have 32 bits nevertheless."""
        raise NotImplementedError

    def fused(self, up: Weights, activation: Map, down: Weights, inputs: Range, between: Range) -> Map | None:
        """A feed-forward whose inner values are never more than bytes; None where it is best computed in two."""
        return None


class Fbgemm(Kernel):
    name = "fbgemm"

    def objection(self) -> str | None:
        known = "fbgemm" in torch.backends.quantized.supported_engines
        named = hasattr(torch.ops.quantized, "linear_with_input_q_dq_qweight_dq_output_fp32")
        return None if known and named else "this torch comes without FBGEMM"

    def linear(self, weights: Weights, inputs: Range, half: bool = False) -> Map:
        compute = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32
        packed, scale, zero = self._packed(weights), inputs.scale, inputs.zero
        return lambda hidden: compute(hidden, scale, zero, packed)

    def _packed(self, weights: Weights) -> Any:
        engine = torch.backends.quantized.engine
        zeros = torch.zeros(len(weights.scale), dtype=torch.long)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "torch.quantize_per_tensor", UserWarning)  # there is no other way in
            quantized = torch._make_per_channel_quantized_tensor(weights.values, weights.scale.double(), zeros, 0)
        try:
            torch.backends.quantized.engine = "fbgemm"
            return torch.ops.quantized.linear_prepack(quantized, weights.bias)
        finally:
            torch.backends.quantized.engine = engine


class OneDnn(Kernel):
    """Makes a kernel for every new number of tokens and forgets those of long ago, so numbers are rounded up."""

    name = "onednn"

    def objection(self) -> str | None:
        known = torch.backends.mkldnn.is_available() and hasattr(torch.ops.onednn, "qlinear_pointwise")
        return None if known else "this torch comes without oneDNN"

    def linear(self, weights: Weights, inputs: Range, half: bool = False) -> Map:
        compute = self._pointwise(weights, inputs)
        found: tuple[Any, ...] = (1.0, 0, torch.bfloat16 if half else torch.float32, "none", [], "")
        return lambda hidden: compute(_some_more(inputs.bytes_of(hidden)), *found)[: len(hidden)]

    def fused(self, up: Weights, activation: Map, down: Weights, inputs: Range, between: Range) -> Map | None:
        if not isinstance(activation, GELUActivation):
            return None
        first, second = self._pointwise(up, inputs), self._pointwise(down, between)
        to_bytes: tuple[Any, ...] = (between.scale, between.zero, torch.uint8, "gelu", [], "none")
        to_floats: tuple[Any, ...] = (1.0, 0, torch.float32, "none", [], "")
        return lambda hidden: second(first(_some_more(inputs.bytes_of(hidden)), *to_bytes), *to_floats)[: len(hidden)]

    def _pointwise(self, weights: Weights, inputs: Range) -> Callable[..., Tensor]:
        packed = torch.ops.onednn.qlinear_prepack(weights.values, None)
        zeros = torch.zeros(len(weights.scale), dtype=torch.long)
        of_weights = (packed, weights.scale, zeros, weights.bias)
        compute = torch.ops.onednn.qlinear_pointwise
        return lambda values, *after: compute(values, inputs.scale, inputs.zero, *of_weights, *after)


def _some_more(values: Tensor) -> Tensor:
    missing = rounded(len(values)) - len(values)
    return F.pad(values, (0, 0, 0, missing)) if missing else values


class OnnxRuntime(Kernel):
    name = "onnxruntime"

    def objection(self) -> str | None:
        missing = [name for name in ("onnx", "onnxruntime") if find_spec(name) is None]
        return f"{' and '.join(missing)} is not installed" if missing else None

    def linear(self, weights: Weights, inputs: Range, half: bool = False) -> Map:
        session = _session(weights, inputs)
        return lambda hidden: torch.from_numpy(session.run(None, {"hidden": hidden.numpy()})[0])


def _session(weights: Weights, inputs: Range) -> Any:
    """An ONNX graph of one linear map, ready to run."""
    import numpy as np
    import onnxruntime  # type: ignore[import-not-found, unused-ignore]
    from onnx import TensorProto, helper, numpy_helper  # type: ignore[import-not-found, unused-ignore]

    outputs, width = weights.values.shape
    values = {
        "scale": np.float32(inputs.scale),
        "zero": np.uint8(inputs.zero),
        "weight": np.ascontiguousarray(weights.values.t().numpy()),
        "weight_scale": weights.scale.numpy(),
    }
    if weights.bias is not None:
        values["bias"] = weights.bias.numpy()
    arguments = ["bytes", "weight", "scale", "weight_scale", "zero", "", *(["bias"] if "bias" in values else [])]
    nodes = [
        helper.make_node("QuantizeLinear", ["hidden", "scale", "zero"], ["bytes"]),
        helper.make_node("MatMulIntegerToFloat", arguments, ["found"], domain="com.microsoft"),
    ]
    graph = helper.make_graph(
        nodes,
        "linear",
        [helper.make_tensor_value_info("hidden", TensorProto.FLOAT, ["tokens", width])],
        [helper.make_tensor_value_info("found", TensorProto.FLOAT, ["tokens", outputs])],
        [numpy_helper.from_array(value, name) for name, value in values.items()],
    )
    operators = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=operators, ir_version=10)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = torch.get_num_threads(), 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # torch's threads need the cores
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


KERNELS: dict[str, Kernel] = {kernel.name: kernel for kernel in (Fbgemm(), OneDnn(), OnnxRuntime())}

# A scale for each token, where texts have not fixed one

UNIT = Range(-128 / 127, 1.0)  # steps of 1 / 127 to both sides of 0
SIGNED, UNSIGNED = Range(-128.0, 127.0), Range(0.0, 255.0)  # steps of 1


def by_token(kernel: Kernel, weights: Weights) -> Map:
    """A linear map whose inputs are scaled token by token, where nobody has said what they lie in."""
    plain = kernel.linear(Weights(weights.values, weights.scale, None), SIGNED)
    bias = torch.zeros(len(weights.scale)) if weights.bias is None else weights.bias

    def apply(hidden: Tensor) -> Tensor:
        largest = torch.maximum(hidden.amax(-1, keepdim=True), hidden.amin(-1, keepdim=True).neg_())
        step = largest.div_(127).clamp_(min=torch.finfo(hidden.dtype).tiny)
        found = plain(hidden * step.reciprocal())
        return torch.addcmul(bias, found, step, out=found)

    return apply


def by_token_above(kernel: Kernel, weight: Tensor, bias: Tensor | None, low: float) -> Map:
    """The same for inputs that are never below `low`: no step is spent on what cannot be, so 7 bits of input are as
    fine as 8 were, and the weights can have theirs."""
    weights, steps = Weights.of(weight, None, whole=True), 127 if narrow() else 255
    plain = kernel.linear(weights, UNSIGNED)
    constant = low * (weights.values.sum(1) * weights.scale)
    constant = constant if bias is None else constant + bias.detach()

    def apply(hidden: Tensor) -> Tensor:
        step = hidden.amax(-1, keepdim=True).sub_(low).div_(steps).clamp_(min=torch.finfo(hidden.dtype).tiny)
        per_step = step.reciprocal()
        found = plain(torch.addcmul(per_step * -low, hidden, per_step))
        return torch.addcmul(constant, found, step, out=found)

    return apply
