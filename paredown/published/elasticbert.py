"""Checkpoints of ElasticBERT, read and written: BERT whose encoder carries a pooler after every layer."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import BertConfig, BertForSequenceClassification, BertTokenizer

from paredown.answers import Kind, Regression
from paredown.bundle import FOREIGN, LoadSettings
from paredown.encoders.dtype import check_before_saving
from paredown.encoders.pretrained import (
    built,
    folder_of,
    hub_settings,
    in_their_order,
    is_numbered,
    kept_labels,
    kind_of,
    labels_of,
    listed_labels,
    tokenizer_of,
)
from paredown.encoders.tensors import read_tensors
from paredown.errors import BadBundle, BadSetting
from paredown.heads import Pooler, Pretraining, SharedPooler
from paredown.model import AdaptiveModel
from paredown.plan import Plan
from paredown.published._adopt import adopt, check_encoder, complain, count_layers, label_names, shape_of, tokenizer_in
from paredown.published._folder import bert_settings, facts_beside, known_labels, weights_in
from paredown.registry import answers
from paredown.system.saving import staged

log = logging.getLogger(__name__)
PARTS = ("weight", "bias")
POOLER = "elasticbert.encoder.pooler.{}.dense"
# Classifiers of every layer (dynamic fine-tuning), of the last (static), and of the order of two sentences.
EACH, ONE, ORDER = "classifiers.{}", "classifier", "sop_classifier.classifiers.{}"
ORDERS = ("in order", "swapped")
# Positions that old versions saved; and the word embeddings a second time.
REPEATED = re.compile(r"(.*\.)?(position_ids|predictions\.decoder\.(weight|bias))")
PRETRAINING = re.compile(r"(.*\.)?(predictions|sop_classifier)\..*")
# Of layers that do not answer in static use.
SPARE = re.compile(r"(elasticbert\.encoder\.pooler\.\d+\.dense|classifiers\.\d+|classifier)\.(weight|bias)")


@dataclass(frozen=True)
class ElasticLayout:
    """Which layers a file holds, and who answers after them."""

    layers: int
    heads: Sequence[int]  # layers whose answer is a head of ours
    last: int  # the layer that answers last, through the stock model unless it has a head
    classifiers: str | None  # how they are named; None: there are none
    words: bool = False  # whether heads predict words too, as in pre-training

    @property
    def names(self) -> dict[str, str]:
        """How our names begin, and theirs."""
        names = {"stock.bert.embeddings.": "elasticbert.embeddings."}
        names |= {f"stock.bert.encoder.layer.{n}.": f"elasticbert.encoder.layer.{n}." for n in range(self.layers)}
        for layer in sorted({*self.heads, self.last}):
            pooler, classifier = self._answering(layer)
            names[pooler] = f"{POOLER.format(layer)}."
            if self.classifiers is not None and (self.classifiers != ONE or layer == self.last):
                names[classifier] = f"{self.classifiers.format(layer)}."
            if self.words:
                names[f"heads.{layer}.transform."] = f"predictions.transforms.{layer}.dense."
                names[f"heads.{layer}.norm."] = f"predictions.transforms.{layer}.LayerNorm."
        return names | ({"heads.0.bias": "predictions.bias"} if self.words else {})

    def _answering(self, layer: int) -> tuple[str, str]:
        """Our pooler and classifier after a layer."""
        if layer in self.heads:
            return f"heads.{layer}.dense.", f"heads.{layer}.out."
        return "stock.bert.pooler.dense.", "stock.classifier."

    @property
    def absent(self) -> frozenset[str]:
        """Weights of ours that the file does not have."""
        parts = {part for layer in (*self.heads, self.layers) for part in self._answering(layer)}
        return frozenset(f"{part}{kind}" for part in parts - self.names.keys() for kind in ("weight", "bias"))


def load_elasticbert(
    source: str | Path,
    *,
    depth: int | None = None,
    pretraining: bool = False,
    task: str | None = None,
    num_labels: int | None = None,
    labels: Sequence[str] | None = None,
    tokenizer: Any = None,
) -> AdaptiveModel:
    """A model from a folder of ElasticBERT (config.json, weights, vocabulary), or from its weights file.

    Without `depth` every layer answers through its own pooler (dynamic); with it the first `depth` layers run and the
    last of them answers (static). Classifiers come from the file where it has them, else they are new.
    `pretraining` takes the heads of pre-training instead, to go on with it.
    """
    path = weights_in(Path(source))
    facts, tensors = _facts(path), _tensors(path, pretraining)
    layers = _layers(path, tensors, facts)
    if pretraining:
        if (depth, task, num_labels, labels) != (None, None, None, None):
            raise BadSetting("pre-training has its own labels and trains every layer: leave depth, task and labels out")
        layout, labels = _pretraining(path, tensors, layers), ORDERS
    else:
        layout = _dynamic(path, tensors, layers) if depth is None else _static(path, tensors, layers, depth)
    names = layout.names
    kind, named = _answers(_number(path, tensors, layout), facts, task, num_labels, labels)
    settings = bert_settings(path, tensors, "elasticbert", layers, facts)
    learned = bool(layout.heads) and layout.classifiers == EACH and not kind.numeric
    model = adopt(
        path,
        BertForSequenceClassification,
        BertConfig(**settings, **named, problem_type=kind.problem_type),
        Pretraining() if pretraining else Pooler(),
        layout.heads,
        _our_weights(path, tensors, names, may_spare=depth is not None),
        kind,
        tokenizer_in(path.parent, BertTokenizer) if tokenizer is None else tokenizer,
        Plan(None if depth is None else tuple(range(depth)), "entropy_nats:0.3" if learned else None),
        layout.absent,
        lambda name: _renamed(name, names) or name,
    )
    if layout.last in layout.heads:  # let plain transformers answer as the last head does
        head: Any = model.heads[str(layout.last)]
        model.stock.bert.pooler.dense.load_state_dict(head.dense.state_dict())
        model.stock.classifier.load_state_dict(head.out.state_dict())
    return model


def start_from_elasticbert(source: str | Path, wanted: LoadSettings) -> AdaptiveModel:
    """A model from a folder or hub id: as it was fine-tuned, where it answers what is wanted; else an encoder to
    train, without heads, whose poolers are what pooler heads begin as.
    """
    folder = folder_of(source, hub_settings(wanted.settings))
    path = weights_in(folder)
    facts, tensors = _facts(path), _tensors(path, pretraining=False)
    layers = _layers(path, tensors, facts)
    poolers = _poolers(tensors, layers)
    depth = _own_depth(poolers, layers) if wanted.depth is None else wanted.depth
    tokenizer = None if wanted.tokenizer is None else tokenizer_of(wanted.tokenizer, {})
    kind, names = wanted.answers()
    theirs = _learned_labels(path, tensors, facts)
    kept = None if theirs is None or kind.per_token else kept_labels(theirs, names)
    if theirs is not None and kept is not None:
        named = None if names is None or is_numbered(names) else in_their_order(names, kept)
        return load_elasticbert(folder, depth=depth, task=wanted.task, labels=named, tokenizer=tokenizer)
    if theirs is not None:
        log.warning("%s answers %s, not what is wanted: its encoder is kept", source, listed_labels(theirs))
    if names is None:
        names = known_labels(facts, len(facts.get("id2label") or ()))
    model = _encoder(path, tensors, facts, depth or layers, kind, names, wanted.settings)
    model.tokenizer = tokenizer_in(folder, BertTokenizer) if tokenizer is None else tokenizer
    if not kind.per_token:
        model.poolers = {layer: _linear(tensors, POOLER.format(layer)) for layer in poolers}
        log.info("%s: heads of the kind pooler begin as its pre-trained poolers, other heads are new", source)
    return model


def load_fine_tuned(source: str | Path, labels: Sequence[str] | None = None, tokenizer: Any = None) -> AdaptiveModel:
    """A model as ElasticBERT's scripts fine-tuned it, with exits or at the depth it was trained for."""
    path = weights_in(Path(source))
    tensors = _tensors(path, pretraining=False)
    if _learned_labels(path, tensors, {}) is None:
        raise BadBundle(f"{path} is pre-trained and answers nothing yet: `paredown train` takes it as it is")
    layers = _layers(path, tensors, _facts(path))
    depth = _own_depth(_poolers(tensors, layers), layers)
    return load_elasticbert(source, depth=depth, labels=labels, tokenizer=tokenizer)


def _poolers(tensors: dict[str, Tensor], layers: int) -> list[int]:
    return [layer for layer in range(layers) if f"{POOLER.format(layer)}.weight" in tensors]


def _own_depth(poolers: list[int], layers: int) -> int | None:
    """The depth of a file that was fine-tuned for one alone, which shows in its only pooler."""
    return poolers[0] + 1 if len(poolers) == 1 < layers else None


def _learned_labels(path: Path, tensors: dict[str, Tensor], facts: dict[str, Any]) -> list[str] | None:
    """What the file's classifiers answer; None where it has none."""
    name = next((name for name in (f"{EACH.format(0)}.weight", f"{ONE}.weight") if name in tensors), None)
    if name is None:
        return None
    number = shape_of(path, tensors, name, 2)[0]
    return known_labels(facts, number) or [f"LABEL_{index}" for index in range(number)]


def _encoder(
    path: Path,
    tensors: dict[str, Tensor],
    facts: dict[str, Any],
    depth: int,
    kind: Kind,
    names: list[str] | None,
    settings: dict[str, Any],
) -> AdaptiveModel:
    """The encoder with the pooler of the last layer that runs, and a new classifier."""
    layers = _layers(path, tensors, facts)
    config = BertConfig(**bert_settings(path, tensors, "elasticbert", layers, facts))
    body = {name: value for name, value in tensors.items() if not SPARE.fullmatch(name)}
    weights = {re.sub(r"^elasticbert\.", "bert.", name): value for name, value in body.items()}
    check_encoder(path, config, weights, lambda name: re.sub(r"^bert\.", "elasticbert.", name))
    last = POOLER.format(depth - 1)
    weights |= {f"bert.pooler.dense.{part}": tensors[f"{last}.{part}"] for part in PARTS if f"{last}.{part}" in tensors}
    return AdaptiveModel(built(path, config, weights, kind, names, settings), None, kind)


def _linear(tensors: dict[str, Tensor], name: str) -> nn.Linear:
    weight, bias = (tensors[f"{name}.{part}"].float() for part in PARTS)
    made = nn.Linear(weight.shape[1], weight.shape[0])
    made.load_state_dict({"weight": weight, "bias": bias})
    return made


def save_elasticbert(model: AdaptiveModel, folder: str | Path) -> None:
    """Write the layers that the model's plan runs, their poolers and classifiers, as ElasticBERT has them.

    A model with heads after every layer is written for dynamic use, one without heads for static use. The layout has
    no place for an exit rule; `save_pretrained` keeps everything.
    """
    layout = _layout_of(model)
    names = layout.names
    tensors = {
        # Cloned, because a pooler that heads share is written for each of them.
        theirs: value.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, value in model.named_parameters(remove_duplicate=False)
        if (theirs := _renamed(name, names)) is not None
    }
    facts = model.config.to_diff_dict() | {
        "model_type": "elasticbert",
        "architectures": [f"ElasticBertFor{'PreTraining' if layout.words else 'SequenceClassification'}"],
        "num_hidden_layers": layout.layers,
        "num_output_layers": layout.layers if layout.heads else 1,
        "max_output_layers": model.config.num_hidden_layers,
    }
    check_before_saving(folder, tensors)
    with staged(folder) as fresh:
        save_file(tensors, fresh / "model.safetensors", metadata={"format": "pt"})
        (fresh / "config.json").write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
        if model.tokenizer is not None:
            model.tokenizer.save_pretrained(fresh)
            model.tokenizer.backend_tokenizer.model.save(str(fresh))  # vocab.txt, which older versions read


def _renamed(name: str, names: dict[str, str]) -> str | None:
    return next((new + name.removeprefix(old) for old, new in names.items() if name.startswith(old)), None)


# Reading


def _tensors(path: Path, pretraining: bool) -> dict[str, Tensor]:
    """The tensors without what is there twice, and without the heads of pre-training where texts are classified."""
    tensors = {name: value for name, value in read_tensors(path).items() if not REPEATED.fullmatch(name)}
    return {name: value for name, value in tensors.items() if pretraining or not PRETRAINING.fullmatch(name)}


def _facts(path: Path) -> dict[str, Any]:
    facts = facts_beside(path)
    if not isinstance(facts.get("layer_norm_eps"), float):  # 1e-8 in English, 1e-12 in Chinese, so never guessed
        raise BadBundle(f"{path} needs a config.json beside it that tells layer_norm_eps")
    return facts


def _layers(path: Path, tensors: dict[str, Tensor], facts: dict[str, Any]) -> int:
    layers = count_layers(path, tensors, r"elasticbert\.encoder\.layer\.(\d+)\.")
    if facts.get("num_hidden_layers", layers) != layers:
        raise BadBundle(
            f"{path} holds {layers} layers, but config.json says num_hidden_layers {facts['num_hidden_layers']!r:.40}; "
            "to use fewer layers than there are, leave it as it was and give depth"
        )
    return layers


def _dynamic(path: Path, tensors: dict[str, Tensor], layers: int) -> ElasticLayout:
    there = [layer for layer in range(layers) if f"{POOLER.format(layer)}.weight" in tensors]
    if missing := [POOLER.format(layer) for layer in range(layers) if layer not in there]:
        hint = f"; depth={there[-1] + 1} loads it to answer after layer {there[-1]} alone" if there else ""
        raise BadBundle(f"{path}: for an answer after every layer it is missing: {', '.join(missing)}{hint}")
    return ElasticLayout(layers, range(layers - 1), layers - 1, _classifiers(tensors, full=True))


def _static(path: Path, tensors: dict[str, Tensor], layers: int, depth: int) -> ElasticLayout:
    if not 1 <= depth <= layers:
        raise BadSetting(f"depth must be 1 to {layers}, the layers of {path}; got {depth}")
    return ElasticLayout(layers, (), depth - 1, _classifiers(tensors, full=depth == layers))


def _pretraining(path: Path, tensors: dict[str, Tensor], layers: int) -> ElasticLayout:
    if not any(name.startswith("predictions.") for name in tensors):
        raise BadBundle(f"{path} has no heads of pre-training; they are called predictions.…")
    orders = ORDER if any(name.startswith("sop_classifier.") for name in tensors) else None
    return ElasticLayout(layers, range(layers), layers - 1, orders, words=True)


def _classifiers(tensors: dict[str, Tensor], full: bool) -> str | None:
    """How the file names its classifiers; None where those who answer have none, as after pre-training."""
    if any(name.startswith("classifiers.") for name in tensors):
        return EACH
    return ONE if full and f"{ONE}.weight" in tensors else None


def _number(path: Path, tensors: dict[str, Tensor], layout: ElasticLayout) -> int | None:
    """How many labels the file's classifiers know."""
    if layout.classifiers is None:
        return None
    return shape_of(path, tensors, f"{layout.classifiers.format(layout.last)}.weight", 2)[0]


def _our_weights(path: Path, tensors: dict[str, Tensor], names: dict[str, str], may_spare: bool) -> dict[str, Tensor]:
    back = {theirs: ours for ours, theirs in names.items()}
    renamed = {name: _renamed(name, back) for name in tensors}
    unknown = [name for name, ours in renamed.items() if ours is None and not (may_spare and SPARE.fullmatch(name))]
    complain(path, (), unknown)
    return {ours: tensors[name] for name, ours in renamed.items() if ours is not None}


def _answers(
    number: int | None,  # of the file's classifiers
    facts: dict[str, Any],
    task: str | None,
    num_labels: int | None,
    labels: Sequence[str] | None,
) -> tuple[Kind, dict[str, Any]]:
    """The kind of answer and the names of the labels: as asked for, else as in config.json."""
    kind, known = kind_of(task)
    names = labels_of(kind, num_labels, list(labels or known or ()) or None)
    if kind.per_token:
        raise BadSetting("ElasticBERT's poolers answer for a whole text, not for its tokens")
    if number is None:
        named = facts.get("id2label")
        number = len(names) if names is not None else len(named) if isinstance(named, dict) and named else 2
    if task is None:
        kinds = {each.problem_type: each for each in map(answers.make, answers.names())}
        kind = Regression() if number == 1 else kinds.get(str(facts.get("problem_type")), kind)
    return kind, label_names(known_labels(facts, number) if names is None else names, number)


# Writing


def _layout_of(model: AdaptiveModel) -> ElasticLayout:
    """How a model is written; what the layout has no words for is refused."""
    if not isinstance(model.stock, BertForSequenceClassification):
        raise BadSetting(f"ElasticBERT is a BERT that classifies texts; this is a {type(model.stock).__name__}")
    depth = len(model.depth)
    if model.depth != tuple(range(depth)) or depth > model.config.num_hidden_layers:
        raise BadSetting(f"ElasticBERT runs the first layers of BERT; this plan runs {list(model.depth)}")
    heads = [layer for layer in model.head_layers if layer < depth]
    if not heads:
        return ElasticLayout(depth, (), depth - 1, ONE)
    if not isinstance(model.head, (Pooler, SharedPooler, Pretraining)) or model.head.pool != "first":
        raise BadSetting(f"ElasticBERT answers with a pooler on the first token, not with {model.head}")
    words = isinstance(model.head, Pretraining)
    if set(range(depth)) - {*heads, *(() if words else (depth - 1,))}:
        raise BadSetting(f"ElasticBERT answers after every layer; this model has heads after {heads} of {depth}")
    return ElasticLayout(depth, heads, depth - 1, ORDER if words else EACH, words)


FOREIGN["elasticbert"] = start_from_elasticbert
