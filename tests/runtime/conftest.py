"""Fixtures of the runtimes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from paredown.system import products


@pytest.fixture(params=["torch", "onednn"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """What computes every product in 32 bits, however small."""
    if request.param == "onednn" and not products.KNOWN:
        pytest.skip("this torch comes without oneDNN")
    monkeypatch.setattr(products, "LEAST", 1)
    seconds = {name: 2.0 - (name == request.param) for name in ("torch", "onednn")}
    monkeypatch.setattr(products, "known_seconds", lambda *unused: seconds)
    products.prefers_onednn.cache_clear()
    yield request.param
    products.prefers_onednn.cache_clear()
