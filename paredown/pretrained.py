"""The Hugging Face side of a checkpoint, from a folder or a hub id: no code in it is run, no pickle opened."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors import SafetensorError
from transformers import AutoConfig, AutoTokenizer

from paredown.errors import BadBundle, BadSetting
from paredown.kinds import KINDS, Kind, kind_named
from paredown.numbers import check_loaded
from paredown.registry import tasks


def stock_of(
    source: str | Path, kind: Kind, names: list[str] | None, settings: dict[str, Any], complete: bool = False
) -> tuple[Any, Any]:
    """The Hugging Face model and tokenizer: safetensors only, no remote code; `complete`: no weight may be missing."""
    changes: dict[str, Any] = {}
    if names is not None:
        changes = {
            "num_labels": len(names),
            "id2label": dict(enumerate(names)),
            "label2id": {name: place for place, name in enumerate(names)},
        }
    if kind.problem_type is not None:
        changes["problem_type"] = kind.problem_type
    safe = {"trust_remote_code": False}
    try:
        config = AutoConfig.from_pretrained(source, **changes, **safe, **hub_settings(settings))
        cls = getattr(transformers, kind.auto_class)
        told = {"config": config, "use_safetensors": True, "output_loading_info": True}
        stock, info = cls.from_pretrained(source, **told, **safe, **settings)
        tokenizer = AutoTokenizer.from_pretrained(source, **safe, **hub_settings(settings))
    except torch.OutOfMemoryError:
        raise
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise BadBundle(f"{source} cannot be loaded as a {kind.name} model: {error}") from error
    if complete and info["missing_keys"]:
        lacking = ", ".join(sorted(info["missing_keys"])[:5])
        raise BadBundle(f"{source} lacks weights that {type(stock).__name__} has: {lacking}")
    check_loaded(source, stock)
    return stock, tokenizer


def chooses_options(source: str | Path, settings: dict[str, Any]) -> bool:
    """Whether it is a checkpoint for multiple choice, as transformers calls it: one score for each option."""
    try:
        config = AutoConfig.from_pretrained(source, trust_remote_code=False, **hub_settings(settings))
    except (OSError, ValueError):  # loading will say it better
        return False
    return any(name.endswith("ForMultipleChoice") for name in config.architectures or ())


def hub_settings(settings: dict[str, Any]) -> dict[str, Any]:
    return {name: settings[name] for name in ("revision", "token", "cache_dir", "local_files_only") if name in settings}


def kind_of(task: str | None) -> tuple[Kind, list[str] | None]:
    """The kind of answer a task wants, and its labels where they are known."""
    if task is None or task in KINDS:
        return KINDS[task or "single_label"], None
    entry = tasks.make(task)
    return kind_named(entry.kind or "single_label"), list(entry.labels) or None  # some find both in their files


def labels_of(kind: Kind, number: int | None, names: list[str] | None) -> list[str] | None:
    if names is not None and number is not None and len(names) != number:
        raise BadSetting(f"num_labels={number}, but {len(names)} labels are named: {', '.join(names)}")
    if kind.outputs:
        if names is not None or number not in (None, len(kind.outputs)):
            said = f"a model of the kind {kind.name!r} says {', '.join(kind.outputs)}"
            raise BadSetting(f"{said}, whatever the question; leave labels and num_labels out")
        return list(kind.outputs)
    if names is None and kind.name == "regression":
        number = number or 1
    return names if names is not None else None if number is None else [f"LABEL_{place}" for place in range(number)]


def model_type(folder: Path) -> str:
    try:
        return str(json.loads((folder / "config.json").read_text(encoding="utf-8")).get("model_type"))
    except (OSError, ValueError, RecursionError, AttributeError):  # a hub id, or what transformers will complain of
        return ""
