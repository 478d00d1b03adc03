"""Weights under our names into a model that fits them exactly: nothing missing, nothing left over."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import BertConfig, BertModel

from paredown.answers import Kind
from paredown.encoders.dtype import non_finite
from paredown.errors import BadBundle, BadSetting
from paredown.model import AdaptiveModel
from paredown.plan import Plan

VOCABULARIES = ("vocab.txt", "vocab.json", "tokenizer.json")


def _plain(name: str) -> str:
    return name.removeprefix("stock.")


def adopt(
    path: Path,
    stock_class: Any,
    config: Any,
    head: Any,
    layers: Sequence[int],  # those that get a head
    weights: dict[str, Tensor],  # by our names: stock.…, heads.…, grown.…
    kind: Kind,
    tokenizer: Any,
    plan: Plan,
    absent: frozenset[str] = frozenset(),  # parameters the layout does not have
    theirs: Callable[[str], str] = _plain,  # what the layout calls a weight of ours, for errors
    grown: Sequence[int] = (),  # layers that were appended, each by the layer it began as
) -> AdaptiveModel:
    try:
        with torch.device("meta"):  # compare before anything is allocated: the sizes come from the file
            drawn = stock_class(config)
    except (ValueError, KeyError, TypeError, RuntimeError) as error:
        raise BadBundle(f"{path}: its sizes and settings do not make a {config.model_type} encoder: {error}") from error
    stock_weights = {name: value for name, value in weights.items() if name.startswith("stock.")}
    _compare(path, _shapes(drawn, "stock."), stock_weights, absent, theirs)
    model = AdaptiveModel(stock_class(config).eval(), tokenizer, kind)
    if grown:
        model.grow_layers(grown)
    if layers:
        model.grow_heads(head, layers)
    _compare(path, _shapes(model), weights, absent, theirs)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name in weights:
                parameter.copy_(weights[name])
    if bad := non_finite({theirs(name): value for name, value in weights.items()}):
        raise BadBundle(f"{path}: {bad}")
    model.route(plan)
    model.plan = plan
    return model.eval()


def check_encoder(path: Path, config: BertConfig, weights: dict[str, Tensor], theirs: Callable[[str], str]) -> None:
    """Raise BadBundle where weights under the names of a BERT (bert.…) are not all of its encoder, pooler apart."""
    with torch.device("meta"):
        drawn = BertModel(config)
    pooler = frozenset(f"bert.pooler.dense.{part}" for part in ("weight", "bias"))
    _compare(path, _shapes(drawn, "bert."), weights, pooler, theirs)


def count_layers(path: Path, names: Iterable[str], pattern: str) -> int:
    """How many layers the names count; gaps show up later as missing names."""
    if not (numbers := {found[1] for name in names if (found := re.match(pattern, name))}):
        raise BadBundle(f"{path} has no layers under the names of this layout")
    return len(numbers)


def shape_of(path: Path, tensors: Mapping[str, Tensor], name: str, dims: int) -> torch.Size:
    if name not in tensors:
        raise BadBundle(f"{path}: missing: {name}")
    if tensors[name].dim() != dims or 0 in tensors[name].shape:
        raise BadBundle(f"{path}: {name} has the shape {list(tensors[name].shape)}")
    return tensors[name].shape


def heads_for(width: int, given: int | None) -> int:
    """The number of attention heads; by default 64 dimensions each, as in every published size."""
    heads = given or width // 64
    if heads < 1 or width % heads:
        raise BadSetting(f"a width of {width} does not tell the number of attention heads; give attention_heads")
    return heads


def label_names(labels: Sequence[str] | None, number: int) -> dict[str, Any]:
    if labels is None:
        labels = [f"LABEL_{index}" for index in range(number)]
    if len(labels) != number:
        raise BadSetting(f"the checkpoint answers {number} labels, but {len(labels)} are named")
    names = [str(label) for label in labels]
    return {"id2label": dict(enumerate(names)), "label2id": {name: index for index, name in enumerate(names)}}


def tokenizer_in(folder: Path, tokenizer_class: Any) -> Any:
    """The tokenizer of a folder, None where it has no vocabulary."""
    if not any((folder / name).is_file() for name in VOCABULARIES):
        return None
    try:
        return tokenizer_class.from_pretrained(folder)
    except Exception as error:  # a damaged vocabulary fails in many ways
        raise BadBundle(f"{folder} holds a vocabulary that cannot be read: {error}") from error


def complain(path: Path, missing: Iterable[str], unknown: Iterable[str]) -> None:
    parts = []
    for heading, names in (("missing", sorted(missing)), ("unknown", sorted(unknown))):
        if names:
            more = f" and {len(names) - 10} more" if len(names) > 10 else ""
            parts.append(f"{heading}: {', '.join(names[:10])}{more}")
    if parts:
        raise BadBundle(f"{path}: {'; '.join(parts)}")


def _shapes(module: nn.Module, prefix: str = "") -> dict[str, torch.Size]:
    return {prefix + name: parameter.shape for name, parameter in module.named_parameters()}


def _compare(
    path: Path,
    wanted: dict[str, torch.Size],
    weights: dict[str, Tensor],
    absent: frozenset[str],
    theirs: Callable[[str], str],
) -> None:
    missing, unknown = wanted.keys() - weights.keys() - absent, weights.keys() - wanted.keys()
    complain(path, map(theirs, missing), map(theirs, unknown))
    for name, value in weights.items():
        if value.shape != wanted[name] or not value.is_floating_point():
            got = f"{list(value.shape)} of {str(value.dtype).removeprefix('torch.')}"
            raise BadBundle(f"{path}: {theirs(name)} should be {list(wanted[name])}, but is {got}")
