"""A bundle brings back the same model, and plain transformers reads it too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForSequenceClassification, pipeline

from paredown import AdaptiveModel, Plan, bundle
from paredown.errors import BadBundle, BadSetting
from paredown.registry import heads
from paredown.system import saving
from tests.families import adaptive, batch
from tests.placement import agree, close

TEXTS = ["the movie was great", "a very dull plot but the cast is fine", "awful", "not good and not bad really"]


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("family", ["bert", "albert", "deberta-v2", "modernbert", "distilbert"])
@pytest.mark.parametrize("head", heads.names())
def test_what_is_loaded_is_what_was_saved(family: str, head: str, tokenizer: Any, tmp_path: Path) -> None:
    model = adaptive(family, head=head, tokenizer=tokenizer, plan="entropy:0.2")
    model.save_pretrained(tmp_path / "bundle")
    again = AdaptiveModel.from_pretrained(tmp_path / "bundle")
    ours, theirs = model.state_dict(), again.state_dict()
    assert ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert (again.plan, again.kind, again.head, again.head_layers) == (model.plan, model.kind, model.head, (0, 1, 2))
    assert not again.training
    inputs = batch(99, [9, 4, 1])
    assert close(model.answer(inputs).logits, again.answer(inputs).logits)
    assert dict(model.named_parameters()).keys() == dict(again.named_parameters()).keys(), "what was shared still is"


@pytest.mark.parametrize("kind", ["multi_label", "regression", "token_label"])
def test_every_kind_comes_back(kind: str, tokenizer: Any, tmp_path: Path) -> None:
    model = adaptive("bert", kind, tokenizer=tokenizer, plan="learned:0.5")
    model.save_pretrained(tmp_path)
    again = AdaptiveModel.from_pretrained(tmp_path)
    assert again.kind == model.kind and again.labels == model.labels
    assert agree(again.predict(TEXTS), model.predict(TEXTS))


def test_transformers_reads_a_bundle_at_full_depth(model: AdaptiveModel, tmp_path: Path) -> None:
    model.save_pretrained(tmp_path)
    stock, facts = AutoModelForSequenceClassification.from_pretrained(tmp_path, output_loading_info=True)
    assert not facts["missing_keys"] and not facts["unexpected_keys"]
    inputs = batch(99, [9, 4, 1])
    with torch.no_grad():
        assert close(stock.eval()(**inputs).logits, model.answer(inputs, Plan()).logits)


def test_a_save_that_fails_leaves_the_old_bundle(
    model: AdaptiveModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model.save_pretrained(tmp_path / "bundle")
    before = tree(tmp_path)
    model.plan = Plan(exit="entropy:0.1")
    for module, step in ((bundle, "save_file"), (bundle.format, "sha256"), (saving, "sync")):
        with monkeypatch.context() as broken:
            broken.setattr(module, step, lambda *args, **kwargs: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                model.save_pretrained(tmp_path / "bundle")
        assert tree(tmp_path) == before, step
    model.save_pretrained(tmp_path / "bundle")
    assert AdaptiveModel.from_pretrained(tmp_path / "bundle").plan == model.plan
    assert [path.name for path in tmp_path.iterdir()] == ["bundle"]


def test_loading_a_plain_folder(model: AdaptiveModel, tmp_path: Path) -> None:
    model.stock.save_pretrained(tmp_path)
    model.tokenizer.save_pretrained(tmp_path)
    plain = AdaptiveModel.from_pretrained(tmp_path)
    assert plain.kind.name == "single_label" and plain.head is None and plain.plan == Plan()
    assert [predicted.label for predicted in plain.predict(TEXTS)] == [
        predicted.label for predicted in model.predict(TEXTS, plan=Plan())
    ]
    named = AdaptiveModel.from_pretrained(tmp_path, labels=["bad", "good", "so so"])
    assert named.labels == ["bad", "good", "so so"]
    with pytest.raises(BadSetting, match="2 labels are named"):
        AdaptiveModel.from_pretrained(tmp_path, labels=["bad", "good"], num_labels=3)
    with pytest.raises(BadBundle, match="cannot be loaded"):
        AdaptiveModel.from_pretrained(tmp_path / "nowhere", local_files_only=True)


def test_the_plan_may_be_another(model: AdaptiveModel, tmp_path: Path) -> None:
    model.save_pretrained(tmp_path)
    assert AdaptiveModel.from_pretrained(tmp_path, plan="patience:2").plan == Plan(exit="patience:2")
    with pytest.raises(BadSetting):
        AdaptiveModel.from_pretrained(tmp_path, plan={"depth": [99]})


def test_pipeline_exits_early(model: AdaptiveModel) -> None:
    model.plan = Plan(exit="entropy:1.1")  # everyone leaves after one layer
    ran = set()

    def note(module: Any, args: Any, output: Any) -> None:
        if "forward" not in module.__dict__:  # while recording, a layer only hands its input on
            ran.add(model.walk.layers.index(module))

    for layer in model.walk.layers:
        layer.register_forward_hook(note)
    classify = pipeline("text-classification", model=model, tokenizer=model.tokenizer)
    predictions = classify(TEXTS, batch_size=2)
    assert ran == {0}
    predicted = model.predict(TEXTS)
    assert [one["label"] for one in predictions] == [one.label for one in predicted]
    assert [one["score"] for one in predictions] == pytest.approx([one.score for one in predicted], abs=1e-5)


def test_one_text_and_a_speed(model: AdaptiveModel) -> None:
    label, layers = model("the movie was great", speed=0.5)
    assert label in model.labels and 1 <= layers <= model.layers
    assert model("the movie was great", speed=0.0) == (model.predict(TEXTS[:1], plan=Plan())[0].label, model.layers)
    with pytest.raises(BadSetting, match="speed"):
        model("the movie was great", speed=2)
    model.plan = Plan()
    with pytest.raises(BadSetting, match="no exit rule"):
        model("the movie was great", speed=0.5)
