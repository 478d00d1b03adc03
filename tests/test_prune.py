"""Pruned models: an ordinary transformers model of the plan's layers gives the plan's answers."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForSequenceClassification

from paredown import AdaptiveModel, Plan
from paredown.encoders.prune import export_hf, pruned
from paredown.errors import BadPlan
from tests.families import adaptive, batch, walked

# A head over all layers' attention maps; residuals scaled by the number of layers.
CANNOT_BE_CUT = {"esm": "other parts", "esmc": "cannot be moved"}
CANNOT_HOLD = {"albert"}  # one layer's weights for all layers: it can be shorter, but not hold layers that differ


def grown(family: str) -> AdaptiveModel:
    """A model whose plan runs three appended layers with weights of their own."""
    model = adaptive(family, head=None)
    depth = model.grow_layers((0, 1, 2))
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.grown.parameters():
            parameter.add_(0.02 * torch.randn(parameter.shape, generator=generator))
    model.plan = Plan(depth=depth)
    return model


@pytest.mark.parametrize("family", [family for family in walked() if family not in CANNOT_BE_CUT])
def test_the_first_layers_of_every_family(family: str) -> None:
    model = adaptive(family, head=None, plan=Plan(depth=(0, 1)))
    inputs = batch(99, [12, 7, 3])
    with torch.no_grad():
        outputs = pruned(model)(**inputs).logits
    assert pruned(model).config.num_hidden_layers == 2
    torch.testing.assert_close(outputs, model.answer(inputs).logits, rtol=0, atol=1e-6)


@pytest.mark.parametrize("family", [family for family in walked() if family not in {*CANNOT_HOLD, *CANNOT_BE_CUT}])
def test_appended_layers_of_every_family(family: str) -> None:
    model, inputs = grown(family), batch(99, [12, 7, 3])
    with torch.no_grad():
        outputs = pruned(model)(**inputs).logits
    torch.testing.assert_close(outputs, model.answer(inputs).logits, rtol=0, atol=1e-6)


@pytest.mark.parametrize(("family", "reason"), CANNOT_BE_CUT.items())
def test_families_that_cannot_be_cut_say_why(family: str, reason: str) -> None:
    with pytest.raises(BadPlan, match=reason):
        pruned(adaptive(family, head=None, plan=Plan(depth=(0, 1))))


def test_a_family_that_shares_one_layer_cannot_hold_others() -> None:
    with pytest.raises(BadPlan, match="shares one layer"):
        pruned(grown("albert"))


def test_export_is_an_ordinary_folder(tmp_path: Path) -> None:
    model, inputs = grown("bert"), batch(99, [9, 4])
    assert export_hf(model, tmp_path / "out") == Plan(depth=model.depth)
    plain = AutoModelForSequenceClassification.from_pretrained(tmp_path / "out").eval()
    assert plain.config.num_hidden_layers == 3 and not (tmp_path / "out" / "paredown.json").exists()
    with torch.no_grad():
        torch.testing.assert_close(plain(**inputs).logits, model.answer(inputs).logits, rtol=0, atol=1e-6)


def test_a_head_at_the_end_is_not_lost_silently() -> None:
    model = adaptive("bert", plan=Plan(depth=(0, 1)))
    with pytest.raises(BadPlan, match="after layer 1 a head answers"):
        pruned(model)
    outputs = pruned(model, own_classifier=True)(**batch(99, [5])).logits
    assert outputs.shape == (1, 3)
    bare = adaptive("bert", plan="entropy:0.5")  # no head after the last layer: exits are left out, the answer stays
    with torch.no_grad():
        expected = bare.answer(batch(99, [5]), Plan()).logits
        torch.testing.assert_close(pruned(bare)(**batch(99, [5])).logits, expected, rtol=0, atol=1e-6)
