"""Which int8 kernel is the fastest on this machine: measured once, then known from a file in the user's cache."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from pathlib import Path
from typing import Any

import torch
from transformers.activations import GELUActivation

from paredown.errors import BadSetting
from paredown.runtime.int8_kernels import KERNELS, UNIT, Kernel, Map, Weights
from paredown.system.machine import cpu, versions
from paredown.system.saving import write_json

ROUNDS = 5
TOKENS = 256


def choose(width: int, inner: int, name: str | None = None) -> Kernel:
    """The kernel of that name, or the one that computes a feed-forward of these sizes in the least time."""
    objections = {one: kernel.objection() for one, kernel in KERNELS.items()}
    if name is not None:
        if name not in KERNELS:
            raise BadSetting(f"there is no int8 kernel {name!r}; there are {', '.join(KERNELS)}")
        if objections[name] is not None:
            raise BadSetting(f"the int8 kernel {name} cannot be used: {objections[name]}")
        return KERNELS[name]
    usable = [one for one, objection in objections.items() if objection is None]
    if not usable:
        reasons = "; ".join(f"{one}: {objection}" for one, objection in objections.items())
        raise BadSetting(f"no int8 kernel can be used ({reasons})")
    seconds = known_seconds(usable, width, inner) if len(usable) > 1 else {}
    return KERNELS[min(usable, key=lambda one: seconds.get(one, 0.0))]


def known_seconds(names: list[str], width: int, inner: int) -> dict[str, float]:
    """What each kernel takes, as the cache knows it, or as it is measured now."""
    path, key = cache_file(), f"{width}x{inner}, {torch.get_num_threads()} threads"
    known = _read(path)
    seconds: dict[str, float] = known["seconds"].get(key, {})
    if not set(names) <= set(seconds):
        known["seconds"][key] = seconds = measure(names, width, inner)
        with contextlib.suppress(OSError):  # what cannot be kept is measured again
            write_json(path, known)
    return seconds


def measure(names: list[str], width: int, inner: int) -> dict[str, float]:
    """Seconds of a feed-forward over some tokens: the least of some rounds in which kernels take turns."""
    drawn = torch.Generator().manual_seed(0)
    up, down = (
        Weights.of(torch.randn(shape, generator=drawn), torch.zeros(shape[0]))
        for shape in ((inner, width), (width, inner))
    )
    hidden = torch.randn((TOKENS, width), generator=drawn)
    maps = {name: feed_forward(KERNELS[name], up, down) for name in names}
    least = dict.fromkeys(names, float("inf"))
    with torch.no_grad():
        for _ in range(ROUNDS):
            for name, function in maps.items():
                begin = time.perf_counter()
                function(hidden)
                least[name] = min(least[name], time.perf_counter() - begin)
    return least


def feed_forward(kernel: Kernel, up: Weights, down: Weights) -> Map:
    """With a GELU, of inputs that lie between -1 and 1."""
    gelu = GELUActivation()
    first, second = kernel.linear(up, UNIT), kernel.linear(down, UNIT)
    return kernel.fused(up, gelu, down, UNIT, UNIT) or (lambda hidden: second(gelu(first(hidden))))


def machine() -> dict[str, Any]:
    """What decides how fast kernels are."""
    return cpu() | versions(("torch",))


def cache_file() -> Path:
    """One file for each machine, as several may share a home."""
    here = machine()
    digest = hashlib.sha256(json.dumps(here, sort_keys=True).encode()).hexdigest()[:12]
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "paredown" / f"int8-{digest}.json"


def _read(path: Path) -> dict[str, Any]:
    """What is known; nothing where the file is none of ours."""
    try:
        known = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(known["seconds"], dict):
            return known
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return {**machine(), "seconds": {}}
