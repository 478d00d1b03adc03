"""`paredown bench`: every way on the same batches, figures that belong together."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from paredown.cli import main
from paredown.plan import Plan
from tests.families import adaptive


@pytest.fixture(scope="module")
def bundle(tokenizer: Any, tmp_path_factory: Any) -> Path:
    folder = tmp_path_factory.mktemp("bench") / "model"
    model = adaptive("bert", tokenizer=tokenizer, plan=Plan(exit="entropy:0.5"), vocab_size=len(tokenizer))
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def texts(tmp_path_factory: Any) -> Path:
    path = tmp_path_factory.mktemp("texts") / "texts.jsonl"
    path.write_text("".join(json.dumps({"text": "good plot " * (1 + row % 7)}) + "\n" for row in range(40)))
    return path


def test_measures_every_way(bundle: Path, texts: Path, tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "bench.json"
    sizes = ("--batch-size", "1", "--batch-size", "8")
    assert main(["bench", str(bundle), str(texts), *sizes, "--rounds", "3", "-o", str(out), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found == json.loads(out.read_text()) and found["time"] == "wall" and "avx2" in found["flags"] + ["avx2"]
    for ways in found["batches"].values():
        first, *others = ways
        assert first.startswith("transformers") and ways[first]["times_transformers"] == 1
        assert {"reference, full depth", "reference, plan", "packed, full depth", "packed, plan"} <= set(others)
        assert all(facts["texts_per_second"] > 0 and facts["p50_ms"] <= facts["p99_ms"] for facts in ways.values())
        assert all(("efficiency" in facts) == name.endswith("plan") for name, facts in ways.items())
        assert 1 <= ways["packed, plan"]["fewer_token_layers"] <= 4


def test_prints_a_table(bundle: Path, texts: Path, capsys: Any) -> None:
    assert main(["bench", str(bundle), str(texts), "--batch-size", "4", "--rounds", "2", "--exit", "none"]) == 0
    printed = capsys.readouterr().out
    assert "batches of 4" in printed and "packed, full depth" in printed and "wall time, plan: all layers" in printed


def test_too_few_rows(bundle: Path, texts: Path, capsys: Any) -> None:
    assert main(["bench", str(bundle), str(texts), "--batch-size", "8", "--rounds", "9"]) == 1
    assert "9 rounds of 8 rows, and one to warm up, need 80 rows; there are 40" in capsys.readouterr().err
