"""What measured times depend on: the CPU and its vector instructions, the GPU, threads, and versions."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

# Instructions that decide which kernels run: by torch's names, ours.
FLAGS = {
    "avx2": "avx2",
    "fma3": "fma",
    "avx512_f": "avx512f",
    "avx512_vnni": "avx512_vnni",
    "avx_vnni": "avx_vnni",
    "avx512_bf16": "avx512_bf16",
    "amx_int8": "amx_int8",
    "amx_bf16": "amx_bf16",
}


def cpu() -> dict[str, Any]:
    known = torch.cpu.get_capabilities()
    return {
        "cpu": known.get("cpu_name") or "unknown",
        "flags": [flag for name, flag in FLAGS.items() if known.get(name)],
    }


def machine(device: torch.device | None = None, packages: Sequence[str] = ()) -> dict[str, Any]:
    """The facts of a result. `device`: where it was found; None: a GPU where there is one. `packages`: those that had a
    part in it, beside torch and transformers."""
    where = device or torch.device("cuda" if torch.cuda.is_available() else "cpu")
    gpu = torch.cuda.get_device_name(where) if where.type == "cuda" else None
    here = cpu()
    return {
        "device": gpu or here["cpu"],
        **here,
        "gpu": gpu,
        "threads": torch.get_num_threads(),
        **versions(("torch", "transformers", *packages)),
    }


def versions(packages: Sequence[str]) -> dict[str, str]:
    """Of those that are installed."""
    found = {}
    for name in packages:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def computes_bfloat16(device: torch.device) -> bool:
    """Whether it has instructions for products in bfloat16, which are several times as fast as those in 32 bits."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    known = torch.cpu.get_capabilities() if device.type == "cpu" else {}
    return bool(known.get("avx512_bf16") or known.get("amx_bf16"))
