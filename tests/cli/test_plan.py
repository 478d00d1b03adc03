"""`paredown plan`: shows a plan, changes it, and leaves the weights of the bundle alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from paredown import AdaptiveModel, Plan
from paredown.bundle import FACTS
from paredown.bundle.card import CARD
from paredown.cli import main
from tests.families import adaptive


@pytest.fixture
def made(tokenizer: Any, tmp_path: Path) -> Path:
    model = adaptive("bert", tokenizer=tokenizer, plan="entropy:0.9")
    model.scores = {"metric": "accuracy", "per_layer": {"4": 0.5}, "worth": {}}
    model.save_pretrained(tmp_path / "b")
    return tmp_path / "b"


def run(*words: Any) -> int:
    return main(["plan", *map(str, words)])


def test_it_is_shown(made: Path, capsys: Any) -> None:
    before = (made / FACTS).read_bytes()
    assert run(made) == 0
    assert capsys.readouterr().out == "all layers · entropy:0.9\n"
    assert (made / FACTS).read_bytes() == before


def test_it_is_saved_and_nothing_else_changes(made: Path, capsys: Any) -> None:
    before = {path.name: path.read_bytes() for path in made.iterdir()}
    assert run(made, "--exit", "patience:2", "--dry-run", "--json") == 0
    assert json.loads(capsys.readouterr().out)["saved"] is False
    assert {path.name: path.read_bytes() for path in made.iterdir()} == before
    assert run(made, "--exit", "patience:2", "--reduce", "attention:0.5", "--depth", "3") == 0
    assert "layers 0,1,2 · patience:2 · attention:0.5\n" in capsys.readouterr().out
    model = AdaptiveModel.from_pretrained(made)  # its seal is right
    assert model.plan == Plan((0, 1, 2), "patience:2", "attention:0.5")
    assert model.scores == {"metric": "accuracy", "per_layer": {"4": 0.5}}  # the other plan's worth is gone
    after = {path.name: path.read_bytes() for path in made.iterdir()}
    assert {name for name in after if after[name] != before.get(name)} == {
        FACTS,
        CARD,
    } and after.keys() == before.keys()
    assert "`layers 0,1,2 · patience:2 · attention:0.5`" in (made / CARD).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "words, plan",
    [
        (["--exit", "none"], Plan()),
        (["--depth", "0,2,3"], Plan((0, 2, 3), "entropy:0.9")),
        (["--plan", '{"depth": [0, 1], "exit": "margin:0.5"}'], Plan((0, 1), "margin:0.5")),
    ],
)
def test_every_axis(made: Path, words: list[str], plan: Plan) -> None:
    assert run(made, *words) == 0
    assert AdaptiveModel.from_pretrained(made).plan == plan
    assert run(made, "--depth", "all") == 0
    assert AdaptiveModel.from_pretrained(made).plan.depth is None


@pytest.mark.parametrize(
    "words, message",
    [
        (["--exit", "entropi:0.3"], "did you mean 'entropy'?"),
        (["--depth", "1"], "no layer on its way has a head"),
        (["--depth", "9"], "the encoder has 4 layers"),
        (["--depth", "0,9"], "runs layer 9, but this model has layers 0 to 3"),
        (["--depth", "half"], "or all; not 'half'"),
        (["--reduce", "selector:0.5"], "selector"),
        (["--plan", "{}", "--exit", "none"], "give either"),
        (["--plan", "{"], "a plan must be JSON"),
    ],
)
def test_a_plan_that_does_not_fit_is_not_saved(made: Path, capsys: Any, words: list[str], message: str) -> None:
    before = (made / FACTS).read_bytes()
    assert run(made, *words) == 1
    assert message in capsys.readouterr().err.replace("\n", " ") and (made / FACTS).read_bytes() == before
