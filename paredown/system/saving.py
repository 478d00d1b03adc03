"""Files that are at every moment either the old ones or the new ones, and one clear error where they cannot be."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from torch import Tensor

from paredown.errors import CannotSave


@contextmanager
def saving(path: str | os.PathLike[str], tensors: dict[str, Tensor] | None = None) -> Iterator[None]:
    """Turn what the system says when a disk is full or read-only into one clear error."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        size = sum(value.numel() * value.element_size() for value in (tensors or {}).values())
        what = f"{path} ({size:,} bytes)" if size else str(path)
        raise CannotSave(f"cannot write {what}: {error}; what was saved before is intact") from error


@contextmanager
def staged(folder: str | Path) -> Iterator[Path]:
    """A temporary sibling to write into; it takes the folder's place when everything is on the disk."""
    folder = Path(folder).resolve()
    folder.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        yield fresh
        fresh.chmod(0o755)
        for path in [*fresh.rglob("*"), fresh]:
            sync(path)
        if folder.exists():
            old = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
            folder.rename(old / folder.name)
            fresh.rename(folder)
            shutil.rmtree(old)
        else:
            fresh.rename(folder)
        sync(folder.parent)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def write_text(path: Path, text: str) -> None:
    write_bytes(path, text.encode())


def write_bytes(path: Path, *blocks: bytes) -> None:
    """Put a file in the place of the one there was, in one move."""
    handle, fresh = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.writelines(blocks)
        os.chmod(fresh, 0o644)
        sync(Path(fresh))
        os.replace(fresh, path)
    except BaseException:
        os.unlink(fresh)
        raise
    sync(path.parent)


def write_json(path: Path, data: Any) -> None:
    with saving(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, json.dumps(data, indent=1) + "\n")


def sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
