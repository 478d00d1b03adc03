"""Multiple choice as a user types it: RACE trained and evaluated from its files, questions predicted from columns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import BertConfig, BertForMultipleChoice

from paredown import AdaptiveModel
from paredown.answers import Choices
from paredown.cli import main
from tests.cli.running import records
from tests.cli.test_questions import write_rows
from tests.families import adaptive
from tests.tasks.test_race import LINE
from tests.test_choice import learnable

FORMATS = ["jsonl", "csv", "parquet"]
FAST = ("--epochs", 2, "--lr", "3e-3", "--batch-size", 16)


def run(*words: Any) -> int:
    return main([str(word) for word in words])


def write_race(root: Path, split: str, level: str, asked: list[Choices]) -> None:
    folder = root / "RACE" / split / level
    folder.mkdir(parents=True)
    for one in asked:
        article = {"article": one.context, "questions": [one.question], "options": [one.options]}
        (folder / f"{one.id}.txt").write_text(json.dumps({**article, "answers": ["ABCD"[one.label or 0]]}))


@pytest.fixture
def race(tmp_path: Path) -> Path:
    for split, number in (("train", 60), ("dev", 30)):
        write_race(tmp_path, split, "middle", learnable(number, number))
    return tmp_path


@pytest.fixture
def encoder(tokenizer: Any, tmp_path: Path) -> Path:
    sizes = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 37}
    config = BertConfig(vocab_size=99, max_position_embeddings=64, initializer_range=0.1, pad_token_id=1, **sizes)
    BertForMultipleChoice(config).save_pretrained(tmp_path / "encoder")
    tokenizer.save_pretrained(tmp_path / "encoder")
    return tmp_path / "encoder"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory, tokenizer: Any) -> Path:
    folder = tmp_path_factory.mktemp("models") / "choosing"
    adaptive("bert", "choice", tokenizer=tokenizer, plan="patience:1").save_pretrained(folder)
    return folder


def test_train_and_evaluate_race(encoder: Path, race: Path, tmp_path: Path, capsys: Any) -> None:
    given = ("--task", "race-middle", "--data", race)
    assert run("train", encoder, "-o", tmp_path / "run", "-m", "joint:head=linear", *given, *FAST, "--dry-run") == 0
    assert run("train", encoder, "-o", tmp_path / "run", "-m", "joint:head=linear", *given, *FAST) == 0
    made = tmp_path / "run" / "model"
    model = AdaptiveModel.from_pretrained(made)
    assert model.kind.name == "choice" and model.scores is not None and model.scores["metric"] == "accuracy"
    capsys.readouterr()
    judge = ("evaluate", made, *given, "-r", "entropy", "--timed-batch", 8, "--exit", "entropy:0.2")
    assert run(*judge, "-o", tmp_path / "out", "--dry-run", "--json") == 0
    foreseen = json.loads(capsys.readouterr().out)
    assert foreseen["rows"] == 30 and str(tmp_path / "out" / "predictions.json") in foreseen["files"]
    assert run(*judge, "-o", tmp_path / "out", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["rows"], found["metric"], found["kind"]) == (30, "accuracy", "choice")
    predicted = json.loads((tmp_path / "out" / "predictions.json").read_text())
    right = {f"{one.id}.txt-1": "ABCD"[one.label or 0] for one in learnable(30, 30)}
    assert predicted.keys() == right.keys()
    score = sum(predicted[name] == right[name] for name in right) / 30
    assert score == pytest.approx(found["chosen"][0]["score"])
    full, own = found["questions"]
    assert full["plan"] == "full depth" and "entropy:0.2" in own["plan"] and own["total"] == 30
    assert own["accuracy"] == pytest.approx(score) and own["layers"] <= full["layers"] == 3
    assert run("train", made, "-o", tmp_path / "more", "-m", "finetune", *given, *FAST, "--dry-run") == 0
    assert run("info", encoder, "--json") == 0
    assert json.loads(capsys.readouterr().out.split("run.\n")[-1])["kind"] == "choice"


def test_every_option_as_a_row_of_its_own(race: Path, tokenizer: Any, tmp_path: Path, capsys: Any) -> None:
    adaptive("bert", tokenizer=tokenizer).save_pretrained(tmp_path / "labels")
    given = ("--task", "race-options-middle", "--data", race)
    assert run("train", tmp_path / "labels", "-o", tmp_path / "run", "-m", "joint:head=linear", *given, *FAST) == 0
    made = tmp_path / "run" / "model"
    model = AdaptiveModel.from_pretrained(made)
    assert model.labels == ["0", "1"] and model.scores is not None and model.scores["metric"] == "choice_accuracy"
    capsys.readouterr()
    assert run("evaluate", made, *given, "--timed-batch", 8, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    options = sum(len(one.options) for one in learnable(30, 30))
    assert (found["rows"], found["metric"]) == (options, "choice_accuracy")


def test_test_rows_that_are_nowhere(encoder: Path, tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "mine.jsonl").write_text(json.dumps(LINE))
    given = ("--task", "race", "--train", tmp_path / "mine.jsonl", "--test", "dev", "-m", "joint:head=linear")
    assert run("train", encoder, "-o", tmp_path / "run", *given) != 0
    assert "there are no dev rows: give --dev, or --task and --data" in capsys.readouterr().err


def test_single_files_and_text_without_labels(encoder: Path, tmp_path: Path, capsys: Any) -> None:
    lines = [
        {"example_id": one.id, "article": one.context, "question": one.question, "options": one.options, "answer": "A"}
        for one in learnable(12)
    ]
    file = write_rows(tmp_path / "mine.jsonl", lines)
    given = ("--task", "race", "--train", file, "--unlabelled", file, "-m", "fastbert:head=linear", "--dry-run")
    assert run("train", encoder, "-o", tmp_path / "run", *given, "--json") == 0
    first, second = json.loads(capsys.readouterr().out)["stages"]
    assert (first["rows"], second["rows"]) == (12, 24) and first["flops"] > 0


def test_a_model_without_exits_is_scored_too(bundle: Path, race: Path, tokenizer: Any, tmp_path: Path) -> None:
    adaptive("bert", "choice", head=None, tokenizer=tokenizer).save_pretrained(tmp_path / "plain")
    given = ("--task", "race-middle", "--data", race, "--timed-batch", 8)
    assert run("evaluate", tmp_path / "plain", *given, "-o", tmp_path / "out") == 0
    assert len(json.loads((tmp_path / "out" / "predictions.json").read_text())) == 30


def test_evaluate_wants_a_task(bundle: Path, tmp_path: Path, capsys: Any) -> None:
    rows = write_rows(tmp_path / "in.jsonl", columns(3))
    assert run("evaluate", bundle, rows) != 0
    assert "name the --task that reads its questions" in capsys.readouterr().err


def columns(number: int) -> list[dict[str, Any]]:
    return [
        {"context": one.context, "question": one.question, "options": list(one.options)} for one in learnable(number)
    ]


@pytest.mark.parametrize("ending", FORMATS)
def test_predict_chooses_for_every_row(bundle: Path, tmp_path: Path, ending: str) -> None:
    rows, out = columns(20), tmp_path / f"out.{ending}"
    cells = [row | {"options": json.dumps(row["options"])} for row in rows] if ending == "csv" else rows
    assert run("predict", bundle, write_rows(tmp_path / f"in.{ending}", cells), out, "--batch-size", 8) == 0
    wanted = AdaptiveModel.from_pretrained(bundle).predict(rows)
    for index, (found, predicted) in enumerate(zip(records(out), wanted, strict=True)):
        assert [int(found[name]) for name in ("row", "layers", "tokens")] == [index, predicted.layers, predicted.tokens]
        scores = found["scores"] if ending == "jsonl" else json.loads(found["scores"])
        assert found["label"] == predicted.label and scores == pytest.approx(predicted.scores, abs=1e-4)


def test_predict_reads_race_and_writes_letters(bundle: Path, race: Path, tmp_path: Path, capsys: Any) -> None:
    folder, words = race / "RACE" / "dev" / "middle", ("--task", "race", "--batch-size", 4)
    assert run("predict", bundle, folder, tmp_path / "answered.json", *words) == 0
    asked = learnable(30, 30)
    wanted = AdaptiveModel.from_pretrained(bundle).predict(asked)
    letters = {f"{one.id}.txt-1": "ABCD"[one.options.index(predicted.label)] for one, predicted in zip(asked, wanted)}
    assert json.loads((tmp_path / "answered.json").read_text()) == letters and len(set(letters.values())) > 1
    for ending in FORMATS:
        assert run("predict", bundle, folder, tmp_path / f"answered.{ending}", *words) == 0
        assert {one["id"]: one["letter"] for one in records(tmp_path / f"answered.{ending}")} == letters
    (folder / "broken.txt").write_text("{}")
    assert run("predict", bundle, folder, tmp_path / "more.json", *words) != 0
    assert "middle/broken.txt: the file has no 'article'" in capsys.readouterr().err
    assert run("predict", bundle, folder, tmp_path / "more.json", *words, "--skip-bad-rows") == 0
    assert json.loads((tmp_path / "more.json").read_text()) == letters


@pytest.mark.parametrize(
    ("index", "task", "wrong"),
    [
        (".", "race", "is a folder without a .txt"),
        (".", "race-options", "does not ask questions"),
        (".", "wikihop", "does not ask questions"),
        ("nowhere", "race", "is missing"),
        (".", None, "is a folder, not a file"),
    ],
)
def test_predict_refuses_other_questions(
    bundle: Path, tmp_path: Path, capsys: Any, index: str, task: str | None, wrong: str
) -> None:
    named = () if task is None else ("--task", task)
    assert run("predict", bundle, tmp_path / index, tmp_path / "out.jsonl", *named) != 0
    assert wrong in capsys.readouterr().err


BAD: list[tuple[dict[str, Any], str]] = [
    ({"question": "who?", "context": "me"}, "options must be a list of texts"),
    ({"question": "who?", "context": "me", "options": ["me"]}, "there must be at least two options"),
    ({"question": "who?", "context": "me", "options": "me or you"}, "options must be a list of texts"),
    ({"question": "", "context": "me", "options": ["me", "you"]}, "empty text in column 'question'"),
]


@pytest.mark.parametrize(("bad", "wrong"), BAD, ids=[wrong for _, wrong in BAD])
def test_predict_names_bad_rows(bundle: Path, tmp_path: Path, capsys: Any, bad: Any, wrong: str) -> None:
    rows = write_rows(tmp_path / "in.jsonl", [*columns(3), bad, *columns(2)])
    assert run("predict", bundle, rows, tmp_path / "out.jsonl") != 0
    assert f"line 4: {wrong}" in capsys.readouterr().err
    assert run("predict", bundle, rows, tmp_path / "all.jsonl", "--skip-bad-rows") == 0
    found = records(tmp_path / "all.jsonl")
    assert [one.get("error") is not None for one in found] == [False] * 3 + [True] + [False] * 2
    assert run("predict", bundle, rows, tmp_path / "all.csv", "--skip-bad-rows", "--dry-run") == 0
