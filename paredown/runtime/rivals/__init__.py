"""What a user would run instead: the whole model at full depth in another runtime, where it is installed."""

from __future__ import annotations

from paredown.runtime.rivals._rival import Rival
from paredown.runtime.rivals.ctranslate2 import CTRANSLATE2_INT8
from paredown.runtime.rivals.onnx import ONNX_INT8
from paredown.runtime.rivals.openvino import OPENVINO_FP32, OPENVINO_INT8
from paredown.runtime.rivals.stock import COMPILED, EAGER, SDPA

__all__ = ["RIVALS", "Rival"]

# In the order in which they are shown; the first that can run is what the others are compared with.
RIVALS = {
    rival.name: rival for rival in (SDPA, EAGER, COMPILED, ONNX_INT8, OPENVINO_FP32, OPENVINO_INT8, CTRANSLATE2_INT8)
}
