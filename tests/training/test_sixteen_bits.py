"""Parameters are trained in 32 bits: an encoder learns the same whatever its file was stored in."""

from __future__ import annotations

import json
import logging
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from paredown import AdaptiveModel
from paredown.cli import main
from paredown.errors import BadSetting, NonFiniteWeights
from paredown.training import train
from paredown.training.checkpoint import Checkpoints
from tests.training.tiny import Steps, final_loss, rows, stage, tiny

STORED = ["float32", "float16", "bfloat16"]


def encoder(folder: Path, stored: str) -> Path:
    """An encoder as others publish it, with weights of a type."""
    model = tiny(layers=2, dropout=0.0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(8 if parameter.ndim == 2 else 1)  # so that words tell each other apart from the start
    model.stock.to(getattr(torch, stored)).save_pretrained(folder)
    model.tokenizer.save_pretrained(folder)
    return folder


def easy(number: int) -> list[dict[str, Any]]:
    """Rows that one word decides."""
    draw, words = random.Random(number), (("bad", "dull", "awful"), ("good", "great", "fine"))
    found = []
    for label in (draw.randrange(2) for _ in range(number)):
        found.append({"text": f"the {draw.choice(['film', 'cast'])} was {draw.choice(words[label])}", "label": label})
    return found


def csv(path: Path, number: int) -> str:
    lines = [f"{row['text']},{'good' if row['label'] else 'bad'}\n" for row in easy(number)]
    path.write_text("text,label\n" + "".join(lines))
    return str(path)


def types_of(tensors: Any) -> set[torch.dtype]:
    return {value.dtype for value in tensors}


def test_the_same_score_whatever_it_was_stored_in(tmp_path: Path) -> None:
    scores = {}
    for stored in STORED:
        model = AdaptiveModel.from_pretrained(encoder(tmp_path / stored, stored), num_labels=2)
        method, seldom = Steps([stage(epochs=6, lr=2e-3)]), {"evaluate_every": 99, "checkpoint_every": 99}
        report = train(model, method, easy(48), easy(40), output=tmp_path / f"run-{stored}", **seldom)
        assert types_of(model.parameters()) == {torch.float32}
        scores[stored] = report.stages[0].best or 0.0
    assert scores["float32"] > 0.95
    assert max(scores.values()) - min(scores.values()) <= 0.005, scores


@pytest.mark.parametrize("stored", [torch.float16, torch.bfloat16], ids=str)
def test_a_model_in_16_bits_is_widened_to_train(
    stored: torch.dtype, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Heads that grow in training too, and moments; nothing in the bundle or a checkpoint has 16 bits."""
    model = tiny().to(stored)
    with caplog.at_level(logging.INFO, "paredown.training"):
        train(model, Steps([stage(epochs=1)], heads=True), rows(16), output=tmp_path)
    assert f"parameters in {stored} are widened to 32 bits" in caplog.text
    assert model.heads and types_of(model.parameters()) == {torch.float32}
    found = Checkpoints(tmp_path).newest()
    assert found is not None
    for path in (*found.path.glob("*.safetensors"), *(tmp_path / "model").glob("*.safetensors")):
        assert types_of(load_file(path).values()) == {torch.float32}, path


def test_the_bundle_has_the_bits_that_were_asked_for(tmp_path: Path) -> None:
    model = tiny()
    train(model, Steps([stage(epochs=1)], heads=True), rows(16), output=tmp_path, save_dtype="bfloat16")
    assert types_of(model.parameters()) == {torch.float32}
    for path in (tmp_path / "model").glob("*.safetensors"):
        assert types_of(load_file(path).values()) == {torch.bfloat16}
    with pytest.raises(BadSetting, match="not 'int8'"):
        train(model, Steps([stage()]), rows(16), output=tmp_path, save_dtype="int8")


def test_weights_too_large_for_the_bundle_cost_nothing(tmp_path: Path) -> None:
    """The run is done; the same command with another type writes the bundle."""

    def loss(model: AdaptiveModel, batch: dict[str, Tensor], progress: Any) -> Tensor:
        return final_loss(model, batch, progress) + 0 * model.stock.classifier.bias.sum()

    def begin(model: AdaptiveModel) -> None:
        with torch.no_grad():
            model.stock.classifier.bias.fill_(1e6)

    method = Steps([stage(loss=loss, begin=begin, epochs=1)])
    with pytest.raises(NonFiniteWeights, match=r"classifier.bias holds infinity; float16 .* try bfloat16"):
        train(tiny(), method, rows(16), output=tmp_path, save_dtype="float16")
    assert not (tmp_path / "model").exists()
    train(tiny(), method, rows(16), output=tmp_path, save_dtype="bfloat16")
    assert AdaptiveModel.from_pretrained(tmp_path / "model").stock.classifier.bias.max() > 1e5


@pytest.mark.parametrize("stored", STORED[1:])
def test_the_commands(stored: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An encoder in 16 bits trains under autocast, is saved in 16 and answers in 16, all on request."""
    files = {split: csv(tmp_path / f"{split}.csv", number) for split, number in (("train", 32), ("dev", 16))}
    given = ["--train", files["train"], "--dev", files["dev"], "-m", "joint:head=linear", "--epochs", "1"]
    narrow = ["--precision", {"float16": "fp16", "bfloat16": "bf16"}[stored], "--save-dtype", stored]
    source, run, bundle = encoder(tmp_path / "encoder", stored), tmp_path / "run", str(tmp_path / "run" / "model")
    assert main(["train", str(source), "-o", str(run), *given, *narrow, "--json"]) == 0
    assert types_of(load_file(run / "model" / "model.safetensors").values()) == {getattr(torch, stored)}
    found = {}
    for dtype in ([], ["--dtype", stored]):
        output = tmp_path / f"answers{len(dtype)}.jsonl"
        assert main(["predict", bundle, files["dev"], str(output), "--exit", "none", *dtype]) == 0
        found[bool(dtype)] = [json.loads(line)["score"] for line in output.read_text().splitlines()]
    assert found[True] == pytest.approx(found[False], abs=0.02) and found[True] != found[False]
    capsys.readouterr()
    assert main(["evaluate", bundle, files["dev"], "-r", "entropy", "--timed-batch", "8", "--json", *dtype]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == 16
    assert main(["predict", bundle, files["dev"], str(tmp_path / "x.jsonl"), "--dtype", "half"]) != 0
    assert "dtype must be one of float32, float16, bfloat16" in capsys.readouterr().err.replace("\n", " ")
