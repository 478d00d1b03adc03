"""What is computed otherwise on a CPU is the same mathematics, and dropout the same distribution."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from paredown.training import cpu, train
from paredown.training.cpu import CpuTraining, attention, dropout
from tests.training.tiny import Steps, rows, stage, tiny

NEAR = {torch.float32: 1e-5, torch.bfloat16: 0.03}


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


# Dropout


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("p", [0.02, 0.1, 0.5])
def test_dropout_keeps_its_share_and_the_mean(p: float, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    ones = torch.ones(401, 501, dtype=dtype, requires_grad=True)
    found = dropout(ones, p)
    assert found is not None and found.dtype == dtype
    assert abs((found == 0).float().mean().item() - p) < 0.005
    assert found.unique().tolist() == pytest.approx([0, 1 / (1 - p)], rel=0.01)
    found.sum().backward()
    assert torch.equal(ones.grad, found.detach()), "what was dropped has no gradient"  # type: ignore[arg-type]


def test_dropout_is_drawn_anew_and_again_from_its_seed() -> None:
    def twice() -> list[Tensor]:
        torch.manual_seed(7)
        with CpuTraining():
            return [F.dropout(torch.ones(3, 5), 0.5) for _ in range(2)]

    first, second = twice()
    assert not torch.equal(first, second)
    assert all(map(torch.equal, (first, second), twice()))


@pytest.mark.parametrize("settings", [{"p": 0.0}, {"p": 1.0}, {"training": False}, {"inplace": True}])
def test_torch_keeps_what_is_rare(settings: dict[str, Any]) -> None:
    assert dropout(torch.ones(4), **settings) is None


# Attention


@pytest.mark.parametrize("tokens", [7, 120])
@pytest.mark.parametrize("dtype", list(NEAR))
@pytest.mark.parametrize("masked", ["nothing", "booleans", "numbers"])
def test_attention_is_torchs(masked: str, dtype: torch.dtype, tokens: int) -> None:
    real = torch.arange(tokens) < torch.tensor([tokens, tokens // 2, 3])[:, None]
    mask: dict[str, Tensor | None] = {
        "nothing": None,
        "booleans": real[:, None, None],
        "numbers": torch.zeros(3, 1, 1, tokens).masked_fill(~real[:, None, None], -1e4).to(dtype),
    }
    # Dropout that drops hardly anything, so that plain products are taken in 32 bits too.
    ways = {"ours": lambda *its: attention(*its, mask[masked], 1e-9), "torch": F.scaled_dot_product_attention}
    answers = []
    for name, way in ways.items():
        parts = [drawn(3, 2, tokens, 8, seed=seed).to(dtype).requires_grad_() for seed in range(3)]
        found: Any = way(*parts) if name == "ours" else way(*parts, mask[masked])
        found.float().square().sum().backward()
        answers.append([found, *(part.grad for part in parts)])
    for mine, theirs in zip(*answers, strict=True):
        assert (mine - theirs).abs().max() <= NEAR[dtype] * max(1.0, theirs.abs().max().item())


def test_attention_that_torch_computes_as_fast_is_left_to_it() -> None:
    asking = drawn(1, 2, 5, 4).requires_grad_()
    assert attention(asking, asking, asking) is None
    assert attention(asking.detach(), asking, asking, dropout_p=0.1) is None, "nothing learns"
    assert attention(asking, asking, asking, dropout_p=0.1, is_causal=True) is None


def test_attention_drops_some_of_its_weights() -> None:
    asking, values = drawn(1, 1, 3, 4).requires_grad_(), torch.eye(200).expand(1, 1, 200, 200)
    with CpuTraining():
        weights = F.scaled_dot_product_attention(asking, drawn(1, 1, 200, 4), values, dropout_p=0.25)
    assert abs((weights == 0).float().mean().item() - 0.25) < 0.1


# Training


def test_without_dropout_the_same_is_learnt_to_the_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def learnt(name: str) -> dict[str, Tensor]:
        model = tiny(dropout=0.0)
        train(model, Steps([stage()]), rows(20), rows(9), output=tmp_path / name)
        return model.state_dict()

    ours = learnt("ours")
    monkeypatch.setattr(cpu, "FASTER", {})
    theirs = learnt("torch's")
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_runs_on_a_cpu_take_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []
    monkeypatch.setitem(cpu.FASTER, F.dropout, lambda *its, **more: taken.append(its) or dropout(*its, **more))
    train(tiny(), Steps([stage()]), rows(20), rows(9), output=tmp_path / "run")
    assert taken
    taken.clear()
    again: Any = tiny()
    again.stock.gradient_checkpointing_enable()  # layers that run again on the way back must draw the same
    train(again, Steps([stage()]), rows(20), rows(9), output=tmp_path / "again")
    assert not taken
