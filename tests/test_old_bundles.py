"""Bundles of earlier versions load: a section that is absent means its default, one that is unknown is kept."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from paredown import AdaptiveModel, Plan
from paredown.errors import BadBundle
from paredown.model import Reading

KEPT = Path(__file__).parent / "bundles"  # written by earlier versions, of one encoder of 3 layers
TEXTS = ["a great film", "the plot was awful"]
SCORES = [0.5009066, 0.5009063]  # as their own versions answered
# The sections that bundles gained, latest first.
GAINED = ["selectors", "grown_like", "scores"]


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
    assert [said.score for said in model.predict(TEXTS)] == pytest.approx(SCORES, abs=1e-6)
    assert (model.plan, model.head_layers, model.grown_like) == (Plan(exit="entropy:0.3"), (0, 1), grown)
    assert model.selector_layers == selectors
    model.save_pretrained(tmp_path)
    again = AdaptiveModel.from_pretrained(tmp_path)
    assert [said.score for said in again.predict(TEXTS)] == pytest.approx(SCORES, abs=1e-6)


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
            for said, wanted in zip(one.predict(expected["texts"], plan=plan), found["rows"], strict=True):
                assert (said.label, said.layers, said.tokens) == (wanted["label"], wanted["layers"], wanted["tokens"])
                assert said.score == pytest.approx(wanted["score"], abs=1e-5)


@pytest.mark.parametrize("age", [1, 2, 3, 4])
def test_every_layout_there_was(age: int, model: AdaptiveModel, tmp_path: Path) -> None:
    model.save_pretrained(tmp_path)
    again = AdaptiveModel.from_pretrained(rewritten(tmp_path, sealed=age < 4, drop=GAINED[:age]))
    assert (again.plan, again.head, again.head_layers) == (model.plan, model.head, model.head_layers)
    assert (again.grown_like, again.selector_layers, again.scores) == ((), (), None)


def test_a_bundle_that_says_nothing_is_its_encoder(model: AdaptiveModel, tmp_path: Path) -> None:
    model.drop_heads()
    model.plan = Plan()
    model.save_pretrained(tmp_path)
    bare = rewritten(tmp_path, drop=[*GAINED, "head", "head_layers", "doubt", "plan"])
    again = AdaptiveModel.from_pretrained(bare)
    assert again.head is None and again.doubt is None and again.plan == Plan()


def test_what_weights_need_cannot_be_absent(model: AdaptiveModel, tmp_path: Path) -> None:
    model.save_pretrained(tmp_path)
    with pytest.raises(BadBundle, match="does not hold the weights"):
        AdaptiveModel.from_pretrained(rewritten(tmp_path, drop=["head", "head_layers", "doubt", "plan"]))


def test_a_section_that_is_unknown_is_kept(model: AdaptiveModel, tmp_path: Path) -> None:
    model.save_pretrained(tmp_path / "one")
    again = AdaptiveModel.from_pretrained(rewritten(tmp_path / "one", certificate={"risk": 0.05}))
    again.save_pretrained(tmp_path / "two")
    assert json.loads((tmp_path / "two" / "paredown.json").read_text())["certificate"] == {"risk": 0.05}
    assert AdaptiveModel.from_pretrained(tmp_path / "two").plan == model.plan


@pytest.mark.parametrize("format, said", [(2, "format 2, which a newer paredown wrote"), ("x", "'x' is no format")])
def test_another_format_is_refused_by_its_number(format: Any, said: str, tmp_path: Path) -> None:
    shutil.copytree(KEPT / "without_prices", tmp_path / "bundle")
    path = tmp_path / "bundle" / "paredown.json"
    path.write_text(json.dumps({"format": format, "everything": "is otherwise"}))
    with pytest.raises(BadBundle, match=f"{said}.* reads format 1"):
        AdaptiveModel.from_pretrained(tmp_path / "bundle")
