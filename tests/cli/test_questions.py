"""Question answering as a user types it: train, evaluate and predict, from SQuAD's files and from columns."""

from __future__ import annotations

import csv
import json
import random
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from transformers import BertConfig, BertForQuestionAnswering

from paredown import AdaptiveModel
from paredown.cli import _asked as judging
from paredown.cli import _predicting, main
from paredown.cli._outgoing import ToFile, progress_of
from tests.cli.running import records
from tests.families import adaptive
from tests.tasks.asking import word_pieces

FORMATS = ["jsonl", "csv", "parquet"]
LONG = 40  # words: more than a window holds


def paragraphs(number: int, seed: int, impossible: bool = False) -> list[dict[str, Any]]:
    """The word after `the` is the answer."""
    draw = random.Random(seed)
    found = []
    for index in range(number):
        words = [draw.choice(["who", "and", "of"]) for _ in range(LONG if index % 10 == 9 else draw.randint(3, 9))]
        at, answer = draw.randrange(len(words)), draw.choice(["river", "bridge", "town"])
        silent = impossible and index % 4 == 3
        words[at:at] = [] if silent else ["the", answer]
        answers = [] if silent else [{"text": answer, "answer_start": len(" ".join(words[: at + 1])) + 1}]
        asked = {"id": f"q{seed}-{index}", "question": "what?", "answers": answers}
        if impossible:
            asked["is_impossible"] = silent
        found.append({"context": " ".join(words), "qas": [asked]})
    return found


def write_squad(path: Path, made: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"version": "1.1", "data": [{"title": "a", "paragraphs": made}]}))
    return path


@pytest.fixture
def encoder(tmp_path: Path) -> Path:
    sizes = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 37}
    config = BertConfig(vocab_size=200, max_position_embeddings=48, initializer_range=0.1, **sizes)
    BertForQuestionAnswering(config).save_pretrained(tmp_path / "encoder")
    word_pieces().save_pretrained(tmp_path / "encoder")
    return tmp_path / "encoder"


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "asked"
    made = adaptive("bert", "span", tokenizer=word_pieces(), plan="patience:1", vocab_size=200)
    made.save_pretrained(folder)
    return folder


def run(*words: Any) -> int:
    return main([str(word) for word in words])


FAST = ("--epochs", 3, "--lr", "3e-3", "--batch-size", 16, "--max-length", 40)


def test_train_and_evaluate_from_a_folder(encoder: Path, tmp_path: Path, capsys: Any) -> None:
    for split, number in (("train", 120), ("dev", 30)):
        write_squad(tmp_path / "squad" / f"{split}-v1.1.json", paragraphs(number, number))
    given = ("--task", "squad", "--data", tmp_path)
    assert run("train", encoder, "-o", tmp_path / "run", "-m", "joint:head=linear", *given, *FAST) == 0
    made = tmp_path / "run" / "model"
    model = AdaptiveModel.from_pretrained(made)
    assert model.kind.name == "span" and model.scores["metric"] == "span_f1"
    capsys.readouterr()
    judge = ("evaluate", made, *given, "-r", "entropy", "--timed-batch", 8, "--exit", "entropy:1.1")
    assert run(*judge, "-o", tmp_path / "out", "--max-length", 40) == 0
    shown = capsys.readouterr().out
    assert "official score of 30 questions" in shown and "full depth" in shown and "entropy:1.1" in shown
    predicted = json.loads((tmp_path / "out" / "predictions.json").read_text())
    rivals = json.loads((tmp_path / "out" / "nbest_predictions.json").read_text())
    assert predicted.keys() == rivals.keys() and len(predicted) == 30
    assert not (tmp_path / "out" / "null_odds.json").exists()
    assert run(*judge, "--max-length", 40, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    full, chosen = found["questions"]
    assert found["rows"] == full["total"] == 30  # questions, not their windows
    assert found["full"]["score"] == pytest.approx(full["f1"])
    assert full["f1"] > 0.6 and full["layers"] == 3 and chosen["layers"] == 1  # nobody waits
    assert run("train", made, "-o", tmp_path / "more", "-m", "finetune", *given, *FAST, "--dry-run") == 0
    extra = ("--unlabelled", tmp_path / "squad" / "dev-v1.1.json", "-m", "fastbert:head=linear", "--dry-run", "--json")
    capsys.readouterr()
    assert run("train", encoder, "-o", tmp_path / "more", *given, *FAST, *extra) == 0
    first, second = json.loads(capsys.readouterr().out)["stages"]
    assert second["rows"] > first["rows"] + found["rows"]  # exits learn from windows without answers too


def test_single_files_and_no_answer(encoder: Path, tmp_path: Path, capsys: Any) -> None:
    files = {name: write_squad(tmp_path / f"{name}.json", paragraphs(40, 7, True)) for name in ("train", "dev")}
    given = ("--task", "squad_v2", "--train", files["train"], "--dev", files["dev"])
    assert run("train", encoder, "-o", tmp_path / "run", "-m", "finetune", *given, *FAST, "--json") == 0
    capsys.readouterr()
    judge = ("evaluate", tmp_path / "run" / "model", files["dev"], "--task", "squad_v2", "--timed-batch", 8)
    assert run(*judge, "-o", tmp_path / "out", "--json") == 0
    (full,) = json.loads(capsys.readouterr().out)["questions"]
    assert (full["total"], full["HasAns_total"], full["NoAns_total"]) == (40, 30, 10) and "best_f1_thresh" in full
    odds = json.loads((tmp_path / "out" / "null_odds.json").read_text())
    assert len(odds) == 40
    assert run(*judge, "-o", tmp_path / "other", "--dry-run") == 0
    assert "predictions.json" in capsys.readouterr().out and not (tmp_path / "other").exists()


def test_bad_questions_are_left_out_on_request(bundle: Path, tmp_path: Path, capsys: Any) -> None:
    made = paragraphs(6, 2)
    made[3]["qas"][0]["answers"][0]["answer_start"] += 1
    judge = ("evaluate", bundle, write_squad(tmp_path / "dev.json", made), "--task", "squad", "--dry-run", "--json")
    assert run(*judge) != 0
    assert "paragraph 4, question 'q2-3': the answer" in capsys.readouterr().err
    assert run(*judge, "--skip-bad-rows") == 0
    assert json.loads(capsys.readouterr().out)["rows"] == 5


def test_a_task_scores_by_its_own_rules(bundle: Path, tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(judging, "score_trivia", lambda questions, answers: {"exact": 0.1, "f1": 0.2, "total": 1})
    asked = {"qid": "a", "question": "who?", "answers": {"Aliases": ["man"]}, "detected_answers": []}
    path = tmp_path / "dev.json"
    path.write_text(json.dumps([{"context": "the spider man", "qas": [asked]}]))
    assert run("evaluate", bundle, path, "--task", "triviaqa", "--json", "-r", "patience", "--timed-batch", 1) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["metric"] == "span_f1" and [at["f1"] for at in found["questions"]] == [0.2, 0.2]


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (["--task", "squad", "--train", "gone.json"], "gone.json is missing"),
        (["--task", "squad"], "needs --data"),
        (["--task", "sst-2", "--train", "gone.json"], "has files of its own"),
    ],
)
def test_train_says_what_is_missing(encoder: Path, tmp_path: Path, capsys: Any, words: list[str], wrong: str) -> None:
    assert run("train", encoder, "-o", tmp_path / "run", *words) != 0
    assert wrong in capsys.readouterr().err


def test_evaluate_wants_a_task(bundle: Path, tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "rows.csv").write_text("question,context\nwho,me\n")
    assert run("evaluate", bundle, tmp_path / "rows.csv") != 0
    assert "name the --task that reads its questions" in capsys.readouterr().err


def asked(number: int) -> list[dict[str, str]]:
    return [{"question": "what town?", "context": made["context"]} for made in paragraphs(number, 5)]


def write_rows(path: Path, rows: list[dict[str, str]]) -> Path:
    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    elif path.suffix == ".csv":
        with open(path, "w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("ending", FORMATS)
def test_predict_answers_every_row(bundle: Path, tmp_path: Path, ending: str) -> None:
    rows = asked(45)
    out = tmp_path / f"out.{ending}"
    assert run("predict", bundle, write_rows(tmp_path / f"in.{ending}", rows), out, "--max-length", 32) == 0
    asking = [(row["question"], row["context"]) for row in rows]
    wanted: list[Any] = AdaptiveModel.from_pretrained(bundle).predict(asking, max_length=32)
    assert any(reply.windows > 1 for reply in wanted)
    for index, (found, reply) in enumerate(zip(records(out), wanted, strict=True)):
        numbers = [int(found[name]) for name in ("row", "start", "end", "windows", "layers", "tokens")]
        assert numbers == [index, reply.start, reply.end, reply.windows, reply.layers, reply.tokens]
        assert found["answer"] == reply.label == rows[index]["context"][reply.start : reply.end]
        assert float(found["score"]) == pytest.approx(reply.score, abs=1e-3)


@pytest.mark.parametrize("ending", FORMATS)
def test_predict_goes_on(bundle: Path, tmp_path: Path, ending: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(_predicting, "CHUNK", 4)
    rows, out = write_rows(tmp_path / "in.jsonl", asked(45)), tmp_path / f"out.{ending}"
    words = ("predict", bundle, rows, out, "--batch-size", 2, "--max-length", 32)
    assert run(*words[:3], tmp_path / f"whole.{ending}", *words[4:]) == 0
    written = []
    whole = ToFile.write

    def stop(self: ToFile, *given: Any) -> None:
        if len(written) == 2:
            raise KeyboardInterrupt
        written.append(whole(self, *given))

    monkeypatch.setattr(ToFile, "write", stop)
    assert run(*words) == 130
    monkeypatch.setattr(ToFile, "write", whole)
    assert progress_of(out).exists()
    assert run(*words, "--null-threshold", 0) != 0  # something else than what was begun
    assert run(*words) == 0
    assert records(out) == records(tmp_path / f"whole.{ending}")


BAD: list[tuple[dict[str, Any], str]] = [
    ({"question": "who?", "context": " "}, "empty text in column 'context'"),
    ({"question": "", "context": "me"}, "empty text in column 'question'"),
    ({"question": "who?"}, "no column 'context'"),
    ({"question": "who?", "context": 7}, "column 'context' must hold text"),
]


@pytest.mark.parametrize(("bad", "wrong"), BAD, ids=[wrong for _, wrong in BAD])
def test_predict_names_bad_rows(bundle: Path, tmp_path: Path, capsys: Any, bad: Any, wrong: str) -> None:
    rows = write_rows(tmp_path / "in.jsonl", [*asked(3), bad, *asked(2)])
    assert run("predict", bundle, rows, tmp_path / "out.jsonl") != 0
    assert f"line 4: {wrong}" in capsys.readouterr().err
    assert run("predict", bundle, rows, tmp_path / "all.jsonl", "--skip-bad-rows") == 0
    found = records(tmp_path / "all.jsonl")
    assert [one.get("error") is not None for one in found] == [False] * 3 + [True] + [False] * 2
    assert found[3]["answer"] is None and found[3]["error"].startswith(wrong)


def test_predict_wants_both_columns(bundle: Path, tmp_path: Path, capsys: Any) -> None:
    rows = write_rows(tmp_path / "in.csv", [{"text": "who?", "passage": "me and you"}])
    assert run("predict", bundle, rows, tmp_path / "out.csv") != 0
    assert "no column 'question'; it has text, passage" in capsys.readouterr().err
    named = ("--text-column", "text", "--pair-column", "passage")
    assert run("predict", bundle, rows, tmp_path / "out.csv", *named, "--dry-run") == 0
    assert run("predict", bundle, rows, tmp_path / "out.csv", *named, "--null-threshold", -1e6) == 0
    assert records(tmp_path / "out.csv")[0]["answer"] == ""
