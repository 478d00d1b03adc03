"""CTranslate2: the encoder in int8, for the families that it can convert; the classifier stays the model's own."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import numpy
import torch
from torch import Tensor

from paredown.model import AdaptiveModel
from paredown.runtime.rivals._rival import Inputs, Rival, Run


def int8(model: AdaptiveModel, _: Sequence[Inputs]) -> Run:
    ctranslate2, converters = import_module("ctranslate2"), import_module("ctranslate2.converters")
    with tempfile.TemporaryDirectory() as folder:
        plain, small = Path(folder) / "plain", Path(folder) / "int8"
        save_encoder(model, plain)
        converters.TransformersConverter(str(plain)).convert(str(small), quantization="int8")
        threads = torch.get_num_threads()
        encoder = ctranslate2.Encoder(str(small), device="cpu", compute_type="int8", intra_threads=threads)

    def run(inputs: Inputs) -> Tensor:
        mask = inputs["attention_mask"]
        ids = ctranslate2.StorageView.from_array(inputs["input_ids"].int().numpy())
        lengths = ctranslate2.StorageView.from_array(mask.sum(1).int().numpy())
        types = inputs.get("token_type_ids")
        more = {} if types is None else {"token_type_ids": types.tolist()}
        hidden = numpy.array(encoder.forward_batch(ids, lengths, **more).last_hidden_state)
        with torch.inference_mode():
            return model.walk.stock_logits(torch.from_numpy(hidden), mask.bool())

    return run


def save_encoder(model: AdaptiveModel, folder: Path) -> None:
    """With what the converter asks of a config and transformers no longer writes."""
    model.stock.base_model.save_pretrained(folder)
    model.tokenizer.save_pretrained(folder)
    path = folder / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({"position_embedding_type": "absolute"} | config), encoding="utf-8")


CTRANSLATE2_INT8 = Rival("ctranslate2 int8", int8, ("ctranslate2",), "ctranslate2")
