"""The fp8 runtime answers nearly as the packed one does in 16 bits, and as exactly whoever shares its batch."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from paredown.errors import BadSetting
from paredown.model import AdaptiveModel
from paredown.plan import Plan
from paredown.runtime.blocks import BLOCKS
from paredown.runtime.fp8 import EIGHT, LEAST, by_token, scaled
from tests.families import adaptive, batch

LENGTHS = [7, 3, 12, 12, 5, 9]
NEAR = 0.06  # how far logits of a tiny model may be from those in 16 bits, of the largest
DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


def made(family: str, device: str = "cpu") -> AdaptiveModel:
    inner = "hidden_dim" if family == "distilbert" else "intermediate_size"
    return adaptive(family, "single_label", **{inner: 48}).eval().to(device, torch.bfloat16)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("family", sorted(BLOCKS))
def test_answers_are_near_and_do_not_depend_on_neighbours(family: str, device: str) -> None:
    model, inputs = made(family, device), batch(99, LENGTHS)
    wanted = model.use("packed").answer(inputs, Plan()).logits.float()
    assert model.use("fp8").executor.exact is False
    found = model.answer(inputs, Plan()).logits.float()
    assert not torch.equal(found, wanted)
    assert (found - wanted).abs().max() <= NEAR * max(1.0, wanted.abs().max().item())
    for row, length in enumerate(LENGTHS):
        alone = {name: value[row : row + 1, :length] for name, value in inputs.items()}
        assert torch.allclose(model.answer(alone, Plan()).logits.float()[0], found[row], atol=2e-2)


@pytest.mark.parametrize("gelu", [False, True])
@pytest.mark.parametrize("device", DEVICES)
def test_every_token_has_its_own_scale(gelu: bool, device: str) -> None:
    hidden = torch.randn(5, 48, generator=torch.Generator().manual_seed(0)) * torch.logspace(-4, 4, 5).unsqueeze(1)
    hidden[3] = 0
    hidden = hidden.to(device, torch.bfloat16)
    values, scales = by_token(hidden, gelu)
    exact = torch.nn.functional.gelu(hidden.float()) if gelu else hidden.float()
    largest = exact.abs().amax(1, keepdim=True)
    assert values.dtype == EIGHT and scales.shape == (5, 1)
    assert (values.float() * scales - exact).abs().le(largest / 16 + LEAST).all()


def test_weights_that_change_are_rounded_anew() -> None:
    model, inputs = made("bert").use("fp8"), batch(99, LENGTHS)
    before = model.answer(inputs, Plan()).logits
    with torch.no_grad():
        for parameter in model.stock.base_model.parameters():
            parameter.mul_(1.5)
    assert not torch.equal(model.answer(inputs, Plan()).logits, before)


def test_what_cannot_run_so_is_refused_with_the_reason() -> None:
    def refused(model: Any, reason: str) -> None:
        with pytest.raises(BadSetting, match=reason):
            model.use("fp8")

    refused(adaptive("bert", "single_label"), "weights in bfloat16, and these are float32")
    refused(adaptive("bert", "single_label").to(torch.bfloat16), "multiples of 16")  # 37 wide within
    refused(adaptive("albert", "single_label").to(torch.bfloat16), "fast layers are known for")


def test_zeros_stay_zeros() -> None:
    values, scales = scaled(torch.zeros(2, 16))
    assert (values.float() == 0).all() and (scales > 0).all()
