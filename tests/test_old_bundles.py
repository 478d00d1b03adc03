"""Bundles of earlier versions load: a section that is absent means its default, one that is unknown is kept."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from paredown import AdaptiveModel, Plan
from paredown.bundle import save_plan
from paredown.bundle.format import ABSENT, FORMAT
from paredown.bundle.migration import migrated, present_names
from paredown.errors import BadBundle
from paredown.model import Reading

KEPT = Path(__file__).parent / "bundles"  # written by earlier versions, of one encoder of 3 layers
TEXTS = ["a great film", "the plot was awful"]
SCORES = [0.5009066, 0.5009063]  # as their own versions answered
# The keys that bundles of format 1 gained, latest first.
GAINED = ["reading", "selectors", "grown_like", "scores"]


def rewritten(folder: Path, sealed: bool = True, drop: list[str] | None = None, **more: Any) -> Path:
    """The bundle with sections dropped and added, and checksums that fit."""
    path = folder / "paredown.json"
    facts = {name: value for name, value in json.loads(path.read_text()).items() if name not in (drop or ())} | more
    del facts["sha256"]["paredown.json"]
    if sealed:
        digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
        facts["sha256"]["paredown.json"] = digest
    path.write_text(json.dumps(facts))
    return folder


@pytest.mark.parametrize("name, grown, selectors", [("without_seal", (), ()), ("without_prices", (0, 2), (1,))])
def test_a_bundle_that_an_earlier_version_wrote(name: str, grown: Any, selectors: Any, tmp_path: Path) -> None:
    model = AdaptiveModel.from_pretrained(KEPT / name)
    assert [predicted.score for predicted in model.predict(TEXTS)] == pytest.approx(SCORES, abs=1e-6)
    assert (model.plan, model.head_layers, model.grown_like) == (Plan(exit="entropy:0.3"), (0, 1), grown)
    assert model.selector_layers == selectors
    model.save_pretrained(tmp_path)
    again = AdaptiveModel.from_pretrained(tmp_path)
    assert [predicted.score for predicted in again.predict(TEXTS)] == pytest.approx(SCORES, abs=1e-6)


def test_all_that_format_1_could_hold(tmp_path: Path) -> None:
    expected = json.loads((KEPT / "format_1_expected.json").read_text())
    model = AdaptiveModel.from_pretrained(KEPT / "format_1")
    model.save_pretrained(tmp_path)
    for one in (model, AdaptiveModel.from_pretrained(tmp_path)):
        assert one.plan == Plan(exit="learned:0.45", reduce="selector:0.5") and one.labels == ["bad", "good", "so so"]
        assert (one.head_layers, one.grown_like, one.selector_layers) == ((0, 1, 2), (0, 2), (1, 3))
        assert one.reading == Reading(max_length=24, text_column="text", label_column="stars")
        assert one.scores == {"metric": "accuracy", "per_layer": {"1": 0.5, "4": 0.75}}
        assert one.other_sections == {"note": {"from": "an unknown version"}}
        for found in expected["answers"].values():
            plan = None if found["plan"] is None else Plan.from_json(found["plan"])
            for predicted, wanted in zip(one.predict(expected["texts"], plan=plan), found["rows"], strict=True):
                assert (predicted.label, predicted.layers, predicted.tokens) == (
                    wanted["label"],
                    wanted["layers"],
                    wanted["tokens"],
                )
                assert predicted.score == pytest.approx(wanted["score"], abs=1e-5)


@pytest.mark.parametrize("age", [0, 1, 2, 3, 4])
def test_every_layout_of_format_1(age: int) -> None:
    whole = {"reading": {"max_length": 9}, "selectors": {"layers": [1], "size": 4}, "grown_like": [0, 2], "scores": {}}
    kept = {name: value for name, value in whole.items() if name not in GAINED[:age]}
    bare = {"format": 1, "kind": "span", "head": {"name": "pooler"}, "head_layers": [0], "doubt": True, "plan": {}}
    before = json.dumps({**bare, **kept})
    facts = json.loads(before)
    after = migrated(facts)
    assert json.dumps(facts) == before, "the description it was given stays as it was"
    assert (after["format"], after["answer"], after["error_probability"]) == (2, {"kind": "span"}, True)
    assert after["heads"] == {"spec": {"name": "pooler"}, "after": [0]} and after["plan"] == {}
    assert after["selectors"] == ({"before": [1], "size": 4} if age < 2 else ABSENT["selectors"])
    assert after.get("grown_layers") == ({"like": [0, 2]} if age < 3 else None)
    assert ("reading" in after, "scores" in after) == (age < 1, age < 4)
    assert after.keys().isdisjoint({"kind", "head", "head_layers", "doubt", "grown_like"})


def test_tensors_are_called_as_they_are_now() -> None:
    names = ["doubt.weight", "selectors.1.price", "selectors.1.out.bias", "heads.0.doubt.bias"]
    assert present_names(names, 1) == {
        "doubt.weight": "error_probability.weight",
        "selectors.1.out.bias": "selectors.1.out.bias",
        "heads.0.doubt.bias": "heads.0.doubt.bias",
    }
    assert present_names(names, FORMAT) == {name: name for name in names}


def test_a_bundle_is_saved_in_the_present_format(tmp_path: Path) -> None:
    AdaptiveModel.from_pretrained(KEPT / "format_1").save_pretrained(tmp_path)
    facts = json.loads((tmp_path / "paredown.json").read_text())
    names = {"answer", "grown_layers", "heads", "error_probability", "selectors", "plan", "reading", "scores", "note"}
    assert facts["format"] == FORMAT and facts.keys() == {"format", "sha256", *names}
    assert not any(name.startswith("doubt") or "price" in name for name in load_file(tmp_path / "paredown.safetensors"))


def test_another_plan_leaves_a_bundle_in_its_own_format(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(KEPT / "format_1", tmp_path / "bundle"))
    save_plan(folder, Plan(exit="entropy:0.5"))
    assert json.loads((folder / "paredown.json").read_text())["format"] == 1
    assert AdaptiveModel.from_pretrained(folder).plan == Plan(exit="entropy:0.5")


def test_a_bundle_that_says_nothing_is_its_encoder(model: AdaptiveModel, tmp_path: Path) -> None:
    model.drop_heads()
    model.plan = Plan()
    model.save_pretrained(tmp_path)
    bare = rewritten(tmp_path, drop=list(ABSENT))
    again = AdaptiveModel.from_pretrained(bare)
    assert again.head is None and again.error_probability is None and again.plan == Plan()


def test_what_weights_need_cannot_be_absent(model: AdaptiveModel, tmp_path: Path) -> None:
    model.save_pretrained(tmp_path)
    with pytest.raises(BadBundle, match="does not hold the weights"):
        AdaptiveModel.from_pretrained(rewritten(tmp_path, drop=["heads", "error_probability", "plan"]))


def test_a_section_that_is_unknown_is_kept(model: AdaptiveModel, tmp_path: Path) -> None:
    model.save_pretrained(tmp_path / "one")
    again = AdaptiveModel.from_pretrained(rewritten(tmp_path / "one", provenance={"risk": 0.05}))
    again.save_pretrained(tmp_path / "two")
    assert json.loads((tmp_path / "two" / "paredown.json").read_text())["provenance"] == {"risk": 0.05}
    assert AdaptiveModel.from_pretrained(tmp_path / "two").plan == model.plan


@pytest.mark.parametrize("format, message", [(3, "format 3, which a newer paredown wrote"), ("x", "'x' is no format")])
def test_another_format_is_refused_by_its_number(format: Any, message: str, tmp_path: Path) -> None:
    shutil.copytree(KEPT / "without_prices", tmp_path / "bundle")
    path = tmp_path / "bundle" / "paredown.json"
    path.write_text(json.dumps({"format": format, "everything": "is otherwise"}))
    with pytest.raises(BadBundle, match=f"{message}.* reads formats up to 2"):
        AdaptiveModel.from_pretrained(tmp_path / "bundle")
