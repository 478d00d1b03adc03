"""A bundle remembers how training read its rows, in Python as on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from paredown import AdaptiveModel
from paredown.bundle import FACTS
from paredown.bundle.format import _sealed
from paredown.cli import main
from paredown.errors import BadBundle, BadSetting
from paredown.model import Reading
from paredown.training import train
from tests.families import adaptive

LONG = "the movie was good and the plot was bad but the cast was fine"
ROWS = [{"text": LONG, "label": index % 3} for index in range(8)]


@pytest.fixture
def trained(model: AdaptiveModel, tmp_path: Path) -> AdaptiveModel:
    """Read at 8 tokens, saved and loaded."""
    train(model, "joint:epochs=1", ROWS, output=tmp_path / "run", max_length=8, progress=False)
    return AdaptiveModel.from_pretrained(tmp_path / "run" / "model")


def test_rows_are_cut_as_in_training(trained: AdaptiveModel) -> None:
    assert trained.reading == Reading(max_length=8)
    (predicted,) = trained.predict([LONG])
    assert predicted.tokens == 8 * predicted.layers
    assert [len(row) for row in trained.encode([LONG])] == [8]
    (longer,) = trained.predict([LONG], max_length=16)
    assert longer.tokens > 8 * longer.layers


def test_training_further_keeps_the_length(trained: AdaptiveModel, tmp_path: Path) -> None:
    train(trained, "joint:epochs=1", ROWS, output=tmp_path / "more", progress=False)
    assert AdaptiveModel.from_pretrained(tmp_path / "more" / "model").reading.max_length == 8
    train(trained, "joint:epochs=1", ROWS, output=tmp_path / "again", max_length=10, progress=False)
    assert trained.reading.max_length == 10


def test_questions_are_cut_as_in_training(tokenizer: Any) -> None:
    model = adaptive("bert", "span", tokenizer=tokenizer)
    model.reading = Reading(max_length=12)
    shown = model.kind.but(stride=4).rows(model, [("good plot", LONG)])
    assert len(shown) > 1 and max(map(len, shown)) == 12


def test_predict_cuts_as_in_training(trained: AdaptiveModel, tmp_path: Path, capsys: Any) -> None:
    rows, bundle = tmp_path / "in.jsonl", str(tmp_path / "run" / "model")
    rows.write_text(json.dumps({"text": LONG}) + "\n")
    assert main(["predict", bundle, str(rows), "-"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["tokens"] == 8 * facts["layers"]
    assert main(["predict", bundle, str(rows), "-", "--max-length", "16"]) == 0
    assert json.loads(capsys.readouterr().out)["tokens"] > 8 * facts["layers"]


def test_what_is_given_now_wins() -> None:
    before = Reading(128, "body", "title", "stars", False, "|")
    assert Reading().over(before) == before
    assert Reading(label_column="class", header=True).over(before) == Reading(128, "body", "title", "class", True, "|")
    assert Reading(64, text_column="text").over(before) == Reading(64, "text", None, "stars", False, "|")
    assert Reading.from_json(before.to_json()) == before and Reading().to_json() == {}


@pytest.mark.parametrize("data", [[], {"max_length": "8"}, {"header": 1}, {"nothing": "x"}, {"max_length": 0}])
def test_nonsense_is_refused(data: Any, model: AdaptiveModel, tmp_path: Path) -> None:
    with pytest.raises(BadSetting):
        Reading.from_json(data)
    model.save_pretrained(tmp_path)
    rewrite(tmp_path, data)
    with pytest.raises(BadBundle, match=r"paredown\.json"):
        AdaptiveModel.from_pretrained(tmp_path)


def test_bundles_that_do_not_say_are_read_as_ever(model: AdaptiveModel, tmp_path: Path) -> None:
    model.save_pretrained(tmp_path)
    rewrite(tmp_path, None)
    assert AdaptiveModel.from_pretrained(tmp_path).reading == Reading()


def rewrite(bundle: Path, reading: Any) -> None:
    """Another `reading` in a bundle's facts, or none, under a seal that fits."""
    facts = json.loads((bundle / FACTS).read_text())
    del facts["sha256"][FACTS]
    facts.pop("reading", None)
    facts |= {} if reading is None else {"reading": reading}
    (bundle / FACTS).write_text(_sealed(facts))
