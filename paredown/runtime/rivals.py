"""What a user would run instead, where it is installed: the whole model at full depth in another runtime."""

from __future__ import annotations

import logging
import tempfile
import warnings
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

Batch = dict[str, Tensor]


class _Logits(nn.Module):
    def __init__(self, model: Any):
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return self.model(input_ids=input_ids, attention_mask=attention_mask).logits


def onnx_int8(model: Any) -> Callable[[Batch], Any] | None:
    """ONNX Runtime with dynamic int8 weights, on one thread; None where it is not installed."""
    if find_spec("onnxruntime") is None or find_spec("onnx") is None:
        return None
    onnxruntime, quantization = import_module("onnxruntime"), import_module("onnxruntime.quantization")
    logging.getLogger("root").setLevel(logging.ERROR)  # it recommends itself
    names, ids = ["input_ids", "attention_mask"], torch.randint(10, 20, (2, 16))
    with tempfile.TemporaryDirectory() as folder, torch.inference_mode(False), torch.no_grad():
        plain, small = f"{folder}/plain.onnx", f"{folder}/int8.onnx"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the exporter, about shapes that it traces
            torch.onnx.export(
                _Logits(model),
                (ids, torch.ones_like(ids)),
                plain,
                dynamo=False,
                opset_version=17,
                input_names=names,
                output_names=["logits"],
                dynamic_axes={name: {0: "rows", 1: "tokens"} for name in names},
            )
        int8 = {"weight_type": quantization.QuantType.QInt8, "per_channel": True, "reduce_range": True}
        quantization.quantize_dynamic(plain, small, **int8)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = torch.get_num_threads()
        options.log_severity_level = 3
        session = onnxruntime.InferenceSession(small, options, providers=["CPUExecutionProvider"])
    return lambda batch: session.run(None, {name: batch[name].numpy() for name in names})
