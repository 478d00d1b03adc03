"""Checkpoints of FastBERT: what run_fastbert.py and the `fastbert` package save, over UER's BERT."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing
from torch import nn
from transformers import BertConfig, BertForSequenceClassification, BertTokenizer, PreTrainedTokenizerFast

from paredown.answers import SingleLabel
from paredown.encoders.tensors import read_tensors
from paredown.heads import Attention
from paredown.model import AdaptiveModel
from paredown.plan import Plan
from paredown.published._adopt import adopt, complain, count_layers, label_names, shape_of, tokenizer_in
from paredown.published.uer import LAYER, converted, encoder_names, folder_config, is_counter, plain, settings_of

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
    read = {plain(name): value for name, value in read_tensors(path).items() if not is_counter(name)}
    tensors = {name: value for name, value in read.items() if not name.startswith("target.")}  # of pre-training
    layers = count_layers(path, tensors, LAYER)
    names = _names(layers)
    complain(path, names.values() - tensors.keys(), tensors.keys() - names.values())
    settings = settings_of(path, tensors, None if config is None else folder_config(config), attention_heads)
    if config is not None and tokenizer is None:
        tokenizer = tokenizer_in(Path(config), BertTokenizer)
    size = shape_of(path, tensors, "classifiers.0.output_layer_0.weight", 2)[0]
    outputs = shape_of(path, tensors, "classifiers.0.output_layer_2.weight", 2)[0]
    model = adopt(
        path,
        BertForSequenceClassification,
        BertConfig(**settings, **label_names(labels, outputs)),
        Attention(size=size),
        range(layers),
        {ours: converted(ours, tensors[theirs]) for ours, theirs in names.items()},
        SingleLabel(),
        None if tokenizer is None else _without_separator(tokenizer),
        Plan(exit="entropy:0.5"),
        frozenset(f"{name}.{part}" for name in UNUSED for part in ("weight", "bias")),
    )
    _silence(model.stock)
    return model


def _names(layers: int) -> dict[str, str]:
    """Our name of every weight, and theirs."""
    names = encoder_names(layers, "stock.bert.")
    for layer in range(layers):
        pairs = [(f"heads.{layer}.{ours}", f"classifiers.{layer}.{theirs}") for ours, theirs in HEADS.items()]
        names |= {f"{ours}.{part}": f"{theirs}.{part}" for ours, theirs in pairs for part in ("weight", "bias")}
    return names


def _silence(stock: BertForSequenceClassification) -> None:
    """The encoder's own classifier was never trained: let it predict nothing rather than something random."""
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
