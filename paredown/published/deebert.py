"""Checkpoints of DeeBERT: a Hugging Face folder whose encoder carries its exits as `encoder.highway`."""

from __future__ import annotations

import json
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

from paredown.errors import BadBundle
from paredown.heads import Pooler
from paredown.kinds import KINDS
from paredown.model import AdaptiveModel
from paredown.plan import Plan
from paredown.published._adopt import adopt, count_layers, heads_for, label_names, shape_of, tokenizer_in
from paredown.published.tensors import read_tensors

FAMILIES = {
    "bert": (BertConfig, BertForSequenceClassification, BertTokenizer),
    "roberta": (RobertaConfig, RobertaForSequenceClassification, RobertaTokenizer),
}
NUMBERS = ("hidden_dropout_prob", "attention_probs_dropout_prob", "layer_norm_eps")  # read from config.json if there


def load_deebert(source: str | Path, labels: Sequence[str] | None = None, tokenizer: Any = None) -> AdaptiveModel:
    """A model from a folder of DeeBERT (config.json, weights, vocabulary), or from its weights file.

    The exit after the last layer is left out: DeeBERT never trains it, the encoder's own classifier answers there.
    """
    path = _weights(Path(source))
    tensors = {name: value for name, value in read_tensors(path).items() if not name.endswith(".position_ids")}
    family = next((name for name in FAMILIES if f"{name}.embeddings.word_embeddings.weight" in tensors), None)
    if family is None:
        raise BadBundle(f"{path} holds neither bert.embeddings… nor roberta.embeddings…; DeeBERT has only these two")
    layers = count_layers(path, tensors, rf"{family}\.encoder\.layer\.(\d+)\.")
    if layers < 2:
        raise BadBundle(f"{path} has {layers} layer; an exit before the last needs two")
    weights = {ours: value for name, value in tensors.items() if (ours := _ours(name, family, layers)) is not None}
    facts = _facts(path.parent / "config.json")
    answers, width = shape_of(path, tensors, "classifier.weight", 2)
    embeddings, heads = f"{family}.embeddings", facts.get("num_attention_heads")
    sizes = {
        "vocab_size": shape_of(path, tensors, f"{embeddings}.word_embeddings.weight", 2)[0],
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": heads_for(width, heads if isinstance(heads, int) else None),
        "intermediate_size": shape_of(path, tensors, f"{family}.encoder.layer.0.intermediate.dense.weight", 2)[0],
        "max_position_embeddings": shape_of(path, tensors, f"{embeddings}.position_embeddings.weight", 2)[0],
        "type_vocab_size": shape_of(path, tensors, f"{embeddings}.token_type_embeddings.weight", 2)[0],
    }
    if family == "roberta":
        facts.setdefault("layer_norm_eps", 1e-5)
    settings = {name: facts[name] for name in NUMBERS if isinstance(facts.get(name), (int, float))}
    if isinstance(facts.get("hidden_act"), str):
        settings["hidden_act"] = facts["hidden_act"]
    config_class, stock_class, tokenizer_class = FAMILIES[family]
    if tokenizer is None:
        tokenizer = tokenizer_in(path.parent, tokenizer_class)
    named = label_names(_known_labels(facts, answers) if labels is None else labels, answers)
    kind = KINDS["regression" if answers == 1 else "single_label"]
    return adopt(
        path,
        stock_class,
        config_class(**sizes, **settings, **named, problem_type=kind.problem_type),
        Pooler(),
        range(layers - 1),
        weights,
        kind,
        tokenizer,
        Plan(exit=None if answers == 1 else "entropy_nats:0.1"),  # entropy says nothing of a number
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


def _weights(source: Path) -> Path:
    if not source.is_dir():
        return source
    for name in ("model.safetensors", "pytorch_model.bin"):
        if (source / name).is_file():
            return source / name
    raise BadBundle(f"{source} holds neither model.safetensors nor pytorch_model.bin")


def _facts(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise BadBundle(f"{path} is not JSON: {error}") from error
    if not isinstance(facts, dict):
        raise BadBundle(f"{path} does not describe a model")
    return facts


def _known_labels(facts: dict[str, Any], number: int) -> list[str] | None:
    named = facts.get("id2label")
    if not isinstance(named, dict) or {str(place) for place in range(number)} != named.keys():
        return None
    return [str(named[str(place)]) for place in range(number)]
