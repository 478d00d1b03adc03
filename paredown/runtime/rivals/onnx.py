"""ONNX Runtime with its dynamic int8: weights per channel in eight bits, activations by a scale of the batch."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import torch

from paredown.model import AdaptiveModel
from paredown.runtime.rivals._rival import Inputs, Logits, Rival, Run


def int8(model: AdaptiveModel, batches: Sequence[Inputs]) -> Run:
    return session(model.stock, batches[0])


def session(stock: Any, sample: Inputs) -> Run:
    """`sample`: a batch, which tells what the model reads."""
    onnxruntime, quantization = import_module("onnxruntime"), import_module("onnxruntime.quantization")
    with tempfile.TemporaryDirectory() as folder:
        plain, small = f"{folder}/plain.onnx", f"{folder}/int8.onnx"
        export(stock, sample, plain)
        settings = {"weight_type": quantization.QuantType.QInt8, "per_channel": True, "reduce_range": True}
        quantization.quantize_dynamic(plain, small, **settings)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = torch.get_num_threads()
        options.log_severity_level = 3
        running = onnxruntime.InferenceSession(small, options, providers=["CPUExecutionProvider"])
    names = [one.name for one in running.get_inputs()]
    return lambda inputs: running.run(None, {name: inputs[name].numpy() for name in names})[0]


def export(stock: Any, sample: Inputs, path: str) -> None:
    """Rows and tokens may be as many as they like."""
    with torch.inference_mode(False), torch.no_grad():
        torch.onnx.export(
            Logits(stock, list(sample)),
            tuple(value.clone() for value in sample.values()),
            path,
            dynamo=False,
            opset_version=17,
            input_names=list(sample),
            output_names=["logits"],
            dynamic_axes={name: {0: "rows", 1: "tokens"} for name in sample},
        )


ONNX_INT8 = Rival("onnxruntime int8", int8, ("onnxruntime", "onnx"), "onnx")
