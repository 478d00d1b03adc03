"""The picture of `paredown bench`: a panel for each batch size, readable on logarithmic axes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from paredown.evaluation.plots import save_speeds, speeds

pytest.importorskip("matplotlib")


def found(*sizes: int) -> dict[str, Any]:
    speed = {"transformers sdpa": 40.0, "packed, full depth": 60.0, "packed, plan": 181.4}
    ways = {
        name: {"texts_per_second": value, "times_transformers": value / 40, "agreement": 0.997}
        for name, value in speed.items()
    }
    return {"time": "wall", "batches": {str(size): ways for size in sizes}}


def test_a_panel_for_each_batch_size() -> None:
    figure = speeds(found(1, 32))
    assert [axes.get_title() for axes in figure.axes] == ["batches of 1", "batches of 32"]
    for axes in figure.axes:
        assert axes.get_xscale() == "log" and axes.get_xlim()[0] <= 40 and axes.get_xlim()[1] >= 181
        names = [label.get_text() for label in axes.get_yticklabels()]
        assert names == ["transformers sdpa", "packed, full depth", "packed, plan"]  # from slow to fast
        assert "181 (4.54×, 99.7% same)" in [text.get_text() for text in axes.texts]
        ticks = [axes.xaxis.get_major_formatter()(value, 0) for value in (50, 1000)]
        assert ticks == ["50", "1,000"]
        assert len({bar.get_facecolor() for bar in axes.patches}) == 3


def test_its_name_gives_the_format(tmp_path: Path) -> None:
    for ending, first in (("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")):
        save_speeds(found(8), path := tmp_path / f"speeds.{ending}")
        assert path.read_bytes().startswith(first)
