"""Real questions, where they are: in $PAREDOWN_DATA, else beside the repository in shared/data."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

DATA = Path(os.environ.get("PAREDOWN_DATA") or Path(__file__).resolve().parents[3] / "shared" / "data")


def unpacked(folder: str, root: Path) -> Path:
    """A folder of the archive, unpacked below `root`; skips the test where there is no archive."""
    archive = DATA / "qa.tar.xz"
    if not archive.is_file():
        pytest.skip(f"the real data is not here: no {archive}")
    subprocess.run(["tar", "-C", root, "-xJf", archive, folder], check=True)
    return root / folder
