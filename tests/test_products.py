"""Linear maps in 32 bits by the faster library, and what is measured to know which that is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from paredown.runtime.parts import PART, in_parts
from paredown.system import measured, products
from paredown.system.products import EXACT, FEW, LinearMap, laid_out, onednn, rounded, suits

needs_onednn = pytest.mark.skipif(not products.KNOWN, reason="this torch comes without oneDNN")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "paredown"


@pytest.fixture
def preferred(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As on a machine where oneDNN is faster."""
    monkeypatch.setattr(products, "known_seconds", lambda *unused: {"torch": 2.0, "onednn": 1.0})
    products.prefers_onednn.cache_clear()
    yield
    products.prefers_onednn.cache_clear()


def drawn(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape)))


@needs_onednn
@pytest.mark.parametrize("tokens", [1, 7, 33, 200])
@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("ready", [True, False])
def test_onednn_computes_the_same(tokens: int, with_bias: bool, ready: bool) -> None:
    hidden, weight = drawn(tokens, 96), drawn(160, 96)
    bias = drawn(160) if with_bias else None
    wanted = F.linear(hidden, weight, bias)
    with torch.no_grad():
        used = laid_out(weight) if ready else weight
        assert torch.allclose(onednn(hidden, used, bias), wanted, atol=1e-4)
        assert torch.allclose(onednn(hidden, used, bias, gelu=True), F.gelu(wanted), atol=1e-4)
        columns = drawn(tokens, 192)[:, 48:144]  # not contiguous
        assert torch.allclose(onednn(columns, used, bias), F.linear(columns, weight, bias), atol=1e-4)
        square = hidden.expand(2, tokens, 96)
        assert torch.allclose(onednn(square, used, bias)[1], wanted, atol=1e-4)


@needs_onednn
def test_who_computes_a_product(preferred: None) -> None:
    hidden, weight = drawn(64, 256), drawn(128, 256)
    assert products.LEAST <= 64 * 256 * 128
    with torch.no_grad():
        assert suits(hidden, weight)
        assert not suits(hidden[:1], weight)  # a call costs more than it saves
        assert not suits(hidden.double(), weight.double()) and not suits(hidden.bfloat16(), weight.bfloat16())
    assert not suits(hidden, weight)  # it knows no gradients
    linear = LinearMap(256, 128)
    linear(hidden).sum().backward()
    assert linear.weight.grad is not None
    with torch.inference_mode():
        assert torch.allclose(linear(hidden), F.linear(hidden, linear.weight, linear.bias), atol=1e-5)


@needs_onednn
def test_few_kernels_are_made(preferred: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """For whatever numbers of tokens a head reads."""
    sizes, linear = set(), LinearMap(256, 128)

    def noted(hidden: Tensor, *others: Any) -> Tensor:
        sizes.add(len(hidden))
        return onednn(hidden, *others)

    monkeypatch.setattr(products, "onednn", noted)
    with torch.inference_mode():
        for tokens in range(64, 128):
            hidden = drawn(tokens, 256)
            assert torch.allclose(linear(hidden), F.linear(hidden, linear.weight, linear.bias), atol=1e-5)
        assert linear(drawn(2, 45, 256)).shape == (2, 45, 128)
    assert sizes == {rounded(tokens) for tokens in range(64, 128)} and len(sizes) == 17


@needs_onednn
def test_the_work_is_counted(preferred: None) -> None:
    hidden, linear = drawn(2, 40, 256), LinearMap(256, 128)
    counted = []
    for without in (torch.no_grad, torch.enable_grad):
        with FlopCounterMode(display=False) as counter, without():
            linear(hidden)
        counted.append(counter.get_total_flops())
    assert counted == [2 * 80 * 256 * 128] * 2


@pytest.mark.parametrize(("torch_seconds", "wanted"), [(1.0, False), (1.05, False), (1.2, True)])
def test_onednn_must_be_clearly_faster(torch_seconds: float, wanted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "known_seconds", lambda *unused: {"torch": torch_seconds, "onednn": 1.0})
    products.prefers_onednn.cache_clear()
    assert products.prefers_onednn() is (wanted and products.KNOWN)
    products.prefers_onednn.cache_clear()


def test_work_is_measured_once(cache: Path) -> None:
    made = []

    def make() -> measured.Works:
        made.append(1)
        return {"fast": lambda: None, "slow": lambda: sum(range(100_000))}

    seconds = measured.known_seconds("a sum", ("fast", "slow"), make)
    assert 0 < seconds["fast"] < seconds["slow"] < 10
    assert measured.known_seconds("a sum", ("fast", "slow"), make) == seconds and len(made) == 1
    assert measured.known_seconds("another", ("fast",), make) and len(made) == 2
    measured.known_seconds("a sum", ("fast", "new"), make)  # a way that came later
    assert len(made) == 3
    file = measured.cache_file()
    known = json.loads(file.read_text())
    assert file.parent == cache and known["flags"] == measured.machine()["flags"] and len(known["seconds"]) == 2
    for damaged in ("[]", "{", '{"seconds": 3}'):
        file.write_text(damaged)
        measured.known_seconds("a sum", ("fast", "slow"), make)
    assert len(made) == 6
    file.unlink()
    cache.rmdir()
    cache.write_text("no folder can be made here")
    assert measured.known_seconds("a sum", ("fast", "slow"), make)


def test_all_numbers_of_threads_know_the_same(cache: Path) -> None:
    """Else processes of one machine would compute with other kernels, and to other bits."""
    before, seen = torch.get_num_threads(), []
    try:
        for threads in (2, 1):
            torch.set_num_threads(threads)
            measured.known_seconds("a sum", ("a",), lambda: {"a": lambda: seen.append(torch.get_num_threads())})
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert seen == [1] * measured.ROUNDS


def test_parts_have_few_sizes_and_lose_nothing() -> None:
    sizes: list[int] = []

    def noted(hidden: Tensor) -> Tensor:
        sizes.append(len(hidden))
        return hidden * 2

    hidden = torch.randn(PART + 35, 4)
    assert torch.equal(in_parts(noted, rounds=True)(hidden), hidden * 2) and sizes == [PART, 36]
    assert torch.equal(in_parts(noted, rounds=False)(hidden), hidden * 2) and sizes[2:] == [PART, 35]


def test_numbers_of_tokens_are_few_and_hardly_larger() -> None:
    assert [rounded(tokens) for tokens in range(EXACT + 1)] == list(range(EXACT + 1))
    assert all(tokens <= rounded(tokens) <= tokens * 17 / 16 + 1 for tokens in range(1, PART + 1))
    assert all(rounded(tokens) <= tokens * 33 / 32 + 1 for tokens in range(FEW + 1, PART + 1))
    assert rounded(PART) == PART and len({rounded(tokens) for tokens in range(1, PART + 1)}) < 170
