"""`paredown evaluate --write` and `--dry-run`, as a user types them."""

from __future__ import annotations

import json
import random
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paredown.cli import main
from tests.families import adaptive

LABELS = {"single_label": ["0", "1"], "snli": ["neutral", "entailment", "contradiction"], "regression": ["score"]}
PLOTS = {f"{name}.{ending}" for name in ("score_by_layer", "score_against_cost", "exits") for ending in ("png", "svg")}


def sheet(header: str, lines: list[str]) -> str:
    return "\n".join([header, *lines]) + "\n"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A few tasks of GLUE and ELUE in their own layouts; test rows have no labels."""
    choose = random.Random(0)
    texts = [" ".join(choose.choices("the film was good bad dull great not".split(), k=6)) for _ in range(20)]
    columns = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String"
    files = {
        "SST-2/dev": ("sentence\tlabel", [f"{text}\t{number % 2}" for number, text in enumerate(texts)]),
        "SST-2/test": ("index\tsentence", [f"{number}\t{text}" for number, text in enumerate(texts)]),
        "MRPC/dev": (columns, [f"{number % 2}\t1\t2\t{text}\t{text}" for number, text in enumerate(texts)]),
        "MRPC/test": (
            columns.replace("Quality", "index"),
            [f"{number}\t1\t2\t{text}\t{text}" for number, text in enumerate(texts)],
        ),
        "STS-B/test": ("index\tsentence1\tsentence2", [f"{number}\t{text}\tfilm" for number, text in enumerate(texts)]),
        "SNLI/test": ("index\tpremise\thypothesis", [f"{number}\t{text}\tfilm" for number, text in enumerate(texts)]),
    }
    for name, (header, lines) in files.items():
        path = tmp_path / "data" / f"{name}.tsv"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(sheet(header, lines))
    return tmp_path / "data"


def bundle(folder: Path, tokenizer: Any, kind: str = "single_label") -> str:
    labels = LABELS[kind]
    plan = "patience:2,tolerance=0.5" if kind == "regression" else "entropy:0.9"
    of_kind = "regression" if kind == "regression" else "single_label"
    model = adaptive("bert", of_kind, tokenizer=tokenizer, plan=plan, num_labels=len(labels))
    model.config.id2label = dict(enumerate(labels))
    model.config.label2id = {label: index for index, label in enumerate(labels)}
    model.save_pretrained(folder / kind)
    return str(folder / kind)


@pytest.fixture
def made(tmp_path: Path, tokenizer: Any) -> str:
    return bundle(tmp_path, tokenizer)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def foreseen(line: list[str], capsys: Any) -> set[str]:
    """The files that --dry-run names."""
    assert main([*line, "--dry-run", "--json"]) == 0
    return {Path(path).name for path in json.loads(capsys.readouterr().out)["files"]}


def test_deebert(made: str, data: Path, tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "out"
    line = ["evaluate", made, "--task", "mrpc", "--data", str(data), "-o", str(out), "--write", "deebert"]
    assert len(foreseen(line, capsys)) == 14 and not out.exists()
    line += ["--threshold", "0.1", "--threshold", "0.5"]
    wanted = foreseen(line, capsys)
    assert main(line) == 0
    printed = capsys.readouterr()
    assert names(out) == wanted == {"entropy_0.1.npy", "entropy_0.5.npy", "each_layer.npy"}
    rows, seconds, share, score, *counts = np.load(out / "entropy_0.5.npy", allow_pickle=False).tolist()
    assert rows == sum(counts) == 20 and seconds > 0 and 0 < share <= 1
    lines = printed.out.splitlines()
    assert len(lines) == 10 and lines[5] == "0.5" and lines[6] == f"Eval time: {seconds}"
    assert lines[9] == f"Result: {score}" and printed.err.count("written:") == 3


def test_settings_from_a_file(made: str, data: Path, tmp_path: Path, capsys: Any) -> None:
    settings = tmp_path / "run.yaml"
    settings.write_text(f"task: mrpc\ndata: {data}\noutput: {tmp_path / 'out'}\nwrite: deebert\nthreshold: 0.1\n")
    assert foreseen(["evaluate", made, "--config", str(settings)], capsys) == {"entropy_0.1.npy", "each_layer.npy"}


def test_elasticbert(made: str, data: Path, tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "out"
    line = ["evaluate", made, "--task", "elue-mrpc", "--data", str(data), "-o", str(out), "--write", "elasticbert"]
    wanted = foreseen(line, capsys)
    assert main(line) == 0
    lines = capsys.readouterr().out.splitlines()
    assert names(out) == wanted == {f"mrpc_eval_exit_layer_{at}.tsv" for at in (0.3, 0.4, 0.5, 2, 3, 4, 5, 6, 7)}
    assert [text.split(" = ")[0] for text in lines[:3]] == ["  acc", "  acc_and_f1", "  f1"]
    assert len(lines) == 36 and lines[3].startswith("*** Early_exit_entropy = 0.3 Avg. Inference Layers = ")
    assert main([*line, "--split", "test", "--patience", "2"]) == 0
    printed = capsys.readouterr()
    assert names(out) - wanted == {"mrpc_2.tsv", "mrpc_infer_exit_layer_2.tsv"}
    assert printed.out.startswith("*** Patience = 2") and printed.out.count("\n") == 1
    assert "have no labels, so nothing was scored" in printed.err


def test_a_glue_submission_grows_task_by_task(
    made: str, data: Path, tmp_path: Path, tokenizer: Any, capsys: Any
) -> None:
    line = ["--data", str(data), "-o", str(tmp_path / "out"), "--write", "glue"]
    assert main(["evaluate", made, "--task", "mrpc", *line]) == 0
    assert "GLUE also wants CoLA" in capsys.readouterr().out
    assert main(["evaluate", made, "--task", "sst-2", *line, "--exit", "entropy_nats:0.2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["files"] == [str(tmp_path / "out" / "glue.zip")]
    assert main(["evaluate", bundle(tmp_path, tokenizer, "regression"), "--task", "sts-b", *line]) == 0
    with zipfile.ZipFile(tmp_path / "out" / "glue.zip") as archive:
        assert archive.namelist() == ["MRPC.tsv", "SST-2.tsv", "STS-B.tsv"]
        assert len(archive.read("SST-2.tsv").splitlines()) == 21


def test_an_elue_submission_spells_labels_as_elue_does(tmp_path: Path, data: Path, tokenizer: Any) -> None:
    made = bundle(tmp_path, tokenizer, "snli")
    line = ["evaluate", made, "--task", "elue-snli", "--data", str(data), "-o", str(tmp_path), "--write", "elue"]
    assert main([*line, "--write", "elasticbert", "--split", "test", "--threshold", "0.5"]) == 0
    with zipfile.ZipFile(tmp_path / "elue.zip") as archive:
        assert archive.namelist() == ["SNLI_0.5.tsv", "SNLI_infer_exit_layer_0.5.tsv"]
        sent = archive.read("SNLI_0.5.tsv").decode()
    assert {row.split("\t")[1] for row in sent.splitlines()[1:]} <= {"0", "1", "2"}
    assert (tmp_path / "snli_0.5.tsv").read_text() == sent


def test_numbers_have_patience_only(tmp_path: Path, data: Path, tokenizer: Any, capsys: Any) -> None:
    made = bundle(tmp_path, tokenizer, "regression")
    line = ["evaluate", made, "--task", "elue-sts-b", "--data", str(data), "-o", str(tmp_path), "--write", "elue"]
    assert main([*line, "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rules"][0] == "patience:2,tolerance=0.94"
    assert main([*line, "--patience", "1", "--tolerance", "2"]) == 0
    with zipfile.ZipFile(tmp_path / "elue.zip") as archive:
        assert archive.namelist() == ["STS-B_1.tsv", "STS-B_infer_exit_layer_1.tsv"]
    assert main([*line, "--threshold", "0.3"]) == 1
    assert "numbers, not probabilities" in capsys.readouterr().err


def test_a_submission_answers_every_row(made: str, data: Path, tmp_path: Path, capsys: Any) -> None:
    with open(data / "SST-2" / "test.tsv", "a") as file:
        file.write("20\t\n21\tgood\n")
    line = ["evaluate", made, "--task", "sst-2", "--data", str(data), "-o", str(tmp_path / "out"), "--write", "glue"]
    assert main([*line, "--skip-bad-rows", "--dry-run"]) == 1
    assert "1 rows were left out" in capsys.readouterr().err


def test_rows_of_ones_own(made: str, data: Path, tmp_path: Path) -> None:
    line = ["evaluate", made, str(data / "SST-2" / "dev.tsv"), "-o", str(tmp_path / "out"), "--write", "elasticbert"]
    assert main([*line, "--threshold", "0.5"]) == 0
    assert names(tmp_path / "out") == {"dev_eval_exit_layer_0.5.tsv"}


def test_what_a_report_would_do(made: str, data: Path, tmp_path: Path, capsys: Any) -> None:
    line = ["evaluate", made, "--task", "mrpc", "--data", str(data), "-o", str(tmp_path / "out"), "-r", "entropy"]
    line += ["--timed-batch", "4"]
    assert main([*line, "--dry-run"]) == 0
    printed = capsys.readouterr().out
    assert "Nothing was run." in printed and "entropy, 112 points" in printed and not (tmp_path / "out").exists()
    wanted = foreseen(line, capsys)
    assert main([*line, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["metric"] == "accuracy_and_f1"  # the task's, not the kind's
    assert names(tmp_path / "out") == wanted == {"evaluation.json", "curves.csv", *PLOTS}


def test_the_work_of_a_pass_is_what_the_report_bills_for_asking_every_head(made: str, data: Path, capsys: Any) -> None:
    line = ["evaluate", made, "--task", "sst-2", "--data", str(data), "-r", "never", "-r", "entropy"]
    assert main([*line, "--dry-run", "--json"]) == 0
    work = json.loads(capsys.readouterr().out)["flops_of_one_pass"]
    assert main([*line, "--timed-batch", "4", "--json"]) == 0
    never = json.loads(capsys.readouterr().out)["curves"]["never"][0]
    assert work == pytest.approx(20 * never["flops"])


@pytest.mark.parametrize(
    "task, change, message",
    [
        ("mrpc", ["--write", "pabee"], "it knows: deebert, elasticbert, glue, elue"),
        ("mrpc", ["--write", "elue"], "needs a --task of ELUE: elue-imdb"),
        ("mrpc", ["--write", "glue", "--split", "dev"], "answers test rows"),
        ("mrpc", ["--write", "glue", "--write", "deebert"], "a command of its own"),
        ("mrpc", ["--write", "deebert", "--split", "test", "--dry-run"], "no labels"),
        ("mrpc", ["--write", "deebert", "--patience", "2"], "--patience is for --write elasticbert or elue"),
        ("mrpc", ["--write", "elasticbert", "--threshold", "-1"], "must be a number of 0.0 or more"),
        ("mrpc", ["--threshold", "0.1"], "--threshold is for --write"),
        (
            "mrpc",
            ["--write", "deebert", "-r", "entropy", "--max-drop", "0"],
            "nothing would listen to --rule, --max-drop",
        ),
        ("mrpc", ["--write", "glue", "--paper", "fastbert", "--timed-batch", "4"], "listen to --paper, --timed-batch"),
        ("mrpc", ["-r", "learned", "-r", "patience:2,tolerance=1", "--dry-run"], "tolerance is for numbers"),
        ("mrpc", ["-r", "entropy", "-r", "entropy:0.2", "--dry-run"], "two have the same name"),
        ("mrpc", ["--split", "test"], "no labels to score by; --write"),
        ("mrpc", ["--write", "elasticbert", "--tolerance", "0.5", "--patience", "2"], "leave it out"),
        ("mnli", ["--write", "glue"], "the answers to mnli are contradiction, entailment, neutral"),
        ("mrcp", ["--write", "glue"], "did you mean 'mrpc'?"),
    ],
)
def test_errors_are_a_line(
    made: str, data: Path, tmp_path: Path, capsys: Any, task: str, change: list[str], message: str
) -> None:
    assert main(["evaluate", made, "--task", task, "--data", str(data), "-o", str(tmp_path / "out"), *change]) == 1
    error = capsys.readouterr().err
    assert message in error.replace("\n", " ") and "Traceback" not in error and not (tmp_path / "out").exists()


def test_a_folder_is_needed(made: str, data: Path, capsys: Any) -> None:
    assert main(["evaluate", made, "--task", "mrpc", "--data", str(data), "--write", "glue"]) == 1
    assert "--output" in capsys.readouterr().err
