"""`paredown info`: what a model would get, what a bundle holds, what is refused and why."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from paredown import AdaptiveModel
from paredown.cli import main
from paredown.evaluation import worth
from paredown.model import Reading
from paredown.runtime import learn_ranges
from tests.evaluation.made import encoded
from tests.families import adaptive, tiny


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


def found(capsys: Any, source: Any) -> dict[str, Any]:
    assert main(["info", str(source), "--json"]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    return json.loads(printed.out)


def stock(family: str, tokenizer: Any, folder: Path, **changes: Any) -> Path:
    tiny(family, **changes).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def test_a_bundle(model: AdaptiveModel, tmp_path: Path, capsys: Any) -> None:
    model.save_pretrained(tmp_path / "b")
    facts = found(capsys, tmp_path / "b")
    assert facts["kind"] == "single_label" and facts["labels"] == model.labels and facts["family"] == "bert"
    assert (facts["layers"], facts["width"], facts["head_layers"]) == (4, 32, [0, 1, 2])
    assert facts["head"]["name"] == "pooler" and facts["plan"] == model.plan.to_json() and facts["doubt"] is True
    assert facts["scores"] is None and facts["stored_as"] == ["F32"] and facts["reading"] == {}
    assert facts["head_parameters"] == 3 * (32 * 32 + 32 + 32 * 3 + 3)
    assert main(["info", str(tmp_path / "b")]) == 0
    lines = capsys.readouterr().out
    assert "entropy:0.9" in lines and "pooler (pool=first)" in lines and "certificate" not in lines
    assert "stored as         F32" in lines and "read with         defaults" in lines
    assert "labels            LABEL_0" in lines and "error probability learned" in lines
    assert "int8 scales       one for each token" in lines and facts["ranges"] is False
    model.ranges = learn_ranges(model, model.encode(["good plot"]))
    model.save_pretrained(tmp_path / "b")
    assert found(capsys, tmp_path / "b")["ranges"] is True


def test_settings_from_a_file(model: AdaptiveModel, tmp_path: Path, capsys: Any) -> None:
    model.save_pretrained(tmp_path / "b")
    (tmp_path / "run.yaml").write_text(f"model: {tmp_path / 'b'}\nas-json: true\n")
    assert main(["info", "--config", str(tmp_path / "run.yaml")]) == 0
    assert json.loads(capsys.readouterr().out)["bundle"] == str(tmp_path / "b")


def test_scores_and_reading_are_shown(model: AdaptiveModel, tmp_path: Path, capsys: Any) -> None:
    model.reading = Reading(max_length=48, text_column="review")
    model.scores = {"metric": "accuracy", "per_layer": {"1": 0.8125, "2": 0.875}}
    model.scores["worth"] = worth(model, encoded("single_label", [5] * 16)).to_json() | {"score": 0.4375}
    model.save_pretrained(tmp_path / "b")
    assert found(capsys, tmp_path / "b")["scores"] == model.scores
    assert main(["info", str(tmp_path / "b")]) == 0
    shown = capsys.readouterr().out
    assert "87.50" in shown and "43.75" in shown and "max_length=48, text_column=review" in shown


def test_a_bundle_without_heads(tokenizer: Any, tmp_path: Path, capsys: Any) -> None:
    adaptive("bert", head=None, tokenizer=tokenizer).save_pretrained(tmp_path / "b")
    assert found(capsys, tmp_path / "b")["head"] is None
    assert main(["info", str(tmp_path / "b")]) == 0 and "heads             none" in capsys.readouterr().out


@pytest.mark.parametrize("family, norm", [("bert", None), ("modernbert", "LayerNorm")])
def test_what_a_model_would_get(tokenizer: Any, tmp_path: Path, capsys: Any, family: str, norm: str | None) -> None:
    facts = found(capsys, stock(family, tokenizer, tmp_path / family))
    assert (facts["walked"], facts["layers"], facts["width"], facts["final_norm"]) == (True, 4, 32, norm)
    assert facts["kind"] == "single_label" and set(facts["heads"]) >= {"linear", "pooler", "attention", "shared_pooler"}
    linear = facts["heads"]["linear"]
    assert linear["parameters_per_layer"] == 32 * 3 + 3
    assert linear["share_of_encoder"] == pytest.approx(3 * (32 * 3 + 3) / facts["parameters"])
    if family == "bert":  # shares the encoder's own pooler
        assert facts["heads"]["shared_pooler"]["parameters_per_layer"] == linear["parameters_per_layer"]
    assert main(["info", str(tmp_path / family)]) == 0
    assert "share of the encoder" in capsys.readouterr().out


def test_one_layer(tokenizer: Any, tmp_path: Path, capsys: Any) -> None:
    facts = found(capsys, stock("bert", tokenizer, tmp_path / "m", num_hidden_layers=1))
    assert facts["walked"] and facts["heads"] == {}


def test_token_labels(tokenizer: Any, tmp_path: Path, capsys: Any) -> None:
    adaptive("bert", "token_label", head=None, tokenizer=tokenizer).stock.save_pretrained(tmp_path / "m")
    tokenizer.save_pretrained(tmp_path / "m")
    assert found(capsys, tmp_path / "m")["kind"] == "token_label"


def test_a_model_that_cannot_be_walked(tokenizer: Any, tmp_path: Path, capsys: Any) -> None:
    folder = stock("gpt2", tokenizer, tmp_path / "m")
    facts = found(capsys, folder)
    assert facts["walked"] is False and facts["family"] == "gpt2" and facts["layers"] == 4 and facts["reason"]
    assert main(["info", str(folder)]) == 0
    assert "walked            no: " in capsys.readouterr().out


def test_what_is_no_model(tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    for source in ("./nothing", str(tmp_path / "nothing"), "a/b/c", "file", "empty", "nobody/nothing-at-all", "~/x"):
        assert main(["info", source]) == 1, source
        printed = capsys.readouterr().err.strip()
        assert printed.startswith("error") and len(printed.splitlines()) == 1 and "Traceback" not in printed
    assert main(["info"]) == 2


def test_a_damaged_bundle(model: AdaptiveModel, tmp_path: Path, capsys: Any) -> None:
    model.save_pretrained(tmp_path / "b")
    with open(tmp_path / "b" / "config.json", "a") as file:
        file.write(" ")
    assert main(["info", str(tmp_path / "b")]) == 1
    assert "config.json is damaged" in capsys.readouterr().err


def test_other_libraries_are_quiet(model: AdaptiveModel, tmp_path: Path, capsys: Any) -> None:
    model.save_pretrained(tmp_path / "b")
    assert found(capsys, tmp_path / "b")
    assert logging.getLogger("huggingface_hub").level == logging.ERROR
