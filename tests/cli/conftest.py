"""Commands without what takes most of their time and is tested elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest
from matplotlib.figure import Figure


@pytest.fixture(autouse=True)
def blank_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures are drawn for their files' names alone; `tests/evaluation` looks at real ones."""
    monkeypatch.setattr(Figure, "savefig", lambda self, path, **settings: Path(path).touch())
