"""HotpotQA as a user types it: train, evaluate and predict, down to the official prediction file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import BertConfig, BertModel

from paredown import AdaptiveModel
from paredown.cli import _predicting
from paredown.cli._outgoing import ToFile
from paredown.evaluation import HotpotPredictions
from tests.cli.running import records
from tests.cli.test_questions import run
from tests.families import adaptive
from tests.tasks.asking import hotpot_questions, hotpot_records, word_pieces

SHORT = ("--max-length", 24)


@pytest.fixture
def encoder(tmp_path: Path) -> Path:
    sizes = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 37}
    BertModel(BertConfig(vocab_size=200, max_position_embeddings=64, **sizes)).save_pretrained(tmp_path / "encoder")
    word_pieces().save_pretrained(tmp_path / "encoder")
    return tmp_path / "encoder"


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "supported"
    adaptive("bert", "supported_span", tokenizer=word_pieces(), plan="patience:1", vocab_size=200).save_pretrained(
        folder
    )
    return folder


def write(path: Path, number: int, labelled: bool = True) -> Path:
    kept = ("_id", "question", "context") + ("answer", "supporting_facts") * labelled
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([{name: one[name] for name in kept} for one in hotpot_records(number)]))
    return path


def test_train_and_evaluate(encoder: Path, tmp_path: Path, capsys: Any) -> None:
    write(tmp_path / "HotpotQA" / "hotpot_train_v1.1.json", 40)
    write(tmp_path / "HotpotQA" / "hotpot_dev_distractor_v1.json", 10)
    given = ("--task", "hotpotqa", "--data", tmp_path, *SHORT)
    method = ("-m", "fastbert:head=linear,epochs=1,exit_epochs=1", "--batch-size", 16)
    assert run("train", encoder, "-o", tmp_path / "run", *method, *given) == 0
    made = tmp_path / "run" / "model"
    assert AdaptiveModel.from_pretrained(made).scores["metric"] == "answer_and_support_f1"
    capsys.readouterr()
    judge = ("evaluate", made, *given, "-r", "entropy", "--timed-batch", 8, "--exit", "entropy:1.1")
    assert run(*judge, "-o", tmp_path / "out") == 0
    shown = capsys.readouterr().out
    assert "official score of 10 questions" in shown and "joint F1" in shown
    predicted = HotpotPredictions.read(tmp_path / "out" / "hotpot_predictions.json")
    assert predicted.answers.keys() == predicted.facts.keys() and len(predicted.answers) == 10
    assert run(*judge, "--json") == 0
    full, chosen = json.loads(capsys.readouterr().out)["questions"]
    assert {"em", "f1", "sp_em", "sp_f1", "joint_em", "joint_f1"} < full.keys()
    assert full["layers"] == 3 and chosen["layers"] == 1
    assert run(*judge, "-o", tmp_path / "other", "--dry-run") == 0
    assert "hotpot_predictions.json" in capsys.readouterr().out


def wanted(bundle: Path, number: int, threshold: float = 0.5) -> list[Any]:
    model = AdaptiveModel.from_pretrained(bundle)
    return model.predict(hotpot_questions(number), max_length=24, support_threshold=threshold)


def test_predict_writes_the_official_file(bundle: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "test.json", 12, labelled=False)
    assert run("predict", bundle, path, tmp_path / "answered.json", "--task", "hotpotqa", *SHORT) == 0
    predicted = json.loads((tmp_path / "answered.json").read_text())
    replies = wanted(bundle, 12)
    assert predicted["answer"] == {one.id: one.label for one in replies}
    assert predicted["sp"] == {one.id: [list(fact) for fact in one.facts] for one in replies}
    assert sorted(one.name for one in tmp_path.iterdir()) == ["answered.json", "test.json"]


@pytest.mark.parametrize("ending", ["jsonl", "csv", "parquet"])
def test_predict_says_all(bundle: Path, tmp_path: Path, ending: str) -> None:
    path, out = write(tmp_path / "in.json", 6), tmp_path / f"out.{ending}"
    words = ("--task", "hotpotqa", "--support-threshold", 0.9, *SHORT)
    assert run("predict", bundle, path, out, *words) == 0
    for found, reply in zip(records(out), wanted(bundle, 6, 0.9), strict=True):
        assert (found["id"], found["answer"]) == (reply.id, reply.label)
        facts = found["facts"] if ending == "jsonl" else json.loads(found["facts"])
        assert facts == [list(fact) for fact in reply.facts]


def test_predict_goes_on(bundle: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(_predicting, "CHUNK", 2)
    path, whole = write(tmp_path / "in.json", 20), ToFile.write
    words = ("predict", bundle, path, tmp_path / "out.json", "--task", "hotpotqa", "--batch-size", 2, *SHORT)
    written: list[Any] = []

    def stop(self: ToFile, *given: Any) -> None:
        if len(written) == 2:
            raise KeyboardInterrupt
        written.append(whole(self, *given))

    monkeypatch.setattr(ToFile, "write", stop)
    assert run(*words) == 130 and not (tmp_path / "out.json").exists()
    monkeypatch.setattr(ToFile, "write", whole)
    assert run(*words) == 0
    predicted = json.loads((tmp_path / "out.json").read_text())
    assert predicted["answer"] == {one.id: one.label for one in wanted(bundle, 20)}


def test_predict_from_columns_has_no_sentences(bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text(json.dumps({"question": "what?", "context": "the river of the town"}) + "\n")
    assert run("predict", bundle, tmp_path / "in.jsonl", tmp_path / "out.jsonl") == 0
    (found,) = records(tmp_path / "out.jsonl")
    assert found["facts"] == [] and "id" not in found


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (["--task", "sst-2"], "does not ask questions"),
        (["--task", "hotpotqa", "--text-column", "question"], "no columns to name"),
        (["--task", "hotpotqa"], "item 2, question 'bad': the question has no 'context'"),
        ([], "must end in .jsonl, .csv, .parquet"),
    ],
)
def test_predict_says_what_is_wrong(bundle: Path, tmp_path: Path, capsys: Any, words: list[str], wrong: str) -> None:
    path = tmp_path / "in.json"
    path.write_text(json.dumps([*hotpot_records(1), {"_id": "bad", "question": "who?"}]))
    assert run("predict", bundle, path, tmp_path / "out.json", *words) != 0
    assert wrong in capsys.readouterr().err.replace("\n", " ")


def test_bad_questions_are_left_out_of_the_official_file(bundle: Path, tmp_path: Path) -> None:
    path = tmp_path / "in.json"
    path.write_text(json.dumps([*hotpot_records(2), {"_id": "bad", "question": "who?"}]))
    words = ("--task", "hotpotqa", "--skip-bad-rows")
    assert run("predict", bundle, path, tmp_path / "out.json", *words) == 0
    assert len(json.loads((tmp_path / "out.json").read_text())["answer"]) == 2


def test_thresholds_want_their_kind(tmp_path: Path, capsys: Any) -> None:
    adaptive("bert", "span", tokenizer=word_pieces(), vocab_size=200).save_pretrained(tmp_path / "spans")
    (tmp_path / "in.jsonl").write_text("{}\n")
    words = ("predict", tmp_path / "spans", tmp_path / "in.jsonl", tmp_path / "out.jsonl")
    assert run(*words, "--support-threshold", 0.3) != 0
    assert "--support-threshold is for bundles of supported_span" in capsys.readouterr().err
