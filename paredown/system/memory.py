"""Memory that runs out."""

from __future__ import annotations

import torch


def is_out_of_memory(error: BaseException) -> bool:
    """Also where a library of the GPU found no room for its own needs; that is a plain RuntimeError."""
    message = str(error).lower()
    return isinstance(error, torch.OutOfMemoryError) or "out of memory" in message or "status_alloc_failed" in message
