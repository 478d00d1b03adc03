"""`paredown pretrain`, as a user types it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from paredown import AdaptiveModel
from paredown.cli import main
from paredown.errors import Interrupted
from paredown.training.learner import Learner
from tests.families import tiny

SENTENCES = ["the movie was great and the cast was good", "but the plot is awful and very dull", "a really fine film"]


@pytest.fixture
def encoder(tmp_path: Path, tokenizer: Any) -> Path:
    folder = tmp_path / "encoder"
    tiny("bert", num_labels=2).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("\n\n".join("\n".join(SENTENCES[index % 3 :] + SENTENCES) for index in range(40)))
    return path


def command(encoder: Path, text: Path, output: Path, *more: str) -> list[str]:
    given = ["--max-length", "32", "--batch-size", "8", "--lr", "1e-3", "--epochs", "1", "--dev-share", "0.1"]
    return ["pretrain", str(encoder), str(text), "-o", str(output), *given, *more]


def test_text_in_an_encoder_out(encoder: Path, text: Path, tmp_path: Path, capsys: Any) -> None:
    assert main(command(encoder, text, tmp_path / "run")) == 0
    printed = capsys.readouterr().out
    assert "what every layer knows of held-out text" in printed and "elasticbert" in printed
    found = json.loads((tmp_path / "run" / "pretraining.json").read_text())
    assert list(found["before"]) == list(found["after"]) == ["1", "2", "3", "4"]
    assert found["before"]["1"] != found["after"]["1"] and found["rows"] > 30
    model = AdaptiveModel.from_pretrained(tmp_path / "run" / "model")
    assert model.labels == ["in order", "swapped"] and model.head_layers == (0, 1, 2, 3)

    tuned = AdaptiveModel.from_pretrained(tmp_path / "run" / "elasticbert", labels=["bad", "good"])
    tuned.grow_heads("pooler")
    assert torch.equal(tuned.heads["1"].dense.weight, model.heads["1"].dense.weight)
    for source in ("elasticbert", "model"):  # and on from there
        again = tmp_path / f"again_{source}"
        assert main(command(tmp_path / "run" / source, text, again, "--json")) == 0
        shown = json.loads(capsys.readouterr().out)
        assert shown["before"] == found["after"] and shown["bundle"] == str(again / "model")


def test_it_says_what_it_would_do(encoder: Path, text: Path, tmp_path: Path, capsys: Any) -> None:
    assert main(command(encoder, text, tmp_path / "run", "--dry-run", "--json")) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["steps"] == -(-found["rows"] // 8) and found["tokens"] > 20 * found["rows"]
    assert found["trained_parameters"] > 0 and found["flops"] > 0 and not (tmp_path / "run").exists()
    assert (
        main(command(encoder, text, tmp_path / "run", "--dry-run", "-m", "elastic_pretrain:groups=all", "--json")) == 0
    )
    assert json.loads(capsys.readouterr().out)["flops"] > found["flops"]
    assert main(command(encoder, text, tmp_path / "run", "--dry-run")) == 0
    assert "Nothing was run" in capsys.readouterr().out


def test_from_scratch_needs_no_weights(encoder: Path, text: Path, tmp_path: Path, capsys: Any) -> None:
    (encoder / "model.safetensors").unlink()
    assert main(command(encoder, text, tmp_path / "run", "--from-scratch", "--whole-words", "--json")) == 0
    assert list(json.loads(capsys.readouterr().out)["after"]) == ["1", "2", "3", "4"]
    assert main(command(encoder, text, tmp_path / "other")) == 1
    assert "model.safetensors" in capsys.readouterr().err


def test_a_stopped_run_goes_on(
    encoder: Path, text: Path, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(command(encoder, text, tmp_path / "whole", "--json")) == 0
    whole = json.loads(capsys.readouterr().out)
    step = Learner.step

    def stopping(self: Learner, number: int) -> float:
        if number == 3:
            raise Interrupted("stopped")
        return step(self, number)

    monkeypatch.setattr(Learner, "step", stopping)
    assert main(command(encoder, text, tmp_path / "stopped", "--checkpoint-every", "2")) == 143
    monkeypatch.undo()
    capsys.readouterr()
    assert main(command(encoder, text, tmp_path / "stopped", "--checkpoint-every", "2", "--json")) == 0
    resumed = json.loads(capsys.readouterr().out)
    assert all(resumed[name] == whole[name] for name in ("before", "after"))
    assert resumed["stages"][0]["losses"] == whole["stages"][0]["losses"]


def test_other_families_become_a_plain_encoder(text: Path, tmp_path: Path, tokenizer: Any, capsys: Any) -> None:
    folder = tmp_path / "encoder"
    tiny("roberta", num_labels=2).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    assert main(command(folder, text, tmp_path / "run")) == 0
    assert "Written as a plain roberta" in capsys.readouterr().err.replace("\n", " ")
    tuned = AdaptiveModel.from_pretrained(tmp_path / "run" / "encoder", labels=["bad", "good"])
    model = AdaptiveModel.from_pretrained(tmp_path / "run" / "model")
    ours, theirs = tuned.stock.get_input_embeddings(), model.stock.get_input_embeddings()
    assert torch.equal(ours.weight, theirs.weight) and not tuned.heads


@pytest.mark.parametrize(
    "change, message",
    [
        (["--method", "joint"], "joint does not learn from text alone"),
        (["--dev", "missing.txt"], "missing.txt is not there"),
        (["--dev-share", "0.9"], "must lie in 0..0.5"),
        (["--max-length", "65"], "the encoder takes 64 tokens"),
        (["--max-length", "8"], "max_length must be at least 19"),
    ],
)
def test_errors_are_a_line(
    encoder: Path, text: Path, tmp_path: Path, capsys: Any, change: list[str], message: str
) -> None:
    assert main([*command(encoder, text, tmp_path / "run"), *change]) == 1
    error = capsys.readouterr().err
    assert message in error.replace("\n", " ") and "Traceback" not in error


def test_a_bundle_of_another_task_is_refused(text: Path, tmp_path: Path, model: AdaptiveModel, capsys: Any) -> None:
    model.save_pretrained(tmp_path / "bundle")
    assert main(command(tmp_path / "bundle", text, tmp_path / "run")) == 1
    assert "pre-training goes on from an encoder" in capsys.readouterr().err.replace("\n", " ")
