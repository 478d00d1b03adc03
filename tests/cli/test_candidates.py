"""Choosing among candidates as a user types it: train, evaluate and predict from WikiHop's files."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from transformers import BertConfig, BertModel

from paredown import AdaptiveModel
from paredown.cli import main
from tests.cli.running import records
from tests.families import adaptive
from tests.tasks.asking import word_pieces
from tests.tasks.choosing import made_choices


def hops(number: int, seed: int, supports: int = 3) -> list[dict[str, Any]]:
    return [
        {
            "id": f"h{seed}-{index}",
            "query": asked.question,
            "candidates": list(asked.options),
            "supports": asked.context.split("\n"),
            "answer": asked.options[asked.label or 0],
        }
        for index, asked in enumerate(made_choices(number, supports, seed))
    ]


def run(*words: Any) -> int:
    return main([str(word) for word in words])


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "marked"
    adaptive("bert", "marked", tokenizer=word_pieces(), plan="entropy:0.8", vocab_size=200).save_pretrained(folder)
    return folder


def test_train_and_evaluate(tmp_path: Path, capsys: Any) -> None:
    sizes = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 37}
    config = BertConfig(vocab_size=200, max_position_embeddings=64, initializer_range=0.1, **sizes)
    BertModel(config).save_pretrained(tmp_path / "encoder")
    word_pieces().save_pretrained(tmp_path / "encoder")
    (tmp_path / "wikihop").mkdir()
    for split, number in (("train", 40), ("dev", 30)):
        (tmp_path / "wikihop" / f"{split}.json").write_text(json.dumps(hops(number, number)))
    given = ("--task", "wikihop", "--data", tmp_path)
    fast = ("--epochs", 1, "--lr", "3e-3", "--batch-size", 16, "--max-length", 48)
    assert run("train", tmp_path / "encoder", "-o", tmp_path / "run", "-m", "joint:head=linear", *given, *fast) == 0
    made = tmp_path / "run" / "model"
    assert AdaptiveModel.from_pretrained(made).scores["metric"] == "accuracy"
    capsys.readouterr()
    judge = ("evaluate", made, *given, "-r", "entropy", "--timed-batch", 8, "--exit", "entropy:1.1")
    assert run(*judge, "-o", tmp_path / "out", "--max-length", 48) == 0
    shown = capsys.readouterr().out
    assert "official score of 30 questions" in shown and "accuracy" in shown and "entropy:1.1" in shown
    predicted = json.loads((tmp_path / "out" / "predictions.json").read_text())
    assert [predicted[one["id"]] in one["candidates"] for one in hops(30, 30)] == [True] * 30
    assert run(*judge, "--max-length", 48, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    full, chosen = found["questions"]
    assert found["rows"] == full["total"] == 30 and found["metric"] == "accuracy"
    right = sum(predicted[one["id"]] == one["answer"] for one in hops(30, 30))
    assert chosen["accuracy"] == pytest.approx(right / 30) and (full["layers"], chosen["layers"]) == (3, 1)
    assert run(*judge, "-o", tmp_path / "other", "--dry-run", "--json") == 0
    foreseen = json.loads(capsys.readouterr().out)["files"]
    assert [Path(name).name for name in foreseen if "predictions" in name] == ["predictions.json"]
    assert run("train", made, "-o", tmp_path / "more", "-m", "token_gate", *given, *fast, "--dry-run") == 0


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    elif path.suffix == ".csv":
        with open(path, "w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(rows[0])
            writer.writerows([json.dumps(c) if isinstance(c, list) else c for c in row.values()] for row in rows)
    else:
        text = json.dumps(rows) if path.suffix == ".json" else "".join(json.dumps(row) + "\n" for row in rows)
        path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("incoming", "outgoing"), [("json", "jsonl"), ("jsonl", "csv"), ("csv", "parquet"), ("parquet", "jsonl")]
)
def test_predict_answers_every_question(bundle: Path, tmp_path: Path, incoming: str, outgoing: str) -> None:
    rows = hops(20, 1, supports=6)
    out = tmp_path / f"out.{outgoing}"
    assert run("predict", bundle, write(tmp_path / f"in.{incoming}", rows), out, "--max-length", 48) == 0
    wanted = AdaptiveModel.from_pretrained(bundle).predict(made_choices(20, 6, 1), max_length=48)
    for index, (found, choice) in enumerate(zip(records(out), wanted, strict=True)):
        numbers = [int(found[name]) for name in ("row", "candidate", "windows", "layers", "tokens")]
        assert numbers == [index, choice.candidate, choice.windows, choice.layers, choice.tokens]
        assert found["answer"] == choice.label == rows[index]["candidates"][choice.candidate]
        assert float(found["score"]) == pytest.approx(choice.score, abs=1e-3)


def test_predict_reads_and_writes_the_official_files(bundle: Path, tmp_path: Path, capsys: Any) -> None:
    rows = hops(8, 1)
    asked = write(tmp_path / "test.json", rows)
    given = ("predict", bundle, asked, "--task", "wikihop")
    assert run(*given[:3], tmp_path / "answered.json", *given[3:]) == 0
    predicted = json.loads((tmp_path / "answered.json").read_text())
    found = AdaptiveModel.from_pretrained(bundle).predict(made_choices(8, 3, 1))
    assert predicted == {row["id"]: choice.label for row, choice in zip(rows, found, strict=True)}
    assert run(*given[:3], tmp_path / "answered.csv", *given[3:]) == 0
    assert [row["id"] for row in records(tmp_path / "answered.csv")] == [row["id"] for row in rows]
    capsys.readouterr()
    assert run("predict", bundle, asked, tmp_path / "other.jsonl", "--task", "squad") != 0
    assert "the task squad does not ask questions about a text that marked answers" in capsys.readouterr().err


def test_predict_goes_on(bundle: Path, tmp_path: Path, monkeypatch: Any) -> None:
    from paredown.cli import _predicting
    from paredown.cli._outgoing import ToFile

    monkeypatch.setattr(_predicting, "CHUNK", 2)
    rows, out = write(tmp_path / "in.jsonl", hops(20, 1)), tmp_path / "out.jsonl"
    assert run("predict", bundle, rows, tmp_path / "whole.jsonl", "--batch-size", 2) == 0
    written, whole = [], ToFile.write

    def stop(self: ToFile, *given: Any) -> None:
        if len(written) == 2:
            raise KeyboardInterrupt
        written.append(whole(self, *given))

    monkeypatch.setattr(ToFile, "write", stop)
    assert run("predict", bundle, rows, out, "--batch-size", 2) == 130
    monkeypatch.setattr(ToFile, "write", whole)
    assert run("predict", bundle, rows, out, "--batch-size", 2) == 0
    assert records(out) == records(tmp_path / "whole.jsonl")


BAD: list[tuple[dict[str, Any], str]] = [
    ({"candidates": []}, "'candidates' is empty"),
    ({"candidates": "river"}, "'candidates' of the question must be a list"),
    ({"supports": None}, "the question has no 'supports'"),
    ({"query": " "}, "'query' of the question is empty"),
]


@pytest.mark.parametrize(("change", "wrong"), BAD, ids=[wrong for _, wrong in BAD])
def test_predict_names_bad_questions(bundle: Path, tmp_path: Path, capsys: Any, change: Any, wrong: str) -> None:
    good = hops(3, 1)
    rows = write(tmp_path / "in.jsonl", [*good[:2], good[2] | change])
    assert run("predict", bundle, rows, tmp_path / "out.jsonl") != 0
    assert f"line 3: {wrong}" in capsys.readouterr().err
    assert run("predict", bundle, rows, tmp_path / "all.jsonl", "--skip-bad-rows") == 0
    found = records(tmp_path / "all.jsonl")
    assert found[2]["answer"] is None and found[2]["error"].startswith(wrong)


def test_flags_that_do_not_fit(bundle: Path, tmp_path: Path, capsys: Any) -> None:
    rows = write(tmp_path / "in.jsonl", hops(3, 1))
    for flag, message in (
        ("--text-column", "query, candidates and supports"),
        ("--null-threshold", "this one answers"),
    ):
        assert run("predict", bundle, rows, tmp_path / "out.jsonl", flag, 0) != 0
        assert message in capsys.readouterr().err
    assert run("predict", bundle, rows, tmp_path / "out.jsonl", "--dry-run") == 0
    assert "candidates, supports" in capsys.readouterr().out
    assert run("evaluate", bundle, rows) != 0
    assert "name the --task that reads its questions" in capsys.readouterr().err
    assert run("evaluate", bundle, rows, "--task", "wikihop", "--dry-run") == 0
