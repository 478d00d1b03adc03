"""Checkpoints of DeeBERT: a Hugging Face folder whose encoder carries its exits as `encoder.highway`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertTokenizer,
    RobertaConfig,
    RobertaForSequenceClassification,
    RobertaTokenizer,
)

from paredown.answers import Regression, SingleLabel
from paredown.encoders.tensors import read_tensors
from paredown.errors import BadBundle
from paredown.heads import Pooler
from paredown.model import AdaptiveModel
from paredown.plan import Plan
from paredown.published._adopt import adopt, count_layers, label_names, shape_of, tokenizer_in
from paredown.published._folder import bert_settings, facts_beside, known_labels, weights_in

FAMILIES = {
    "bert": (BertConfig, BertForSequenceClassification, BertTokenizer),
    "roberta": (RobertaConfig, RobertaForSequenceClassification, RobertaTokenizer),
}


def load_deebert(source: str | Path, labels: Sequence[str] | None = None, tokenizer: Any = None) -> AdaptiveModel:
    """A model from a folder of DeeBERT (config.json, weights, vocabulary), or from its weights file.

    The exit after the last layer is left out: DeeBERT never trains it, the encoder's own classifier answers there.
    """
    path = weights_in(Path(source))
    tensors = {name: value for name, value in read_tensors(path).items() if not name.endswith(".position_ids")}
    family = next((name for name in FAMILIES if f"{name}.embeddings.word_embeddings.weight" in tensors), None)
    if family is None:
        raise BadBundle(f"{path} holds neither bert.embeddings… nor roberta.embeddings…; DeeBERT has only these two")
    layers = count_layers(path, tensors, rf"{family}\.encoder\.layer\.(\d+)\.")
    if layers < 2:
        raise BadBundle(f"{path} has {layers} layer; an exit before the last needs two")
    weights = {ours: value for name, value in tensors.items() if (ours := _ours(name, family, layers)) is not None}
    facts = facts_beside(path)
    if family == "roberta":
        facts.setdefault("layer_norm_eps", 1e-5)
    settings = bert_settings(path, tensors, family, layers, facts)
    outputs = shape_of(path, tensors, "classifier.weight", 2)[0]
    config_class, stock_class, tokenizer_class = FAMILIES[family]
    if tokenizer is None:
        tokenizer = tokenizer_in(path.parent, tokenizer_class)
    named = label_names(known_labels(facts, outputs) if labels is None else labels, outputs)
    kind = Regression() if outputs == 1 else SingleLabel()
    return adopt(
        path,
        stock_class,
        config_class(**settings, **named, problem_type=kind.problem_type),
        Pooler(),
        range(layers - 1),
        weights,
        kind,
        tokenizer,
        Plan(exit=None if outputs == 1 else "entropy_nats:0.1"),  # a number has no entropy
    )


def _ours(name: str, family: str, layers: int) -> str | None:
    """Our name for a weight of theirs; None for the exit that is left out."""
    if found := re.fullmatch(rf"{family}\.encoder\.highway\.(\d+)\.(pooler\.dense|classifier)\.(weight|bias)", name):
        layer, part, kind = found.groups()
        own = "dense" if part == "pooler.dense" else "out"
        return None if int(layer) == layers - 1 else f"heads.{layer}.{own}.{kind}"
    if family == "roberta":  # the same classifier, under the names of Hugging Face's RobertaClassificationHead
        name = re.sub(r"^classifier\.", "classifier.out_proj.", name)
        name = re.sub(r"^roberta\.pooler\.dense\.", "classifier.dense.", name)
    return f"stock.{name}"
