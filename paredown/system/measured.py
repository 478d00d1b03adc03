"""How long pieces of work take on this machine: measured once, then known from a file in the user's cache.

By one thread, however many a process has: so all processes of a machine compute in the same way, to the same bits.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from paredown.errors import CannotSave
from paredown.system.machine import cpu, versions
from paredown.system.saving import write_json

ROUNDS = 5
Works = Mapping[str, Callable[[], Any]]  # by name


def known_seconds(of: str, names: Sequence[str], make: Callable[[], Works]) -> dict[str, float]:
    """What each named work takes, as the cache knows it, or as it is measured now. `of`: what they are alternatives
    for."""
    path = cache_file()
    known = _read(path)
    seconds: dict[str, float] = known["seconds"].get(of, {})
    if not set(names) <= set(seconds):
        with one_thread():
            known["seconds"][of] = seconds = measure(make())
        with contextlib.suppress(CannotSave):  # what cannot be kept is measured again
            write_json(path, known)
    return seconds


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def measure(works: Works) -> dict[str, float]:
    """Seconds of each: the least of some rounds in which they take turns."""
    least = dict.fromkeys(works, float("inf"))
    with torch.no_grad():
        for _ in range(ROUNDS):
            for name, work in works.items():
                begin = time.perf_counter()
                work()
                least[name] = min(least[name], time.perf_counter() - begin)
    return least


def machine() -> dict[str, Any]:
    """What decides how long work takes."""
    return cpu() | versions(("torch",))


def cache_file() -> Path:
    """One file for each machine, as several may share a home."""
    here = machine()
    digest = hashlib.sha256(json.dumps(here, sort_keys=True).encode()).hexdigest()[:12]
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "paredown" / f"seconds-{digest}.json"


def _read(path: Path) -> dict[str, Any]:
    """What is known; nothing where the file is none of ours."""
    try:
        known = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(known["seconds"], dict):
            return known
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return {**machine(), "seconds": {}}
