"""UER's BERT: names and conventions of its weights, and its pre-training files as encoders to train from."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor
from transformers import BertConfig, BertTokenizer

from paredown.bundle import FILE, FOREIGN, LoadSettings, from_checkpoint
from paredown.encoders.pretrained import SAFE, TORCH, built, check_vocabulary, hub_settings, tokenizer_of
from paredown.encoders.tensors import read_tensors
from paredown.errors import BadBundle, BadSetting
from paredown.model import AdaptiveModel
from paredown.published._adopt import check_encoder, complain, count_layers, heads_for, shape_of, tokenizer_in

log = logging.getLogger(__name__)
EMBEDDINGS = {
    "word_embeddings.weight": "word_embedding.weight",
    "position_embeddings.weight": "position_embedding.weight",
    "token_type_embeddings.weight": "segment_embedding.weight",
    "LayerNorm.weight": "layer_norm.gamma",
    "LayerNorm.bias": "layer_norm.beta",
}
LINEARS = {
    "attention.self.query": "self_attn.linear_layers.0",
    "attention.self.key": "self_attn.linear_layers.1",
    "attention.self.value": "self_attn.linear_layers.2",
    "attention.output.dense": "self_attn.final_linear",
    "intermediate.dense": "feed_forward.linear_1",
    "output.dense": "feed_forward.linear_2",
}
NORMS = {"attention.output.LayerNorm": "layer_norm_1", "output.LayerNorm": "layer_norm_2"}
TABLES = {"word": "word_embedding", "pos": "position_embedding", "seg": "segment_embedding"}
WORDS = "embedding.word_embedding.weight"
LAYER = r"encoder\.transformer\.(\d+)\."
POOLERS = ("target.nsp_linear_1", "target.sp.linear_1")  # whether one sentence follows the other was predicted from it


def start_from_file(source: str | Path, wanted: LoadSettings) -> AdaptiveModel:
    """A model to train from a weights file: UER's, or one of a Hugging Face folder, which is loaded as a whole."""
    path = Path(source)
    if path.name in (TORCH, SAFE[0]) and (path.parent / "config.json").is_file():
        return from_checkpoint(path.parent, wanted)
    tensors = {plain(name): value for name, value in read_tensors(path).items() if not is_counter(name)}
    if WORDS not in tensors:
        raise BadBundle(
            f"{path} is no file to train from: that is UER's BERT, which has {WORDS}, or the {TORCH} or {SAFE[0]} of a "
            "Hugging Face folder; `paredown import` reads FastBERT, DeeBERT, ElasticBERT and Theseus"
        )
    if any(name.startswith("classifiers.") for name in tensors):
        log.warning("%s holds FastBERT's exits, which are left out; `paredown import` keeps them", path)
    config = BertConfig(**settings_of(path, tensors, _config_near(path, wanted.tokenizer)))
    names = encoder_names(config.num_hidden_layers, "bert.")
    unused = ("target.", "classifiers.")
    complain(path, (), {name for name in tensors if not name.startswith(unused)} - set(names.values()))
    weights = {ours: converted(ours, tensors[theirs]) for ours, theirs in names.items() if theirs in tensors}
    check_encoder(path, config, weights, lambda name: names.get(name, name))
    weights |= _pooler(tensors)
    kind, labels = wanted.answers()
    stock = built(path, config, weights, kind, labels, wanted.settings)
    tokenizer = _tokenizer(path, wanted)
    check_vocabulary(path, tokenizer, config.vocab_size)
    return AdaptiveModel(stock, tokenizer, kind)


def plain(name: str) -> str:
    """A name as UER 1 had it, on which FastBERT was built: its package adds `kernel.`, UER 3 renamed embeddings."""
    name = name.removeprefix("kernel.")
    return re.sub(r"^embedding\.(word|pos|seg)\.embedding\.", lambda found: f"embedding.{TABLES[found[1]]}.", name)


def is_counter(name: str) -> bool:
    """Whether it is what a profiler counted, not a weight."""
    return name.split(".")[-1] in ("total_ops", "total_params")


def encoder_names(layers: int, prefix: str) -> dict[str, str]:
    """Our names of the encoder's weights, and UER's."""
    names = {f"{prefix}embeddings.{ours}": f"embedding.{theirs}" for ours, theirs in EMBEDDINGS.items()}
    for layer in range(layers):
        here, there = f"{prefix}encoder.layer.{layer}", f"encoder.transformer.{layer}"
        for ours, theirs in NORMS.items():
            names[f"{here}.{ours}.weight"] = f"{there}.{theirs}.gamma"
            names[f"{here}.{ours}.bias"] = f"{there}.{theirs}.beta"
        for ours, theirs in LINEARS.items():
            names |= {f"{here}.{ours}.{part}": f"{there}.{theirs}.{part}" for part in ("weight", "bias")}
    return names


def settings_of(
    path: Path, tensors: Mapping[str, Tensor], base: BertConfig | None, heads: int | None = None
) -> dict[str, Any]:
    """All sizes from the weights; attention heads and dropout as given, or from the config of a similar model."""
    vocabulary, width = shape_of(path, tensors, WORDS, 2)
    layers = count_layers(path, tensors, LAYER)
    if shape_of(path, tensors, "embedding.segment_embedding.weight", 2)[0] != 3:
        raise BadBundle(f"{path}: embedding.segment_embedding.weight should have 3 rows: padding, first text, second")
    settings = {
        "vocab_size": vocabulary,
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": heads_for(width, heads or (base and base.num_attention_heads)),
        "intermediate_size": shape_of(path, tensors, "encoder.transformer.0.feed_forward.linear_1.weight", 2)[0],
        "max_position_embeddings": shape_of(path, tensors, "embedding.position_embedding.weight", 2)[0],
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-12,  # UER adds 1e-6 to the deviation instead
    }
    if base is not None:
        kept = ("hidden_dropout_prob", "attention_probs_dropout_prob")
        settings |= {name: getattr(base, name) for name in kept}
    return settings


def converted(name: str, value: Tensor) -> Tensor:
    """A weight of UER's as Hugging Face's BERT wants it."""
    if name.endswith("token_type_embeddings.weight"):
        return value[1:]  # their row 0 is padding; first and second text are 1 and 2
    if name.endswith("LayerNorm.weight"):
        # UER divides by the deviation over n - 1, Hugging Face by that over n.
        return value * math.sqrt((len(value) - 1) / len(value))
    return value


def folder_config(folder: str | Path) -> BertConfig:
    if not Path(folder, "config.json").is_file():
        raise BadSetting(f"config must be a Hugging Face folder; there is no config.json in {folder}")
    return BertConfig.from_pretrained(folder)


def _config_near(path: Path, tokenizer: Any) -> BertConfig | None:
    """The config of the folder that the tokenizer comes from, else of the file's own, where they have one."""
    folders = [Path(tokenizer)] if isinstance(tokenizer, (str, Path)) else []
    return next((folder_config(at) for at in (*folders, path.parent) if (at / "config.json").is_file()), None)


def _pooler(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    found = next((name for name in POOLERS if f"{name}.weight" in tensors), None)
    return {f"bert.pooler.dense.{part}": tensors[f"{found}.{part}"] for part in ("weight", "bias") if found}


def _tokenizer(path: Path, wanted: LoadSettings) -> Any:
    if wanted.tokenizer is not None:
        return tokenizer_of(wanted.tokenizer, hub_settings(wanted.settings))
    if (beside := tokenizer_in(path.parent, BertTokenizer)) is None:
        raise BadSetting(
            f"{path} stores no vocabulary: give a tokenizer, a folder or a vocabulary file, or put vocab.txt beside it"
        )
    return beside


FOREIGN[FILE] = start_from_file
