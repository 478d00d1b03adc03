"""Memory that runs out, and memory that is looked through for garbage."""

from __future__ import annotations

import gc

import torch


def is_out_of_memory(error: BaseException) -> bool:
    """Also where a library of the GPU found no room for its own needs; that is a plain RuntimeError."""
    message = str(error).lower()
    return isinstance(error, torch.OutOfMemoryError) or "out of memory" in message or "status_alloc_failed" in message


def spare_collections() -> None:
    """Let garbage be looked for less often: where millions of small objects come and go, of which none refer to each
    other in circles, that takes a fifth of the time."""
    gc.freeze()  # what was imported and loaded is here to stay
    gc.set_threshold(100_000, 20, 100)
