"""Checkpoints: safetensors and JSON in staged folders with a manifest. A crash at any time leaves a complete one."""

from __future__ import annotations

import json
import logging
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from paredown.encoders.dtype import check_before_saving, non_finite
from paredown.errors import BadBundle
from paredown.system.saving import saving, sha256, staged

MODEL, OPTIMIZER, STATE, MANIFEST = "model.safetensors", "optimizer.safetensors", "state.json", "manifest.json"
NEWEST = 2  # checkpoints to resume from
KEPT = "kept"  # folder of a run: bundles of the model at every checkpoint, where asked for
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Checkpoint:
    path: Path

    @property
    def step(self) -> int:
        return int(self.path.name.removeprefix("step-"))

    def state(self) -> dict[str, Any]:
        return json.loads((self.path / STATE).read_text(encoding="utf-8"))

    def load_model(self, model: nn.Module) -> None:
        copy_into(tensors_of(model), load_file(self.path / MODEL), self.path)

    def optimizer(self) -> dict[str, Tensor]:
        return load_file(self.path / OPTIMIZER)


class Checkpoints:
    """output/checkpoints/step-… to resume from, and output/best/step-… with the weights a stage will end with."""

    def __init__(self, output: Path):
        self.folder, self.best_folder = output / "checkpoints", output / "best"

    def save(
        self, step: int, model: nn.Module, optimizer: dict[str, Tensor], state: dict[str, Any], best: int | None
    ) -> None:
        path = self.folder / step_name(step)
        weights, moments = _on_cpu(tensors_of(model)), _on_cpu(optimizer)
        check_before_saving(path, weights | moments)
        with saving(path, weights | moments), staged(path) as fresh:
            save_file(weights, fresh / MODEL)
            save_file(moments, fresh / OPTIMIZER)
            (fresh / STATE).write_text(json.dumps(state), encoding="utf-8")
            manifest = {"best": best, "sha256": {file.name: sha256(file) for file in sorted(fresh.iterdir())}}
            (fresh / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
        self._prune(step)

    def newest(self) -> Checkpoint | None:
        """The newest complete and finite checkpoint; others are passed over with a warning."""
        for path in sorted(self.folder.glob("step-*"), reverse=True):
            try:
                return _checked(path)
            except BadBundle as error:
                log.warning("%s; trying the checkpoint before it", error)
        return None

    def save_best(self, step: int, tensors: dict[str, Tensor]) -> None:
        path, tensors = self.best_folder / step_name(step), _on_cpu(tensors)
        check_before_saving(path, tensors)
        with saving(path, tensors), staged(path) as fresh:
            save_file(tensors, fresh / MODEL)

    def load_best(self, step: int, tensors: dict[str, Tensor]) -> None:
        path = self.best_folder / step_name(step)
        try:
            copy_into(tensors, load_file(path / MODEL), path)
        except (OSError, SafetensorError) as error:
            raise BadBundle(f"the best weights of the stage cannot be read from {path}: {error}") from error

    def clean(self) -> None:
        """Remove what a killed process left half written."""
        for path in [*self.folder.glob(".step-*"), *self.best_folder.glob(".step-*")]:
            shutil.rmtree(path, ignore_errors=True)

    def _prune(self, step: int) -> None:
        """Keep the newest checkpoints and the best weights they name; later ones are of a run that was left behind."""
        names = sorted(path.name for path in self.folder.glob("step-*"))
        kept = [name for name in names if name <= step_name(step)][-NEWEST:]
        best = {json.loads((self.folder / name / MANIFEST).read_text(encoding="utf-8"))["best"] for name in kept}
        wanted = {step_name(number) for number in best if number is not None}
        for path in self.folder.glob("step-*"):
            if path.name not in kept:
                shutil.rmtree(path, ignore_errors=True)
        for path in self.best_folder.glob("step-*"):
            if path.name not in wanted:
                shutil.rmtree(path, ignore_errors=True)


def _checked(path: Path) -> Checkpoint:
    try:
        manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        digests = manifest["sha256"]
        wrong = [name for name in (MODEL, OPTIMIZER, STATE) if sha256(path / name) != digests[name]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadBundle(f"the checkpoint {path} is incomplete ({error!r})") from error
    if wrong:
        raise BadBundle(f"the checkpoint {path} is damaged ({', '.join(wrong)})")
    if bad := non_finite(load_file(path / MODEL) | load_file(path / OPTIMIZER)):
        raise BadBundle(f"the checkpoint {path} is of no use: {bad}")
    return Checkpoint(path)


def tensors_of(model: nn.Module) -> dict[str, Tensor]:
    """Every parameter and saved buffer once, however many names it has."""
    lasting = model.state_dict().keys()
    buffers = {name: value for name, value in model.named_buffers() if name in lasting}
    return {**dict(model.named_parameters()), **buffers}


def copy_into(ours: dict[str, Tensor], saved: dict[str, Tensor], path: Path) -> None:
    if strange := sorted(ours.keys() ^ saved.keys()):
        raise BadBundle(f"{path} was written for another model: {strange[0]} is not in both")
    with torch.no_grad():
        for name, value in ours.items():
            if value.shape != saved[name].shape:
                shapes = f"{list(saved[name].shape)}, not {list(value.shape)}"
                raise BadBundle(f"{path} was written for another model: {name} has shape {shapes}")
            value.copy_(saved[name])


def _on_cpu(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.detach().cpu().contiguous() for name, value in tensors.items()}


def step_name(step: int) -> str:
    return f"step-{step:08d}"
