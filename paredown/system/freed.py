"""Memory that is freed and asked for again: a layer on a CPU does so for every large tensor it makes."""

from __future__ import annotations

import ctypes
import sys
from functools import cache

KEPT = 2**27  # bytes that may stay with the process when they are free
MAPPED = 2**25  # bytes from which on a tensor has pages of its own, as many as glibc lets it be
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # as malloc.h numbers them


@cache
def keep_freed() -> bool:
    """Have glibc hand some freed memory to who asks next, not back to the system, which takes a tenth of the time of
    short texts to give it out anew. False where the system has no such setting."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        option = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):  # not glibc
        return False
    return bool(option(MMAP_THRESHOLD, MAPPED) and option(TRIM_THRESHOLD, KEPT))
