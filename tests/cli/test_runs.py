"""What `paredown train` does beside training: test rows, scores and checkpoints by steps, what is kept."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from paredown import AdaptiveModel
from paredown.cli import main
from tests.cli.test_original_files import sheet
from tests.cli.test_train_and_evaluate import command, encoder, files, rows  # noqa: F401

QUICK = ("-m", "joint:head=linear", "--epochs", "1", "--seed", "1")


@pytest.fixture
def held_rows(tmp_path: Path) -> str:
    path = tmp_path / "test.csv"
    path.write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in rows(16)))
    return str(path)


def test_test_rows_are_reported(
    encoder: Path,  # noqa: F811
    files: dict[str, str],  # noqa: F811
    held_rows: str,
    tmp_path: Path,
    capsys: Any,
) -> None:
    line = command(encoder, files, tmp_path / "run", *QUICK, "--test", held_rows)
    assert main(line) == 0
    assert "what the plan is worth on 16 test rows" in capsys.readouterr().out
    assert main([*line, "--json"]) == 0  # the run is done; its figures are there again
    tested = json.loads(capsys.readouterr().out)["test"]
    assert tested["rows"] == sum(tested["exits"]) == 16 and tested["full_layers"] == 4
    assert 0 <= tested["score"] <= 1 and tested["metric"] == "accuracy" and tested["plan"].endswith("entropy:0.3")


def test_test_rows_of_several_depths(
    encoder: Path,  # noqa: F811
    files: dict[str, str],  # noqa: F811
    held_rows: str,
    tmp_path: Path,
    capsys: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without matplotlib: the table, the JSON file, and a line where the picture would be."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    depths = ("-m", "finetune", "--epochs", "1", "--depth", "1", "--depth", "2")
    assert main(command(encoder, files, tmp_path / "run", *depths, "--test", held_rows)) == 0
    printed = capsys.readouterr()
    assert "test (%)" in printed.out and "depths.png" not in printed.out
    found = json.loads((tmp_path / "run" / "depths.json").read_text())["depths"]
    assert [one["test"]["layers"] for one in found] == [2, 1]


def test_a_split_of_the_task(encoder: Path, tmp_path: Path, capsys: Any) -> None:  # noqa: F811
    for split, number in (("train", 24), ("dev", 8)):
        lines = [f"{text}\t{int(label == 'good')}" for text, label in rows(number)]
        path = tmp_path / "data" / "SST-2" / f"{split}.tsv"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(sheet("sentence\tlabel", lines))
    (tmp_path / "data" / "SST-2" / "test.tsv").write_text(sheet("index\tsentence", ["0\tgood"]))
    line = ["train", str(encoder), "-o", str(tmp_path / "run"), "--task", "sst-2", "--data", str(tmp_path / "data")]
    assert main([*line, *QUICK, "--test", "test"]) == 1
    assert "no labels to score by" in capsys.readouterr().err and not (tmp_path / "run").exists()
    assert main([*line, *QUICK, "--test", "dev", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["test"]["rows"] == 8


def test_every_so_many_steps_and_what_is_kept(
    encoder: Path,  # noqa: F811
    files: dict[str, str],  # noqa: F811
    tmp_path: Path,
    capsys: Any,
) -> None:
    run = tmp_path / "run"
    every = ("--evaluate-every", "2", "--save-every", "3", "--keep-checkpoints")
    assert main(command(encoder, files, run, *QUICK, *every, "--json")) == 0
    (stage,) = json.loads(capsys.readouterr().out)["stages"]
    assert [one["step"] for one in stage["evaluations"]] == [2, 4, 6, 8]
    kept = sorted(path.name for path in (run / "kept").iterdir())
    assert kept == ["step-00000003", "step-00000006", "step-00000008"]
    first, second = (AdaptiveModel.from_pretrained(run / "kept" / name) for name in kept[:2])
    assert first.plan == second.plan == AdaptiveModel.from_pretrained(run / "model").plan
    assert first.scores is None and second.scores is not None  # the dev rows were asked after step 6, not 3

    judge = ["evaluate", str(run), files["dev"], "--checkpoints", "-o", str(tmp_path / "out")]
    assert main([*judge, "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["files"] == [str(tmp_path / "out" / "checkpoints.json")]
    assert main(judge) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in kept) and "accuracy in % on 24 rows" in printed
    found = json.loads((tmp_path / "out" / "checkpoints.json").read_text())["checkpoints"]
    assert [Path(one["bundle"]).name for one in found] == [*kept, "model"]
    at_six = second.scores["per_layer"]["4"]
    assert found[1]["full_score"] == pytest.approx(at_six)
    assert main([*judge, "-r", "entropy"]) == 1 and "listen to --rule" in capsys.readouterr().err
    assert main(["evaluate", str(run / "model"), files["dev"], "--checkpoints"]) == 1
    assert "--keep-checkpoints" in capsys.readouterr().err


def test_scores_of_an_earlier_run_are_not_carried(
    encoder: Path,  # noqa: F811
    files: dict[str, str],  # noqa: F811
    tmp_path: Path,
) -> None:
    assert main(command(encoder, files, tmp_path / "first", *QUICK)) == 0
    assert AdaptiveModel.from_pretrained(tmp_path / "first" / "model").scores is not None
    again = ["train", str(tmp_path / "first" / "model"), "-o", str(tmp_path / "second"), "--train", files["train"]]
    assert main([*again, *QUICK]) == 0
    assert AdaptiveModel.from_pretrained(tmp_path / "second" / "model").scores is None


@pytest.mark.parametrize(
    "change, message",
    [
        (["--tracker", "tensorbord"], "no tracker is called 'tensorbord'; accelerate knows: aim"),
        (["--tracker", "aim"], "the tracker aim is not installed here"),
        (["--device", "gpu"], "--device is auto, cpu or cuda, not 'gpu'"),
    ],
)
def test_errors_before_any_work(tmp_path: Path, capsys: Any, change: list[str], message: str) -> None:
    assert main(["train", "nowhere", "-o", str(tmp_path / "run"), "--train", "nothing.csv", *change]) == 1
    assert message in capsys.readouterr().err.replace("\n", " ")


@pytest.mark.parametrize(
    "wrong",
    [
        ("--save-dtype", "float13"),
        ("--precision", "fp13"),
        ("--batch-size", "0"),
        ("--seed", "-1"),
        ("--max-length", "0"),
    ],
    ids=lambda wrong: wrong[0],
)
def test_a_wrong_setting_is_refused_before_anything_is_read(
    wrong: tuple[str, str], tmp_path: Path, capsys: Any
) -> None:
    missing = str(tmp_path / "missing")
    assert main(["train", missing, "--train", f"{missing}.csv", "-o", missing, "--dry-run", *wrong]) == 1
    printed = capsys.readouterr().err
    assert wrong[0].strip("-").replace("-", "_") in printed and wrong[1] in printed and "missing" not in printed
