"""Weights as numbers: how many bits each has, in memory and on disk, and whether all of them are finite."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from paredown.errors import BadBundle, BadSetting, NonFiniteWeights

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16, "float64": torch.float64}
NAMED = 3  # tensors that an error names
Model = TypeVar("Model", bound=nn.Module)


def dtype_named(dtype: str | torch.dtype | None, setting: str = "dtype") -> torch.dtype:
    """A floating-point type by its name; None is 32 bits."""
    name = "float32" if dtype is None else str(dtype).removeprefix("torch.")
    if name not in DTYPES:
        raise BadSetting(f"{setting} must be one of {', '.join(DTYPES)}, not {name!r}")
    return DTYPES[name]


def convert_weights(model: Model, dtype: Any) -> Model:
    """Give weights another type; buffers keep theirs, for rounded tables of positions turn far tokens by radians."""
    if isinstance(dtype, torch.dtype):
        for parameter in model.parameters():
            parameter.data = parameter.data.to(dtype)
    return model


def non_finite(tensors: Mapping[str, Tensor]) -> str:
    """Which tensors hold NaN or infinity, as a phrase for an error; empty where all are finite."""
    bad = {name: value for name, value in tensors.items() if value.is_floating_point() and not is_finite(value)}
    parts = [f"{name} holds {'NaN' if bool(value.isnan().any()) else 'infinity'}" for name, value in bad.items()]
    more = [f"so do {len(parts) - NAMED} more of {len(tensors)} tensors"] if len(parts) > NAMED else []
    narrow = any(value.dtype == torch.float16 and bool(value.isinf().any()) for value in bad.values())
    hint = ["float16 holds no number above 65,504, so try bfloat16 or float32"] if narrow else []
    return "; ".join([*parts[:NAMED], *more, *hint])


def check_loaded(source: str | Path, model: nn.Module) -> None:
    """Raise BadBundle where weights that came from `source` are not finite."""
    if bad := non_finite(dict(model.named_parameters())):
        files = [Path(source) / name for name in ("model.safetensors", "pytorch_model.bin")]
        raise BadBundle(f"{next((path for path in files if path.is_file()), source)}: {bad}")


def check_before_saving(path: str | Path, tensors: Mapping[str, Tensor]) -> None:
    """Raise NonFiniteWeights where tensors that would be written to `path` are not finite."""
    if bad := non_finite(tensors):
        raise NonFiniteWeights(f"{path} is not written: {bad}; what was saved before is as it was")


def is_finite(tensor: Tensor) -> bool:
    """The norm is quick, but may overflow where the tensor does not."""
    norm = torch.linalg.vector_norm(tensor.detach())
    return bool(norm.isfinite()) or bool(tensor.isfinite().all())
