"""Functions of objects that are not ours, replaced for a moment and for this thread alone."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

_patching = threading.RLock()  # one thread patches at a time; the others call the functions as they are


@contextmanager
def patched(owners: Iterable[Any], name: str, ours: Callable[..., Any]) -> Iterator[None]:
    """Replace the method `name` of every owner."""
    with _patching:
        before = [(owner, owner.__dict__.get(name)) for owner in {id(owner): owner for owner in owners}.values()]
        try:
            for owner, _ in before:
                setattr(owner, name, _only_here(ours, getattr(owner, name)))
            yield
        finally:
            for owner, own in before:
                if own is None:
                    owner.__dict__.pop(name, None)
                else:
                    setattr(owner, name, own)


def _only_here(ours: Callable[..., Any], theirs: Callable[..., Any]) -> Callable[..., Any]:
    """One function in this thread, another in all others."""
    here = threading.get_ident()
    return lambda *args, **kwargs: (ours if threading.get_ident() == here else theirs)(*args, **kwargs)
