"""Checkpoints of FastBERT: what run_fastbert.py and the `fastbert` package save, over UER's BERT."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing
from torch import Tensor, nn
from transformers import BertConfig, BertForSequenceClassification, BertTokenizer, PreTrainedTokenizerFast

from paredown.errors import BadBundle, BadSetting
from paredown.heads import Attention
from paredown.kinds import KINDS
from paredown.model import AdaptiveModel
from paredown.plan import Plan
from paredown.published._adopt import adopt, complain, count_layers, heads_for, label_names, shape_of, tokenizer_in
from paredown.tensors import read_tensors

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
HEADS = {
    "dense_in": "output_layer_0",
    "attention.query": "self_atten.linear_layers.0",
    "attention.key": "self_atten.linear_layers.1",
    "attention.value": "self_atten.linear_layers.2",
    "attention.output": "self_atten.final_linear",
    "dense_out": "output_layer_1",
    "out": "output_layer_2",
}
# What the layout does not have: the last layer's own head answers at full depth, not the encoder's classifier.
UNUSED = ("stock.bert.pooler.dense", "stock.classifier")


def load_fastbert(
    path: str | Path,
    labels: Sequence[str] | None = None,
    config: str | Path | None = None,
    tokenizer: Any = None,
    attention_heads: int | None = None,
) -> AdaptiveModel:
    """A model from a FastBERT state dict, which stores neither its labels nor its vocabulary.

    `config` is a Hugging Face BERT folder to take the vocabulary, the dropout and the number of attention heads from.
    `tokenizer` is a BERT tokenizer; single texts will end without [SEP], as FastBERT was trained.
    """
    path = Path(path)
    tensors = {_plain(name): value for name, value in read_tensors(path).items() if not _ignored(name)}
    layers = count_layers(path, tensors, r"encoder\.transformer\.(\d+)\.")
    names = _names(layers)
    complain(path, names.values() - tensors.keys(), tensors.keys() - names.values())
    settings = _settings(path, tensors, layers, _folder_config(config), attention_heads)
    if config is not None and tokenizer is None:
        tokenizer = tokenizer_in(Path(config), BertTokenizer)
    size = shape_of(path, tensors, "classifiers.0.output_layer_0.weight", 2)[0]
    answers = shape_of(path, tensors, "classifiers.0.output_layer_2.weight", 2)[0]
    model = adopt(
        path,
        BertForSequenceClassification,
        BertConfig(**settings, **label_names(labels, answers)),
        Attention(size=size),
        range(layers),
        {ours: _converted(ours, tensors[theirs]) for ours, theirs in names.items()},
        KINDS["single_label"],
        None if tokenizer is None else _without_separator(tokenizer),
        Plan(exit="entropy:0.5"),
        frozenset(f"{name}.{part}" for name in UNUSED for part in ("weight", "bias")),
    )
    _silence(model.stock)
    return model


def _plain(name: str) -> str:
    """The `fastbert` package keeps the encoder under `kernel.`, the script does not."""
    return name.removeprefix("kernel.")


def _ignored(name: str) -> bool:
    """Counters that a profiler left behind, and the heads of pre-training, which FastBERT never asks."""
    return name.split(".")[-1] in ("total_ops", "total_params") or _plain(name).startswith("target.")


def _names(layers: int) -> dict[str, str]:
    """Our names and theirs."""
    names = {f"stock.bert.embeddings.{ours}": f"embedding.{theirs}" for ours, theirs in EMBEDDINGS.items()}
    for layer in range(layers):
        here, there = f"stock.bert.encoder.layer.{layer}", f"encoder.transformer.{layer}"
        for ours, theirs in NORMS.items():
            names[f"{here}.{ours}.weight"] = f"{there}.{theirs}.gamma"
            names[f"{here}.{ours}.bias"] = f"{there}.{theirs}.beta"
        pairs = [(f"{here}.{ours}", f"{there}.{theirs}") for ours, theirs in LINEARS.items()]
        pairs += [(f"heads.{layer}.{ours}", f"classifiers.{layer}.{theirs}") for ours, theirs in HEADS.items()]
        names |= {f"{ours}.{part}": f"{theirs}.{part}" for ours, theirs in pairs for part in ("weight", "bias")}
    return names


def _settings(
    path: Path, tensors: dict[str, Tensor], layers: int, base: BertConfig | None, heads: int | None
) -> dict[str, Any]:
    vocabulary, width = shape_of(path, tensors, "embedding.word_embedding.weight", 2)
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


def _folder_config(folder: str | Path | None) -> BertConfig | None:
    if folder is None:
        return None
    if not Path(folder, "config.json").is_file():
        raise BadSetting(f"config must be a Hugging Face folder; there is no config.json in {folder}")
    return BertConfig.from_pretrained(folder)


def _converted(name: str, value: Tensor) -> Tensor:
    if name.endswith("token_type_embeddings.weight"):
        return value[1:]  # their row 0 is padding; first and second text are 1 and 2
    if name.endswith("LayerNorm.weight"):
        # UER divides by the deviation over n - 1, Hugging Face by that over n.
        return value * math.sqrt((len(value) - 1) / len(value))
    return value


def _silence(stock: BertForSequenceClassification) -> None:
    """The encoder's own classifier was never trained: let it say nothing rather than something random."""
    with torch.no_grad():
        nn.init.eye_(stock.bert.pooler.dense.weight)
        for parameter in (stock.bert.pooler.dense.bias, *stock.classifier.parameters()):
            nn.init.zeros_(parameter)


def _without_separator(tokenizer: Any) -> PreTrainedTokenizerFast:
    """A copy that writes `[CLS] text` and `[CLS] text [SEP] pair [SEP]`."""
    backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    first, end = tokenizer.cls_token, tokenizer.sep_token
    backend.post_processor = TemplateProcessing(
        single=f"{first} $A",
        pair=f"{first} $A {end} $B:1 {end}:1",
        special_tokens=[(first, tokenizer.cls_token_id), (end, tokenizer.sep_token_id)],
    )
    backend.no_truncation()
    backend.no_padding()
    # Not a BertTokenizer: that one forgets the template when it is loaded again.
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        model_max_length=tokenizer.model_max_length,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
        **tokenizer.special_tokens_map,
    )
