"""`--reduce` of `paredown train`, `predict` and `evaluate`, and selectors in `paredown info`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from paredown import AdaptiveModel
from paredown.cli import main
from tests.cli.running import records
from tests.contracts.reducer_settings import with_selectors
from tests.families import adaptive


@pytest.fixture
def bundle(tmp_path: Path, tokenizer: Any) -> Path:
    """It has selectors and no heads, and its plan drops nothing."""
    with_selectors(adaptive("bert", head=None, tokenizer=tokenizer)).save_pretrained(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    lines = [
        {"text": "the film was good and the cast " + "fine " * turn, "label": f"LABEL_{turn % 3}"} for turn in range(9)
    ]
    path = tmp_path / "in.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def printed_by(capsys: Any, *words: Any, fails: bool = False) -> str:
    assert main(list(map(str, words))) == int(fails)
    found = capsys.readouterr()
    return found.err if fails else found.out


def test_predict(bundle: Path, rows: Path, tmp_path: Path, capsys: Any) -> None:
    work = {}
    for rule in ("none", "selector:0.5", "fixed_share:0.5,score=attention"):
        printed_by(capsys, "predict", bundle, rows, out := tmp_path / f"{rule}.jsonl", "--reduce", rule)
        work[rule] = sum(one["tokens"] for one in records(out))
    assert work["selector:0.5"] < work["none"] > work["fixed_share:0.5,score=attention"]
    assert "selector:0.3" in printed_by(
        capsys, "predict", bundle, rows, out, "--reduce", "selector:0.3", "--restart", "--dry-run"
    )
    once = printed_by(capsys, "predict", bundle, rows, out, "--plan", "{}", "--reduce", "none", "--restart", fails=True)
    assert "--plan and --reduce both say which tokens stay" in once
    assert "did you mean 'selector'" in printed_by(
        capsys, "predict", bundle, rows, out, "--reduce", "selectr", "--restart", fails=True
    )


def test_train(bundle: Path, rows: Path, tmp_path: Path, capsys: Any) -> None:
    words = ("train", bundle, "--train", rows, "--dev", rows, "-m", "finetune:epochs=1", "--json")
    printed_by(capsys, *words, "-o", tmp_path / "run", "--reduce", "attention:0.9")
    assert str(AdaptiveModel.from_pretrained(tmp_path / "run" / "model").plan.reduce) == "attention:0.9"
    again = printed_by(capsys, *words, "-o", tmp_path / "run", "--reduce", "attention:0.5", fails=True)
    assert "reduce was 'attention:0.9', now 'attention:0.5'" in again
    wrong = printed_by(capsys, *words, "-o", tmp_path / "other", "--reduce", "selectr", fails=True)
    assert "did you mean 'selector'" in wrong


def test_a_bundle_that_drops_tokens_keeps_doing_so(bundle: Path, rows: Path, tmp_path: Path, capsys: Any) -> None:
    model = AdaptiveModel.from_pretrained(bundle, plan={"reduce": "selector:0.5"})
    model.save_pretrained(tmp_path / "dropping")
    given = {"own": (tmp_path / "dropping",), "flag": (bundle, "--reduce", "selector:0.5")}
    found = {}
    for name, (folder, *flags) in given.items():
        printed_by(capsys, "predict", folder, rows, tmp_path / f"{name}.jsonl", *flags)
        found[name] = records(tmp_path / f"{name}.jsonl")
    assert found["own"] == found["flag"]


def test_evaluate(bundle: Path, rows: Path, capsys: Any) -> None:
    foreseen = json.loads(
        printed_by(capsys, "evaluate", bundle, rows, "--reduce", "selector:0.5", "--dry-run", "--json")
    )
    assert foreseen["plan"] == "all layers · selector:0.5"
    flags = ("--timed-batch", "4", "--json")
    full = json.loads(printed_by(capsys, "evaluate", bundle, rows, "--reduce", "attention:0", *flags))["full"]
    less = json.loads(printed_by(capsys, "evaluate", bundle, rows, "--reduce", "selector:0.5", *flags))["full"]
    assert less["token_layers"] < full["token_layers"] and less["flops"] < full["flops"]


def test_info(bundle: Path, tmp_path: Path, tokenizer: Any, capsys: Any) -> None:
    found = json.loads(printed_by(capsys, "info", bundle, "--json"))
    assert (found["selector_layers"], found["selector_size"]) == ([1, 2], 32)
    assert "selectors         of size 32 before layers 1, 2" in printed_by(capsys, "info", bundle)
    adaptive("bert", tokenizer=tokenizer).save_pretrained(tmp_path / "plain")
    assert "selectors         none" in printed_by(capsys, "info", tmp_path / "plain")
