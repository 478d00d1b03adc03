"""The card of a bundle says what its files say, and leaves its owner's words alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from paredown import AdaptiveModel, Plan
from paredown.bundle import save_plan
from paredown.bundle.card import BEGIN, CARD, END, PIPELINES
from paredown.registry import answers
from tests.calibration.test_calibrate import calibrated, made
from tests.families import adaptive

SCORES = {"metric": "accuracy", "per_layer": {"1": 0.5, "4": 0.875}}
WORTH = {"plan": "all layers · entropy:0.9", "metric": "accuracy", "rows": 872, "exits": [1]} | {
    f"{which}{name}": value
    for which in ("", "full_")
    for name, value in (("score", 0.875), ("layers", 2.5), ("flops", 1.5e6), ("flops_speedup", 2.0))
}


def card(folder: Path) -> str:
    return (folder / CARD).read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", answers.names())
def test_every_kind_has_a_card_that_the_hub_can_read(kind: str, tmp_path: Path) -> None:
    adaptive("bert", kind).save_pretrained(tmp_path / "bundle")
    _, front, text = card(tmp_path / "bundle").split("---\n", 2)
    facts = yaml.safe_load(front)
    assert facts["pipeline_tag"] in PIPELINES.values() and "paredown" in facts["tags"]
    assert text.strip().startswith(BEGIN) and text.strip().endswith(END)


def test_it_has_plan_and_scores(model: AdaptiveModel, tmp_path: Path) -> None:
    model.scores = {**SCORES, "worth": WORTH}
    model.save_pretrained(tmp_path / "bundle")
    text = card(tmp_path / "bundle")
    assert "`all layers · entropy:0.9`" in text and 'metrics: ["accuracy"]' in text
    assert "| all layers · entropy:0.9 | 87.50 | 2.50 | 1.5 | 2.00× |" in text and "| 4 | 87.50 |" in text
    assert AdaptiveModel.from_pretrained(tmp_path / "bundle").plan == model.plan


def test_it_follows_the_plan_and_its_certificate(tmp_path: Path, tokenizer: Any) -> None:
    model, rows = made("single_label", tokenizer=tokenizer)
    certificate = calibrated(model, rows).certificate
    model.save_pretrained(tmp_path / "bundle")
    assert "Promised" not in card(tmp_path / "bundle")
    save_plan(tmp_path / "bundle", certificate.plan, certificate)
    assert f"Promised: {certificate}" in card(tmp_path / "bundle")
    save_plan(tmp_path / "bundle", Plan(exit="margin:0.2"))
    assert "margin:0.2" in (text := card(tmp_path / "bundle")) and "Promised" not in text


def test_what_its_owner_wrote_stays(model: AdaptiveModel, tmp_path: Path) -> None:
    folder = tmp_path / "bundle"
    model.save_pretrained(folder)
    (folder / CARD).write_text(card(folder).replace("---\n", "---\nlicense: mit\n", 1) + "\nTrained on films.\n")
    model.plan = Plan(exit="patience:2")
    model.save_pretrained(folder)
    text = card(folder)
    assert text.startswith("---\nlicense: mit\n") and text.endswith("\nTrained on films.\n")
    assert "patience:2" in text and "entropy" not in text and text.count(BEGIN) == 1
    (folder / CARD).write_text("All mine.")
    save_plan(folder, Plan(exit="margin:0.2"))
    assert card(folder) == "All mine." and AdaptiveModel.from_pretrained(folder).plan == Plan(exit="margin:0.2")


def test_labels_are_no_markup(model: AdaptiveModel, tmp_path: Path) -> None:
    model.config.id2label = {**model.config.id2label, 0: f"<script>\n{END} |"}
    model.save_pretrained(tmp_path / "bundle")
    text = card(tmp_path / "bundle")
    assert "<script>" not in text and text.count(END) == 1


def test_a_certificate_of_other_weights_is_not_repeated(tmp_path: Path, tokenizer: Any) -> None:
    model, rows = made("single_label", tokenizer=tokenizer)
    certificate = calibrated(model, rows).certificate
    model.plan, model.certificate = certificate.plan, replace(certificate, model="0" * 64)
    model.save_pretrained(tmp_path / "bundle")
    assert "Promised" not in card(tmp_path / "bundle")
