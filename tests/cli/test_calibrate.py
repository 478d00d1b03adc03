"""`calibrate`, `drift`, and `train --confidence`: a promise in, a certified plan out, shown and watched."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from paredown import AdaptiveModel, Plan
from paredown.cli import main
from tests.conftest import WORDS
from tests.families import adaptive, tiny

PROMISE = ["--max-drop", "0.6", "--risk", "disagreement"]


def write_rows(path: Path, count: int, seed: int = 0) -> str:
    draw = random.Random(seed)
    texts = [" ".join(draw.choices(WORDS, k=draw.randint(2, 12))) for _ in range(count)]
    path.write_text("text,label\n" + "".join(f"{text},{draw.choice('abc')}\n" for text in texts))
    return str(path)


@pytest.fixture
def bundle(tmp_path: Path, tokenizer: Any) -> str:
    model = adaptive("bert", tokenizer=tokenizer, plan="entropy:0.9")
    model.config.id2label, model.config.label2id = {0: "a", 1: "b", 2: "c"}, {"a": 0, "b": 1, "c": 2}
    model.save_pretrained(tmp_path / "bundle")
    return str(tmp_path / "bundle")


def test_a_promise_ends_as_a_certified_plan(bundle: str, tmp_path: Path, capsys: Any) -> None:
    rows = write_rows(tmp_path / "rows.csv", 200)
    assert main(["calibrate", bundle, rows, *PROMISE, "-r", "confidence", "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["passes"] == ["all layers"]
    assert AdaptiveModel.from_pretrained(bundle).plan == Plan(exit="entropy:0.9")
    assert main(["calibrate", bundle, rows, *PROMISE, "-r", "confidence"]) == 0
    shown = capsys.readouterr().out
    assert "at most 60 % of the answers differ from full depth, with 95 % confidence (160 units" in shown
    model = AdaptiveModel.from_pretrained(bundle)
    assert model.certificate is not None and model.plan.exit.name == "confidence"
    assert main(["info", bundle]) == 0
    assert "certificate       at most 60 %" in capsys.readouterr().out

    assert main(["plan", bundle, "--exit", "entropy:0.9"]) == 0
    assert "void: its certificate" in capsys.readouterr().out
    assert main(["info", bundle, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["certificate"] is None and "its plan is not the one" in found["certificate_void"]
    assert main(["info", bundle]) == 0
    assert "certificate       void: its plan is not the one" in capsys.readouterr().out


def test_other_goals_and_settings(bundle: str, tmp_path: Path, capsys: Any) -> None:
    rows = write_rows(tmp_path / "rows.csv", 120)
    line = ["calibrate", bundle, rows, "--risk", "disagreement", "--json", "-r", "at_layer", "--seed", "1"]
    assert main([*line, "--target-speedup", "1.2", "--confidence", "0.9"]) == 0
    found = json.loads(capsys.readouterr().out)["certificate"]
    assert found["asked"] == {"target_speedup": 1.2} and found["confidence"] == 0.9 and found["speedup"] >= 1.2
    assert main([*line, "--max-latency-ms", "10000", "--depth", "3", "--reduce", "none"]) == 0
    assert json.loads(capsys.readouterr().out)["certificate"]["milliseconds"] > 0


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "one goal"),
        (["--max-drop", "0.1", "--target-speedup", "2"], "one goal"),
        (["--max-drop", "0.001"], "rows would be needed in all|allow a larger loss"),
        (["--target-speedup", "99"], "the fastest plan needs"),
        (["--max-drop", "0.1", "--split", "test"], "other rows"),
        (["--max-drop", "0.1", "--metric", "f1"], "f1 is not a mean over rows"),
    ],
)
def test_what_cannot_be_promised_is_said(
    bundle: str, tmp_path: Path, capsys: Any, flags: list[str], message: str
) -> None:
    before = (Path(bundle) / "paredown.json").read_bytes()
    assert main(["calibrate", bundle, write_rows(tmp_path / "rows.csv", 80), "-r", "confidence", *flags]) == 1
    shown = capsys.readouterr().err.replace("\n", " ")
    assert any(part in shown for part in message.split("|")) and "Traceback" not in shown
    assert (Path(bundle) / "paredown.json").read_bytes() == before


def test_a_log_is_compared_with_the_certificate(bundle: str, tmp_path: Path, capsys: Any) -> None:
    rows, live = write_rows(tmp_path / "rows.csv", 300), write_rows(tmp_path / "live.csv", 300, seed=1)
    log, full = str(tmp_path / "log.jsonl"), str(tmp_path / "full.jsonl")
    assert main(["drift", bundle, rows]) == 1 and "has no certificate" in capsys.readouterr().err
    assert main(["calibrate", bundle, rows, *PROMISE, "-r", "confidence"]) == 0
    assert main(["predict", bundle, live, log]) == 0
    assert main(["predict", bundle, live, full, "--exit", "none"]) == 0
    capsys.readouterr()
    assert main(["drift", bundle, log, "--shadow", full]) == 0
    shown = capsys.readouterr().out
    assert "300 rows left after" in shown and "answers differ from full depth" in shown
    assert "nothing speaks against the certificate" in shown

    longer = tmp_path / "longer.jsonl"  # rows that all run to the end
    longer.write_text(Path(full).read_text())
    assert main(["drift", bundle, str(longer), "--json"]) == 1
    assert "rows leave elsewhere" in json.loads(capsys.readouterr().out)["reasons"][0]
    assert main(["drift", bundle, rows]) == 1 and "is no prediction in JSON" in capsys.readouterr().err


def test_rows_of_another_file_may_choose(bundle: str, tmp_path: Path, capsys: Any) -> None:
    rows, dev = write_rows(tmp_path / "rows.csv", 60), write_rows(tmp_path / "dev.csv", 30, seed=3)
    wanted = ["calibrate", bundle, rows, "--target-speedup", "1.01", "--json"]
    assert main([*wanted, "--choose-on", dev]) == 0
    found = json.loads(capsys.readouterr().out)["certificate"]
    assert (found["units"], found["selected_on"]) == (60, 30)
    assert main([*wanted, "--choose-on", str(tmp_path / "none.csv")]) == 1
    assert "none.csv" in capsys.readouterr().err


def test_training_ends_with_a_certified_plan(tmp_path: Path, tokenizer: Any, capsys: Any) -> None:
    encoder = tmp_path / "encoder"
    tiny("bert", num_labels=3, num_hidden_layers=3).save_pretrained(encoder)
    tokenizer.save_pretrained(encoder)
    rows, more = write_rows(tmp_path / "train.csv", 400), write_rows(tmp_path / "more.csv", 200, seed=2)
    line = ["train", str(encoder), "--train", rows, "--batch-size", "32", "--json"]
    line += ["-m", "auto:least_steps=4,epochs=1,exit_epochs=1,joint_epochs=1"]
    wanted = ["--max-drop", "0.7", "--confidence", "0.9"]
    assert main([*line, "-o", str(tmp_path / "one"), *wanted]) == 0
    found = json.loads(capsys.readouterr().out)
    model = AdaptiveModel.from_pretrained(tmp_path / "one" / "model")
    assert model.certificate is not None and found["certificate"] == model.certificate.to_json()
    assert model.certificate.units == 80  # a fifth of the rows
    assert found["worth"]["rows"] == model.certificate.selected_on == 50  # dev rows, which chose the weights too

    given = ["--max-drop", "0.7", "--confidence", "0.95", "--calibration", more, "--save-dtype", "float16"]
    assert main([*line, "-o", str(tmp_path / "two"), *given]) == 0
    assert AdaptiveModel.from_pretrained(tmp_path / "two" / "model").certificate.units == 200
    capsys.readouterr()

    assert main([*line, "-o", str(tmp_path / "three"), "--max-drop", "0.0001", "--confidence", "0.95"]) == 0
    shown = capsys.readouterr()
    assert "so every row runs to the end" in shown.err and json.loads(shown.out)["certificate"] is None
    assert AdaptiveModel.from_pretrained(tmp_path / "three" / "model").plan == Plan()


def test_a_promise_needs_all_of_its_parts(tmp_path: Path, tokenizer: Any, capsys: Any) -> None:
    encoder = tmp_path / "encoder"
    tiny("bert", num_labels=3, num_hidden_layers=3).save_pretrained(encoder)
    tokenizer.save_pretrained(encoder)
    rows = write_rows(tmp_path / "train.csv", 100)
    line = ["train", str(encoder), "--train", rows, "-o", str(tmp_path / "run")]
    assert main([*line, "--calibration", rows]) == 1 and "--confidence 0.95" in capsys.readouterr().err
    assert main([*line, "-m", "finetune", "--confidence", "0.95"]) == 1 and "--max-drop" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
