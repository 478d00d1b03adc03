"""Rows on the command line: kinds, headers, columns that come along, standard input, what a bundle remembers."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from paredown import AdaptiveModel
from paredown.cli import main
from paredown.cli._outgoing import ToFile
from paredown.model import Reading
from tests.cli.running import records
from tests.families import adaptive, tiny

WORDS = ("good", "bad", "fine", "dull", "great", "awful")
QUICK = ("--epochs", "1", "--head", "linear", "-m")


@pytest.fixture
def encoder(tmp_path: Path, tokenizer: Any) -> Path:
    tiny("bert", hidden_size=16, num_hidden_layers=2).base_model.save_pretrained(tmp_path / "encoder")
    tokenizer.save_pretrained(tmp_path / "encoder")
    return tmp_path / "encoder"


@pytest.fixture(scope="module")
def bundle(tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "small"
    adaptive("bert", tokenizer=tokenizer, plan="entropy:0.95", hidden_size=16, num_hidden_layers=2).save_pretrained(
        folder
    )
    return folder


class Killed(BaseException):
    pass


def write(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def run(capsys: Any, *words: Any) -> str:
    """What a command that succeeds prints."""
    capsys.readouterr()
    assert main(list(map(str, words))) == 0, capsys.readouterr().err
    return str(capsys.readouterr().out)


def refused(capsys: Any, *words: Any) -> str:
    capsys.readouterr()
    assert main(list(map(str, words))) == 1
    return str(capsys.readouterr().err)


# Every kind of answer


def conll(number: int) -> str:
    return "".join(f"the O\nplot B-X\nwas O\n{WORDS[index % 6]} B-Y\n\n" for index in range(number))


def test_token_labels_from_training_to_prediction(encoder: Path, tmp_path: Path, capsys: Any) -> None:
    train, dev = write(tmp_path / "train.conll", conll(16)), write(tmp_path / "dev.txt", conll(6))
    given = ("--train", train, "--dev", dev, "--kind", "token_label", "--max-length", 16)
    run(capsys, "train", encoder, "-o", tmp_path / "run", *QUICK, "joint", *given)
    bundle = tmp_path / "run" / "model"
    model = AdaptiveModel.from_pretrained(bundle)
    assert model.labels == ["B-X", "B-Y", "O"] and model.reading == Reading(max_length=16)
    found = json.loads(run(capsys, "evaluate", bundle, dev, "-r", "entropy", "--timed-batch", 8, "--json"))
    assert found["rows"] == 6 and found["metric"] == "accuracy"
    bare = write(tmp_path / "bare.txt", "the\nplot\n\ngood\n")
    run(capsys, "predict", bundle, bare, tmp_path / "out.jsonl")
    lists = write(tmp_path / "lists.jsonl", '{"tokens": ["the", "plot"]}\n{"tokens": ["good"]}\n')
    run(capsys, "predict", bundle, lists, tmp_path / "lists.out.jsonl")
    predicted = [one["label"] for one in records(tmp_path / "out.jsonl")]
    assert predicted == [one["label"] for one in records(tmp_path / "lists.out.jsonl")]
    assert [len(label) for label in predicted] == [2, 1]


def test_numbers_become_labels_when_asked(encoder: Path, tmp_path: Path, capsys: Any) -> None:
    path = write(tmp_path / "a.csv", "text,label\n" + "".join(f"the plot was {word},{len(word)}.5\n" for word in WORDS))
    command = ("train", encoder, "-o", tmp_path / "run", "--train", path, "--dry-run", "--json", "-m")
    rule = "joint:rule=(patience:1,tolerance=0.2)"
    assert json.loads(run(capsys, *command, rule))["rows"]["kind"] == "regression"
    facts = json.loads(run(capsys, *command, "joint", "--kind", "single_label"))["rows"]
    assert facts["kind"] == "single_label" and facts["labels"] == ["3.5", "4.5", "5.5"]
    assert "no kind of answer is called 'numbers'" in refused(capsys, *command, "joint", "--kind", "numbers")


def test_regression_with_a_rule_that_fits(encoder: Path, tmp_path: Path, capsys: Any) -> None:
    path = write(tmp_path / "a.csv", "text,label\n" + "".join(f"the plot was {word},{len(word)}.5\n" for word in WORDS))
    given = ("--train", path, "--dev", path, *QUICK, "joint:rule=(patience:1,tolerance=0.2)")
    run(capsys, "train", encoder, "-o", tmp_path / "run", *given)
    assert str(AdaptiveModel.from_pretrained(tmp_path / "run" / "model").plan.exit) == "patience:1,tolerance=0.2"


# What a bundle remembers


def test_columns_header_and_separator_are_remembered(encoder: Path, tmp_path: Path, capsys: Any, caplog: Any) -> None:
    rows = "".join(f"{index};;a|b;;the plot was {word}\n".replace(";;", ",") for index, word in enumerate(WORDS))
    path = write(tmp_path / "bare.csv", rows)
    columns = ("--no-header", "--text-column", 2, "--label-column", 1, "--label-separator", "|", "--max-length", 12)
    run(capsys, "train", encoder, "-o", tmp_path / "run", "--train", path, *QUICK, "joint", *columns)
    bundle = tmp_path / "run" / "model"
    model = AdaptiveModel.from_pretrained(bundle)
    assert model.reading == Reading(12, "2", None, "1", False, "|") and model.kind.name == "multi_label"
    facts = json.loads(run(capsys, "evaluate", bundle, path, "--dry-run", "--json"))
    assert (facts["rows"], facts["max_length"], facts["label_column"]) == (6, 12, "1")
    assert facts["first_row"] == {"text": "the plot was good", "label": ["a", "b"]}
    run(capsys, "predict", bundle, path, tmp_path / "out.jsonl")
    assert len(records(tmp_path / "out.jsonl")) == 6
    named = write(tmp_path / "named.csv", "text,label\nthe plot,a|b\n")
    assert json.loads(run(capsys, "evaluate", bundle, named, "--header", "--dry-run", "--json"))["rows"] == 1
    assert "no column '2', which was read in training; it has text, label" in caplog.text
    assert "this bundle answers multi_label" in refused(capsys, "evaluate", bundle, named, "--kind", "regression")


def test_rows_to_train_on_without_a_column_of_labels(encoder: Path, tmp_path: Path, capsys: Any) -> None:
    path = write(tmp_path / "a.csv", "review,verdict\nthe plot was good,a\nbad,b\n")
    printed = refused(capsys, "train", encoder, "-o", tmp_path / "run", "--train", path, "--dry-run")
    assert f"{path}: which column holds the label? Say --label-column" in printed


def test_a_dry_run_counts_the_work_of_all_steps(encoder: Path, tmp_path: Path, capsys: Any) -> None:
    path = write(tmp_path / "a.csv", "text,label\n" + "the plot was good,a\nbad,b\n" * 8)
    command = ("train", encoder, "-o", tmp_path / "run", "--train", path, "--dev", path, "--dry-run", "--json", "-m")
    methods = ("auto:least_steps=0", "auto")  # so few rows are gone through more often than the epochs say
    short, usual = (json.loads(run(capsys, *command, method, "--batch-size", 4))["stages"][0] for method in methods)
    assert short["steps"] == 12 and usual["steps"] > 12
    assert usual["flops"] / short["flops"] == pytest.approx(usual["steps"] / short["steps"])


def test_a_dry_run_says_how_rows_are_understood(bundle: Path, encoder: Path, tmp_path: Path, capsys: Any) -> None:
    path = write(tmp_path / "a.csv", "review,stars\nthe plot was good,LABEL_1\nbad,LABEL_2\n")
    output = run(capsys, "train", encoder, "-o", tmp_path / "run", "--train", path, "--dry-run")
    for line in ("text column review", "label column stars", "kind single_label", "labels LABEL_1", "max length 64"):
        assert line in " ".join(output.split()), line
    assert "the plot was good" in output
    assert "label column stars" in " ".join(run(capsys, "evaluate", bundle, path, "--dry-run").split())
    printed = run(capsys, "predict", bundle, path, tmp_path / "o.csv", "--dry-run", "--id-column", "stars")
    for line in ("text column review", "columns kept stars", "max length 64", "{'text': 'the plot was good'}"):
        assert line in " ".join(printed.split()), line


# Columns that come along

RECORDS: list[dict[str, Any]] = [
    {"id": 7, "text": "good plot", "label": "x", "where": [1, 2], "mixed": 1, "share": 0.5, "big": 2**64, "ok": True},
    {"id": 8, "text": "the cast", "label": "y", "where": [], "mixed": "one", "share": 1, "big": 1, "ok": None},
    {"id": 9, "text": "", "label": "z", "where": None, "mixed": None, "share": None, "big": None, "ok": False},
]


@pytest.fixture
def rows(tmp_path: Path) -> str:
    return write(tmp_path / "in.jsonl", "".join(json.dumps(one) + "\n" for one in RECORDS))


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet"])
def test_an_id_comes_along(bundle: Path, rows: str, tmp_path: Path, form: str, capsys: Any) -> None:
    out = tmp_path / f"out.{form}"
    run(capsys, "predict", bundle, rows, out, "--id-column", "id", "--skip-bad-rows")
    found = records(out)
    assert [int(one["id"]) for one in found] == [7, 8, 9]
    assert list(found[0])[:3] == ["row", "id", "label"] and "empty text" in found[2]["error"]
    assert "no column 'idx' for --id-column; it has id, text" in refused(
        capsys, "predict", bundle, rows, tmp_path / "other.csv", "--id-column", "idx"
    )


def test_all_columns_come_along(bundle: Path, rows: str, tmp_path: Path, capsys: Any) -> None:
    given = ("predict", bundle, rows)
    for form in ("jsonl", "csv", "parquet"):
        run(capsys, *given, tmp_path / f"out.{form}", "--keep-columns", "--skip-bad-rows")
    plain, flat, table = (records(tmp_path / f"out.{form}") for form in ("jsonl", "csv", "parquet"))
    renamed = {name: f"input_{name}" if name == "label" else name for name in RECORDS[0]}
    for one, record in zip(plain, RECORDS, strict=True):
        assert {name: one[renamed[name]] for name in record} == record
    assert plain[0]["label"] in ("LABEL_0", "LABEL_1", "LABEL_2") and plain[0]["input_label"] == "x"
    assert flat[0]["where"] == "[1, 2]" and flat[2]["input_label"] == "z" and flat[0]["ok"] == "True"
    types = {field.name: str(field.type) for field in pyarrow.parquet.read_schema(tmp_path / "out.parquet")}
    assert (types["id"], types["share"], types["ok"]) == ("int64", "double", "bool")
    assert {types[name] for name in ("mixed", "big", "where", "text", "input_label")} == {"string"}
    assert [one["big"] for one in table] == [str(2**64), "1", None] and table[0]["where"] == "[1, 2]"


def test_values_that_json_does_not_know(bundle: Path, tmp_path: Path, capsys: Any) -> None:
    import datetime

    day, nan = datetime.date(2024, 2, 29), float("nan")
    pyarrow.parquet.write_table(
        pyarrow.table({"text": ["good", "bad"], "day": [day, None], "share": [nan, 2.5]}), tmp_path / "in.parquet"
    )
    run(capsys, "predict", bundle, tmp_path / "in.parquet", tmp_path / "out.jsonl", "--keep-columns")
    assert [(one["day"], one["share"]) for one in records(tmp_path / "out.jsonl")] == [
        ("2024-02-29", None),
        (None, 2.5),
    ]
    (tmp_path / "in.csv").write_bytes(b"text,id\ngood,a\nbad,\xff\n")
    printed = refused(capsys, "predict", bundle, tmp_path / "in.csv", tmp_path / "o.csv", "--id-column", "id")
    assert "line 3: column 'id' is not UTF-8" in printed


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet"])
def test_going_on_keeps_the_columns(bundle: Path, tmp_path: Path, monkeypatch: Any, capsys: Any, form: str) -> None:
    lines = [{"id": f"r{index}", "text": " ".join(WORDS[: 1 + index % 6])} for index in range(150)]
    path = write(tmp_path / "in.jsonl", "".join(json.dumps(one) + "\n" for one in lines))
    whole, out = tmp_path / f"whole.{form}", tmp_path / f"out.{form}"
    words = ("--keep-columns", "--batch-size", "2")
    run(capsys, "predict", bundle, path, whole, *words)
    real = ToFile.write

    def die(self: ToFile, rows: Any, done: Any) -> None:
        if done.rows > 64:
            raise Killed
        real(self, rows, done)

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(ToFile, "write", die)
        main(["predict", str(bundle), path, str(out), *words])
    assert "columns kept was" in refused(capsys, "predict", bundle, path, out, "--id-column", "id", "--batch-size", "2")
    changed = [{**one, "id": "other"} for one in lines]
    again = write(tmp_path / "other.jsonl", "".join(json.dumps(one) + "\n" for one in changed))
    assert again and "input was" in refused(capsys, "predict", bundle, again, out, *words)
    run(capsys, "predict", bundle, path, out, *words)
    assert out.read_bytes() == whole.read_bytes()


# Standard input


@pytest.mark.parametrize(
    ("text", "more", "printed"),
    [
        ('id,text\n1,good plot\n2,"bad, bad"\n', (), "csv"),
        ("text\tid\ngood plot\t1\nbad, bad\t2\n", (), "tsv"),
        ('"id","body"\n1,good plot\n2,"bad, bad"\n', (), "csv"),
        ('id,phrase\n1,good plot\n2,"bad, bad"\n', ("--text-column", "phrase"), "csv"),
        ('{"text": "good plot"}\n{"text": "bad, bad"}\n', (), "jsonl"),
        ("good plot\nbad, bad\n", (), "one text a line"),
        ("good plot\nbad, bad\n", ("--input-format", "text"), None),
        ('1,good plot\n2,"bad, bad"\n', ("--input-format", "csv", "--no-header", "--text-column", "1"), None),
    ],
)
def test_what_standard_input_is(
    bundle: Path, capsys: Any, monkeypatch: Any, caplog: Any, text: str, more: tuple[str, ...], printed: str | None
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    caplog.set_level("INFO")
    found = [json.loads(line) for line in run(capsys, "predict", bundle, "-", "-", *more).splitlines()]
    expected = AdaptiveModel.from_pretrained(bundle).predict(["good plot", "bad, bad"])
    assert [one["label"] for one in found] == [one.label for one in expected]
    assert [one["tokens"] for one in found] == [one.tokens for one in expected]
    assert (f"standard input is read as {printed}" in caplog.text) == (printed is not None)


def test_words_through_standard_input(tokenizer: Any, tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    adaptive("bert", "token_label", tokenizer=tokenizer, num_hidden_layers=2).save_pretrained(tmp_path / "model")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"good O\nplot O\n\nbad O\n")))
    printed = run(capsys, "predict", tmp_path / "model", "-", "-", "--input-format", "conll")
    assert [len(json.loads(line)["label"]) for line in printed.splitlines()] == [2, 1]


def test_bad_formats_are_refused(bundle: Path, rows: str, capsys: Any) -> None:
    assert "--input-format is one of auto, text" in refused(
        capsys, "predict", bundle, "-", "-", "--input-format", "xml"
    )
    assert "is of standard input" in refused(capsys, "predict", bundle, rows, "-", "--input-format", "csv")


def test_errors_name_flags(encoder: Path, tmp_path: Path, capsys: Any) -> None:
    path = write(tmp_path / "a.csv", "foo,bar\nx,y\n")
    printed = refused(capsys, "train", encoder, "-o", tmp_path / "run", "--train", path)
    assert "say --text-column (a file without a header line: --no-header" in " ".join(printed.split())


def test_csv_output_reads_back(bundle: Path, tmp_path: Path, capsys: Any) -> None:
    """Texts with commas and line ends come along whole."""
    text = 'good, "very"\ngood'
    path = write(tmp_path / "in.jsonl", json.dumps({"text": text}) + "\n")
    run(capsys, "predict", bundle, path, tmp_path / "out.csv", "--keep-columns")
    with open(tmp_path / "out.csv", newline="") as file:
        assert next(csv.DictReader(file))["text"] == text
