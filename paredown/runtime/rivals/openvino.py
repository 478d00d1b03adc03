"""OpenVINO: the model in 32 bits, and in int8 after NNCF's post-training quantisation."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import torch

from paredown.model import AdaptiveModel
from paredown.runtime.rivals._rival import Inputs, Logits, Rival, Run


def fp32(model: AdaptiveModel, batches: Sequence[Inputs]) -> Run:
    return compiled(converted(model.stock, batches[0]), list(batches[0]), INFERENCE_PRECISION_HINT="f32")


def int8(model: AdaptiveModel, batches: Sequence[Inputs]) -> Run:
    """As OpenVINO's guide has it for transformers; activations are calibrated by the batches."""
    nncf = import_module("nncf")
    names = list(batches[0])
    found = nncf.quantize(
        converted(model.stock, batches[0]),
        nncf.Dataset(list(batches), lambda batch: tuple(batch[name].numpy() for name in names)),
        model_type=nncf.ModelType.TRANSFORMER,
        subset_size=len(batches),
    )
    return compiled(found, names)


def converted(stock: Any, sample: Inputs) -> Any:
    openvino = import_module("openvino")
    with torch.inference_mode(False), torch.no_grad():
        example = tuple(value.clone() for value in sample.values())
        shapes = [openvino.PartialShape([-1, -1])] * len(example)
        types = [openvino.Type.i64] * len(example)
        return openvino.convert_model(
            Logits(stock, list(sample)), example_input=example, input=list(zip(shapes, types, strict=True))
        )


def compiled(found: Any, names: Sequence[str], **settings: Any) -> Run:
    settings |= {"INFERENCE_NUM_THREADS": torch.get_num_threads(), "PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": 1}
    running = import_module("openvino").compile_model(found, "CPU", settings)
    return lambda inputs: running([inputs[name].numpy() for name in names])[0]


OPENVINO_FP32 = Rival("openvino fp32", fp32, ("openvino",), "openvino")
OPENVINO_INT8 = Rival("openvino int8", int8, ("openvino", "nncf"), "openvino")
