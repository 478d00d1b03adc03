"""Ranges of what linear maps meet: learned from texts, kept in the bundle, and no loss where values grow large."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import gelu, linear
from transformers.activations import GELUActivation

from paredown.errors import BadBundle, BadSetting
from paredown.model import AdaptiveModel
from paredown.ranges import MAPS, SPARE, Inputs, Ranges, spare_terms
from paredown.runtime import learn_ranges, watching
from paredown.runtime.blocks import Dense, FeedForward
from paredown.runtime.int8 import Int8, _evened, _in_terms
from paredown.runtime.watching import ranges_in
from paredown.training import train
from tests.families import adaptive, batch

TEXTS = ["good plot", "the cast was bad but the plot was good", "the movie was good"]
ROWS = [{"text": text, "label": index % 3} for index, text in enumerate(TEXTS * 4)]


def test_training_learns_them_and_the_bundle_keeps_them(model: AdaptiveModel, tmp_path: Path) -> None:
    train(model, "joint:epochs=1", ROWS, output=tmp_path / "run", progress=False)
    assert model.ranges is not None and sorted(model.ranges.layers) == list(range(model.layers))
    assert all(set(maps) == set(MAPS) for maps in model.ranges.layers.values())
    bundle = tmp_path / "run" / "model"
    loaded = AdaptiveModel.from_pretrained(bundle)
    assert loaded.ranges == model.ranges and loaded.fingerprint() == model.fingerprint()
    backend: Any = loaded.use("int8").backend
    assert backend.ranges == model.ranges
    # Weights that change have other ranges.
    train(loaded, "joint:epochs=1", ROWS, output=tmp_path / "more", progress=False)
    assert loaded.ranges not in (None, model.ranges)
    facts = json.loads((bundle / "paredown.json").read_text())
    facts["ranges"] = {"0": 1}
    facts["sha256"].pop("paredown.json")
    (bundle / "paredown.json").write_text(json.dumps(facts))
    with pytest.raises(BadBundle, match="ranges describe"):
        AdaptiveModel.from_pretrained(bundle)


def test_texts_fix_the_scales_of_a_model_that_was_not_trained_here(model: AdaptiveModel) -> None:
    before, fingerprint = model.use("int8").backend, model.fingerprint()
    model.ranges = learn_ranges(model, model.encode(TEXTS))
    model.use("int8")
    assert isinstance(model.backend, Int8) and model.backend is not before and model.backend.ranges == model.ranges
    assert model.fingerprint() != fingerprint  # what was promised of eight bits was promised of other scales
    assert [prediction.label for prediction in model.predict(TEXTS)]


def test_what_cannot_run_in_eight_bits_has_none() -> None:
    assert learn_ranges(adaptive("albert"), []) is None
    assert learn_ranges(adaptive("bert").to(torch.bfloat16), []) is None
    assert learn_ranges(adaptive("bert"), []) is None  # no texts
    with pytest.raises(BadSetting, match="ranges need texts"):
        ranges_in(adaptive("bert").walk, [])


def test_many_rows_are_not_all_read(model: AdaptiveModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "TOKENS", 100)
    read = []

    def rows() -> Any:
        for row in model.encode(TEXTS * 100):
            read.append(row)
            yield row

    assert learn_ranges(model, rows()) is not None
    assert sum(map(len, read)) >= 100 and len(read) <= 3 * watching.ROWS


def test_a_shorter_way_is_watched_too(model: AdaptiveModel) -> None:
    """Layers that are left out change what the next ones meet."""
    inputs = [batch(99, [9, 4])]
    whole, both = ranges_in(model.walk, inputs), ranges_in(model.walk, inputs, depth=(0, model.layers - 1))
    last = model.layers - 1
    assert both.layers[0] == whole.layers[0] and both.layers[last] != whole.layers[last]
    assert both.layers[last]["up"].high >= whole.layers[last]["up"].high


# Values that grow larger than most


def test_outliers_are_those_that_fit_in_the_spare_terms() -> None:
    high = torch.ones(1024)
    high[:40] = torch.linspace(2, 60, 40)
    inner = Inputs.inner(torch.full((1024,), -0.17), high)
    assert 0 < len(inner.terms()) <= spare_terms(1024) == SPARE
    assert inner.usual < 30 and set(inner.outliers) <= set(range(40))
    assert Inputs.inner(torch.zeros(8), torch.zeros(8)).usual > 0  # nothing was ever seen there
    assert Inputs.from_json(json.loads(json.dumps(inner.to_json()))) == inner


def test_inner_values_are_sums_of_terms() -> None:
    """The sum of the terms, each no larger than the usual magnitude, is near to the value."""
    drawn = torch.Generator().manual_seed(0)
    up, bias = torch.randn(256, 32, generator=drawn) / 6, torch.randn(256, generator=drawn) / 10
    up[7] *= 12  # two channels that grow large
    up[99] *= 20
    down = torch.randn(16, 256, generator=drawn)
    hidden = torch.randn(500, 32, generator=drawn)
    inner = gelu(linear(hidden, up, bias))
    found = Inputs.inner(inner.amin(0), inner.amax(0))
    assert {7, 99} <= set(found.outliers) and found.usual < inner.max() / 3
    first, second = _in_terms(FeedForward(Dense(up, bias), GELUActivation(), Dense(down, None)), found)
    assert first.weight.shape == (256 + spare_terms(256), 32) and first.bias is not None
    clipped = gelu(linear(hidden, first.weight, first.bias)).clamp(max=found.usual)
    wanted, least = linear(inner, down), linear(inner.clamp(max=found.usual), down)
    error = (linear(clipped, second.weight) - wanted).pow(2).mean().sqrt()
    assert error < 0.1 * (least - wanted).pow(2).mean().sqrt() and error < 0.02 * wanted.std()


@pytest.mark.parametrize("family", ["bert", "modernbert"])
def test_large_values_are_divided_where_they_are_made(family: str) -> None:
    model = adaptive(family)
    block = Int8(model.walk)._block(0)
    width = block.output.weight.shape[1]
    found = Inputs(-9.0, 9.0, 1.0, {3: 9.0, width - 1: 4.0})
    evened = _evened(block, found)
    hidden = torch.randn(5, block.qkv.weight.shape[1])
    before, after = block.qkv(hidden), evened["qkv"](hidden)
    assert torch.equal(before[:, : 2 * width], after[:, : 2 * width])
    for channel, factor in ((3, 9.0), (width - 1, 4.0), (4, 1.0)):
        assert torch.allclose(before[:, 2 * width + channel], factor * after[:, 2 * width + channel], atol=1e-5)
    values, divided = before[:, 2 * width :], after[:, 2 * width :]
    assert torch.allclose(block.output(values), evened["output"](divided), atol=1e-5)


def test_ranges_of_other_models_are_refused() -> None:
    one, terms = Inputs(-1.0, 9.0, 1.0, {300: 9.0}), FeedForward(Dense(torch.ones(64, 4), torch.ones(64)), gelu, None)  # type: ignore[arg-type]
    with pytest.raises(BadSetting, match="more than 256 channels"):
        one.divisors(256)
    with pytest.raises(BadSetting, match="16 terms for 64 channels"):
        _in_terms(terms, one)
    assert Ranges.from_json({}) == Ranges()
    for wrong in ({"usual": 0.0}, {"usual": float("inf")}, {"low": 10.0}, {"outliers": {"-1": 2.0}}):
        with pytest.raises(BadSetting, match="impossible"):
            Ranges.from_json({"0": dict.fromkeys(MAPS, one.to_json() | wrong)})


def test_a_model_that_meets_infinity_has_none(model: AdaptiveModel) -> None:
    layer: Any = model.walk.layers[0]
    with torch.no_grad():
        layer.intermediate.dense.bias[0] = torch.inf
    assert learn_ranges(model, model.encode(TEXTS)) is None
