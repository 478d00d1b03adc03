"""Somebody else's Hugging Face folder over BERT: which file has the weights, and what config.json says of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from torch import Tensor

from paredown.errors import BadBundle
from paredown.published._adopt import heads_for, shape_of

NUMBERS = ("hidden_dropout_prob", "attention_probs_dropout_prob", "layer_norm_eps")


def weights_in(source: Path) -> Path:
    """The weights file of a folder; a file is itself."""
    if not source.is_dir():
        return source
    for name in ("model.safetensors", "pytorch_model.bin"):
        if (source / name).is_file():
            return source / name
    raise BadBundle(f"{source} holds neither model.safetensors nor pytorch_model.bin")


def facts_beside(weights: Path) -> dict[str, Any]:
    """What config.json says, nothing where there is none."""
    path = weights.parent / "config.json"
    if not path.is_file():
        return {}
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise BadBundle(f"{path} is not JSON: {error}") from error
    if not isinstance(facts, dict):
        raise BadBundle(f"{path} does not describe a model")
    return facts


def known_labels(facts: dict[str, Any], number: int) -> list[str] | None:
    named = facts.get("id2label")
    if not isinstance(named, dict) or {str(index) for index in range(number)} != named.keys():
        return None
    return [str(named[str(index)]) for index in range(number)]


def bert_settings(
    path: Path, tensors: dict[str, Tensor], family: str, layers: int, facts: dict[str, Any]
) -> dict[str, Any]:
    """All sizes from the weights themselves; attention heads, dropout, activation, norm constant from config.json."""
    embeddings, heads = f"{family}.embeddings", facts.get("num_attention_heads")
    vocabulary, width = shape_of(path, tensors, f"{embeddings}.word_embeddings.weight", 2)
    settings = {
        "vocab_size": vocabulary,
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": heads_for(width, heads if isinstance(heads, int) else None),
        "intermediate_size": shape_of(path, tensors, f"{family}.encoder.layer.0.intermediate.dense.weight", 2)[0],
        "max_position_embeddings": shape_of(path, tensors, f"{embeddings}.position_embeddings.weight", 2)[0],
        "type_vocab_size": shape_of(path, tensors, f"{embeddings}.token_type_embeddings.weight", 2)[0],
    }
    settings |= {name: facts[name] for name in NUMBERS if isinstance(facts.get(name), (int, float))}
    if isinstance(facts.get("hidden_act"), str):
        settings["hidden_act"] = facts["hidden_act"]
    return settings
