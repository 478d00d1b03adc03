"""Memory that runs out, memory that is held at most, and memory that is looked through for garbage."""

from __future__ import annotations

import ctypes
import gc
from contextlib import suppress
from pathlib import Path

import torch

PROCESS = Path("/proc/self")


def is_out_of_memory(error: BaseException) -> bool:
    """Also where a library of the GPU found no room for its own needs; that is a plain RuntimeError."""
    message = str(error).lower()
    return isinstance(error, torch.OutOfMemoryError) or "out of memory" in message or "status_alloc_failed" in message


def spare_collections() -> None:
    """Let garbage be looked for less often: where millions of small objects come and go, of which none refer to each
    other in circles, that takes a fifth of the time."""
    gc.freeze()  # what was imported and loaded is here to stay
    gc.set_threshold(100_000, 20, 100)


class HeldMemory:
    """How many bytes more than at first this process, or a GPU, holds at most; None where the system does not tell."""

    def __init__(self, device: torch.device):
        self.device = device
        gc.collect()
        with suppress(OSError, AttributeError):  # what is free goes back to the system, else it would hide new needs
            ctypes.CDLL(None).malloc_trim(0)
        self.before = self._now()

    def watch(self) -> None:
        """Forget the peak so far: what was needed to get ready does not count."""
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
            return
        with suppress(OSError):
            (PROCESS / "clear_refs").write_text("5")

    @property
    def peak(self) -> int | None:
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated(self.device) - self.before
        now = _resident("VmHWM")
        return None if now is None else max(0, now - self.before)

    def _now(self) -> int:
        if self.device.type == "cuda":
            return torch.cuda.memory_allocated(self.device)
        return _resident("VmRSS") or 0


def _resident(name: str) -> int | None:
    """Bytes of this process in memory, as Linux counts them."""
    try:
        lines = (PROCESS / "status").read_text().splitlines()
    except OSError:
        return None
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith(f"{name}:")), None)
