"""Fewer layers from the command line: static depth, several depths at once, Theseus, and the export of each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from paredown import AdaptiveModel
from paredown.cli import main
from tests.cli.test_train_and_evaluate import command, encoder, files, rows  # noqa: F401

REPLACING = "module_replacing:replacing_epochs=1,successor_epochs=1"


def answers_alike(folder: Path, model: AdaptiveModel) -> None:
    """Plain transformers says of the folder what the model says of every text."""
    plain = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    texts = [text for text, _ in rows(8)]
    with torch.no_grad():
        outputs = plain(**tokenizer(texts, padding=True, return_tensors="pt")).logits.softmax(-1)
    ours = [list(prediction.scores.values()) for prediction in model.predict(texts, plan=model.plan.but(exit=None))]
    torch.testing.assert_close(outputs, torch.tensor(ours), rtol=0, atol=1e-6)


@pytest.mark.parametrize("method", ["finetune", REPLACING])
def test_train_then_export(
    encoder: Path,  # noqa: F811
    files: dict[str, str],  # noqa: F811
    tmp_path: Path,
    capsys: Any,
    method: str,
) -> None:
    depth = ["--depth", "2"] if method == "finetune" else []
    assert main(command(encoder, files, tmp_path / "run", "-m", method, *depth)) == 0
    bundle, out = tmp_path / "run" / "model", tmp_path / "plain"
    model = AdaptiveModel.from_pretrained(bundle)
    assert model.depth == ((0, 1) if depth else (4, 5))
    capsys.readouterr()
    assert main(["export", str(bundle), str(out), "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["layers"] == 2 and not out.exists()
    assert main(["export", str(bundle), str(out), "--format", "hf"]) == 0
    assert "2 layers" in capsys.readouterr().out
    assert json.loads((out / "config.json").read_text())["num_hidden_layers"] == 2
    answers_alike(out, model)
    assert main(["export", str(bundle), str(out)]) == 1 and "exists already" in capsys.readouterr().err
    assert main(["export", str(bundle), str(tmp_path / "b"), "--format", "bin"]) == 1
    assert "hf" in capsys.readouterr().err


def test_exits_on_successors_are_used_evaluated_and_exported(
    encoder: Path,  # noqa: F811
    files: dict[str, str],  # noqa: F811
    tmp_path: Path,
    capsys: Any,
) -> None:
    exits = "self_distill:head=pooler,teacher=stock,exit_epochs=1"
    assert main(command(encoder, files, tmp_path / "run", "-m", f"{REPLACING},into=3", "-m", exits)) == 0
    bundle = str(tmp_path / "run" / "model")
    model = AdaptiveModel.from_pretrained(bundle)
    assert model.depth == (4, 5, 6) and model.head_layers == (4, 5)
    capsys.readouterr()
    assert main(["evaluate", bundle, files["dev"], "-r", "entropy", "--timed-batch", "8", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [point["layers"] for point in found["per_layer"]] == [1.0, 2.0, 3.0]
    assert found["full"]["speedup"] == pytest.approx(4 / 3)  # against the encoder as it came
    assert found["full"]["flops_speedup"] > 1.3
    assert main(["info", bundle]) == 0
    assert "layers 4,5,6" in capsys.readouterr().out
    assert main(["export", bundle, str(tmp_path / "plain")]) == 0
    assert "was left out" in capsys.readouterr().out
    answers_alike(tmp_path / "plain", model)


def test_several_depths_at_once(
    encoder: Path,  # noqa: F811
    files: dict[str, str],  # noqa: F811
    tmp_path: Path,
    capsys: Any,
) -> None:
    wanted = ["-m", "finetune", "--depth", "1", "--depth", "3"]
    assert main(command(encoder, files, tmp_path / "run", *wanted, "--dry-run", "--json")) == 0
    stages = json.loads(capsys.readouterr().out)["stages"]
    assert [stage["layers"] for stage in stages] == [3, 1] and stages[0]["flops"] > 2 * stages[1]["flops"]
    assert main(command(encoder, files, tmp_path / "run", *wanted)) == 0
    printed = capsys.readouterr().out
    assert "depth_N/model" in printed and "depths.png" in printed
    found = json.loads((tmp_path / "run" / "depths.json").read_text())
    assert found["metric"] == "accuracy" and [run["layers_kept"] for run in found["depths"]] == [3, 1]
    assert found["depths"][0]["parameters"] > found["depths"][1]["parameters"]
    for run in found["depths"]:
        assert AdaptiveModel.from_pretrained(run["bundle"]).depth == tuple(range(run["layers_kept"]))
    assert main(command(encoder, files, tmp_path / "other", "--depth", "9")) == 1
    assert "depth must be 1 to" in capsys.readouterr().err
