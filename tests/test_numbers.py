"""Weights have 32 bits in memory and on disk unless asked otherwise, and are finite wherever they come from or go."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSequenceClassification

from paredown import AdaptiveModel, Plan
from paredown.encoders.dtype import dtype_named, non_finite
from paredown.encoders.longer import lengthened
from paredown.encoders.prune import export_hf
from paredown.errors import BadBundle, BadSetting, NonFiniteWeights
from paredown.published import load_elasticbert, save_elasticbert
from paredown.system.saving import sha256
from tests.families import adaptive, batch

NARROW = [torch.float16, torch.bfloat16]


def types_of(model: torch.nn.Module) -> set[torch.dtype]:
    return {parameter.dtype for parameter in model.parameters()}


def types_in(path: Path) -> set[torch.dtype]:
    return {value.dtype for value in load_file(path).values()}


def name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def plain_folder(model: AdaptiveModel, folder: Path, dtype: torch.dtype) -> Path:
    model.stock.to(dtype).save_pretrained(folder)
    model.tokenizer.save_pretrained(folder)
    return folder


# Loading


@pytest.mark.parametrize("dtype", NARROW, ids=name)
@pytest.mark.parametrize("family", ["bert", "modernbert"])
def test_a_folder_of_16_bits_is_32_in_memory(family: str, dtype: torch.dtype, tokenizer: Any, tmp_path: Path) -> None:
    folder = plain_folder(adaptive(family, tokenizer=tokenizer), tmp_path, dtype)
    assert types_of(AdaptiveModel.from_pretrained(folder)) == {torch.float32}
    for asked in ("auto", name(dtype), dtype):
        model = AdaptiveModel.from_pretrained(folder, dtype=asked)
        model.grow_heads("linear")
        assert types_of(model) == {dtype}


def test_elasticbert_is_32_too(tokenizer: Any, tmp_path: Path) -> None:
    model = adaptive("bert", tokenizer=tokenizer, head=None)
    save_elasticbert(model.to(torch.bfloat16), tmp_path)
    assert types_of(AdaptiveModel.from_pretrained(tmp_path, depth=4)) == {torch.float32}
    assert types_of(AdaptiveModel.from_pretrained(tmp_path, depth=4, dtype="bfloat16")) == {torch.bfloat16}


def test_a_type_that_does_not_exist(model: AdaptiveModel, tmp_path: Path) -> None:
    model.save_pretrained(tmp_path)
    text = "dtype must be one of float32, float16, bfloat16.*, not 'fp16'"
    with pytest.raises(BadSetting, match=text):
        AdaptiveModel.from_pretrained(tmp_path, dtype="fp16")
    with pytest.raises(BadSetting, match=text):
        model.save_pretrained(tmp_path, dtype="fp16")
    assert dtype_named(None) == dtype_named(torch.float32) == torch.float32


# Saving


@pytest.mark.parametrize("dtype", [*NARROW, None], ids=str)
def test_a_bundle_has_the_bits_that_were_asked_for(dtype: Any, model: AdaptiveModel, tmp_path: Path) -> None:
    wanted = dtype or torch.float32
    model.save_pretrained(tmp_path, dtype)
    assert types_of(model) == {torch.float32}, "saving changes nothing in memory"
    assert types_in(tmp_path / "model.safetensors") == types_in(tmp_path / "paredown.safetensors") == {wanted}
    assert json.loads((tmp_path / "config.json").read_text())["dtype"] == name(wanted)
    stock, facts = AutoModelForSequenceClassification.from_pretrained(tmp_path, output_loading_info=True)
    assert types_of(stock) == {wanted} and not facts["missing_keys"] and not facts["unexpected_keys"]
    again = AdaptiveModel.from_pretrained(tmp_path)
    assert types_of(again) == {torch.float32}
    inputs = batch(99, [9, 4, 1])
    near = {"atol": 1e-5 if dtype is None else 0.05, "rtol": 0}
    assert torch.allclose(again.answer(inputs, Plan()).logits, model.answer(inputs, Plan()).logits, **near)


@pytest.mark.parametrize("dtype", NARROW, ids=name)
def test_a_bundle_of_16_bits_answers_in_16_on_request(dtype: torch.dtype, model: AdaptiveModel, tmp_path: Path) -> None:
    model.save_pretrained(tmp_path, dtype)
    again = AdaptiveModel.from_pretrained(tmp_path, dtype=name(dtype))
    assert types_of(again) == {dtype} and again.answer(batch(99, [9, 4])).logits.dtype == dtype
    for predicted, wanted in zip(again.predict(["the movie was great"]), model.predict(["the movie was great"])):
        assert predicted.score == pytest.approx(wanted.score, abs=0.05)
    again.save_pretrained(tmp_path / "again")
    assert types_in(tmp_path / "again" / "model.safetensors") == {torch.float32}, "32 unless asked"


def test_tables_of_positions_stay_as_transformers_computes_them(tokenizer: Any, tmp_path: Path) -> None:
    """Frequencies rounded to 16 bits turn far tokens by radians."""
    adaptive("modernbert", tokenizer=tokenizer).save_pretrained(tmp_path, "bfloat16")
    wanted = AutoModelForSequenceClassification.from_pretrained(tmp_path).named_buffers()
    ours = dict(AdaptiveModel.from_pretrained(tmp_path, dtype="bfloat16").stock.named_buffers())
    assert ours and all(torch.equal(ours[name], value) and ours[name].dtype == value.dtype for name, value in wanted)


# Not finite


def spoil(model: Any, name: str, value: float) -> None:
    with torch.no_grad():
        model.get_parameter(name).view(-1)[0] = value


LAYER = "bert.encoder.layer.1.output.dense.weight"


@pytest.mark.parametrize("value, message", [(float("nan"), "NaN"), (float("inf"), "infinity"), (-1e999, "infinity")])
@pytest.mark.parametrize("where", [f"stock.{LAYER}", "heads.0.out.bias"])
def test_weights_that_are_not_finite_are_not_saved(
    where: str, value: float, message: str, model: AdaptiveModel, tmp_path: Path
) -> None:
    model.save_pretrained(tmp_path / "bundle")
    before = (tmp_path / "bundle" / "paredown.json").read_bytes()
    spoil(model, where, value)
    with pytest.raises(
        NonFiniteWeights, match=f"bundle is not written: {where.removeprefix('stock.')} holds {message}"
    ):
        model.save_pretrained(tmp_path / "bundle")
    assert (tmp_path / "bundle" / "paredown.json").read_bytes() == before
    model.drop_heads()
    model.plan = Plan()
    spoil(model, f"stock.{LAYER}", value)
    for write in (export_hf, save_elasticbert):
        with pytest.raises(NonFiniteWeights, match="other is not written"):
            write(model, tmp_path / "other")
    assert [path.name for path in tmp_path.iterdir()] == ["bundle"]


def test_weights_that_16_bits_cannot_hold_are_not_saved(model: AdaptiveModel, tmp_path: Path) -> None:
    spoil(model, "heads.1.out.bias", 1e6)
    with pytest.raises(NonFiniteWeights, match=r"heads.1.out.bias holds infinity; float16 .* try bfloat16"):
        model.save_pretrained(tmp_path / "bundle", "float16")
    model.save_pretrained(tmp_path / "bundle", "bfloat16")
    with pytest.raises(BadBundle, match=r"heads.1.out.bias holds infinity; float16"):
        AdaptiveModel.from_pretrained(tmp_path / "bundle", dtype="float16")


@pytest.mark.parametrize("value, message", [(float("nan"), "NaN"), (float("inf"), "infinity")])
def test_loading_names_weights_that_are_not_finite(
    value: float, message: str, model: AdaptiveModel, tmp_path: Path
) -> None:
    spoil(model.stock, LAYER, value)
    folder = plain_folder(model, tmp_path, torch.float32)
    for load in (AdaptiveModel.from_pretrained, lambda source: lengthened(source, 128)):
        with pytest.raises(BadBundle, match=f"model.safetensors: {LAYER} holds {message}$"):
            load(folder)


def test_loading_names_heads_that_are_not_finite(tmp_path: Path, model: AdaptiveModel) -> None:
    """As earlier versions saved them, so the checksums fit."""
    model.save_pretrained(tmp_path)
    weights = load_file(tmp_path / "paredown.safetensors")
    weights["heads.0.out.bias"][0] = float("nan")
    save_file(weights, tmp_path / "paredown.safetensors")
    facts = json.loads((tmp_path / "paredown.json").read_text())
    facts["sha256"].pop("paredown.json")
    facts["sha256"]["paredown.safetensors"] = sha256(tmp_path / "paredown.safetensors")
    (tmp_path / "paredown.json").write_text(json.dumps(facts))
    with pytest.raises(BadBundle, match=r"paredown.safetensors: heads.0.out.bias holds NaN$"):
        AdaptiveModel.from_pretrained(tmp_path)


def test_published_weights_that_are_not_finite(tokenizer: Any, tmp_path: Path) -> None:
    save_elasticbert(adaptive("bert", tokenizer=tokenizer, head=None), tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    weights[f"elastic{LAYER}"][0, 0] = float("nan")
    save_file(weights, tmp_path / "model.safetensors")
    with pytest.raises(BadBundle, match=f"model.safetensors: elastic{LAYER} holds NaN"):
        load_elasticbert(tmp_path, depth=4)


def test_only_the_first_names_are_listed() -> None:
    bad = {str(index): torch.tensor([float("nan")]) for index in range(9)} | {"whole": torch.ones(3, dtype=torch.long)}
    assert non_finite(bad) == "0 holds NaN; 1 holds NaN; 2 holds NaN; so do 6 more of 10 tensors"
    assert non_finite({"large": torch.full((9,), 3e38)}) == "", "its norm overflows, it does not"
