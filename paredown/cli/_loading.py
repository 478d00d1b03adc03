"""Models for commands: errors of one line, and a device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from paredown.bundle import FACTS
from paredown.errors import BadBundle, BadSetting
from paredown.model import AdaptiveModel


def is_bundle(source: str) -> bool:
    return (Path(source) / FACTS).is_file()


def check_place(source: str) -> None:
    """A path that is not there must not be asked of the hub, which knows only `name` and `owner/name`."""
    path = Path(source)
    if path.is_file():
        raise BadBundle(f"{source} is a file; a model is a folder or a hub id")
    looks_local = path.is_absolute() or source.startswith((".", "~")) or len(path.parts) > 2 or source.endswith("/")
    if looks_local and not path.is_dir():
        raise BadBundle(f"{source}: there is no such folder")


def load_bundle(source: str) -> AdaptiveModel:
    check_place(source)
    if not is_bundle(source):
        raise BadBundle(f"{source} is not a bundle: it has no {FACTS}; `paredown train` makes one")
    return load_any(source)


def load_any(source: str, **settings: Any) -> AdaptiveModel:
    """A model; what transformers has to say of a failure is cut to its first line."""
    check_place(source)
    try:
        return AdaptiveModel.from_pretrained(source, **settings)
    except BadBundle as error:
        raise BadBundle(first_line(error)) from None


def first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def device_named(name: str) -> str:
    if name not in ("auto", "cpu", "cuda"):
        raise BadSetting(f"--device is auto, cpu or cuda, not {name!r}")
    there = torch.cuda.is_available()
    if name == "cuda" and not there:
        raise BadSetting("there is no CUDA device here; --device cpu or auto")
    return "cuda" if there and name != "cpu" else "cpu"
