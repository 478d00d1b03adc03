"""Checkpoints of BERT-of-Theseus: predecessor and successors side by side, or the successors alone, a plain BERT."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformers import BertConfig, BertForSequenceClassification, BertTokenizer

from paredown.answers import Regression, SingleLabel
from paredown.encoders.tensors import read_tensors
from paredown.errors import BadBundle
from paredown.model import AdaptiveModel
from paredown.plan import Plan
from paredown.published._adopt import adopt, count_layers, label_names, shape_of, tokenizer_in
from paredown.published._folder import bert_settings, facts_beside, known_labels, weights_in

SUCCESSOR = r"bert\.encoder\.scc_layer\.(\d+)\."


def load_theseus(source: str | Path, labels: Sequence[str] | None = None, tokenizer: Any = None) -> AdaptiveModel:
    """A model from a folder of BERT-of-Theseus (config.json, weights, vocabulary), or from its weights file.

    Successors become layers grown after the predecessor's own; the plan runs them, as Theseus does when it evaluates.
    What convert_to_hf_ckpt.py writes, a BERT of the successors alone, is read too.
    """
    path = weights_in(Path(source))
    tensors = {name: value for name, value in read_tensors(path).items() if not name.endswith(".position_ids")}
    layers = count_layers(path, tensors, r"bert\.encoder\.layer\.(\d+)\.")
    both = any(re.match(SUCCESSOR, name) for name in tensors)
    successors = count_layers(path, tensors, SUCCESSOR) if both else 0
    if successors > layers:
        raise BadBundle(f"{path} has {successors} successors of {layers} layers; there are never more")
    facts = facts_beside(path)
    outputs = shape_of(path, tensors, "classifier.weight", 2)[0]
    named = label_names(known_labels(facts, outputs) if labels is None else labels, outputs)
    kind = Regression() if outputs == 1 else SingleLabel()
    return adopt(
        path,
        BertForSequenceClassification,
        BertConfig(**bert_settings(path, tensors, "bert", layers, facts), **named, problem_type=kind.problem_type),
        None,
        (),
        {_ours(name): value for name, value in tensors.items()},
        kind,
        tokenizer_in(path.parent, BertTokenizer) if tokenizer is None else tokenizer,
        Plan(tuple(range(layers, layers + successors)) or None),
        theirs=_theirs,
        grown=range(successors),
    )


def _ours(name: str) -> str:
    return re.sub(SUCCESSOR, r"grown.\1.", name) if re.match(SUCCESSOR, name) else f"stock.{name}"


def _theirs(name: str) -> str:
    return re.sub(r"^grown\.(\d+)\.", r"bert.encoder.scc_layer.\1.", name).removeprefix("stock.")
