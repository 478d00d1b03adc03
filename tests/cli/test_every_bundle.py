"""`evaluate` and `predict` of bundles without exits: every kind of answer, fewer layers, submissions."""

from __future__ import annotations

import json
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from paredown import AdaptiveModel, Plan
from paredown.cli import main
from paredown.runtime.timing import Times
from tests.cli.running import records
from tests.cli.test_candidates import hops
from tests.cli.test_choice import write_race
from tests.cli.test_hotpot import write as write_hotpot
from tests.cli.test_original_files import LABELS, data  # noqa: F401
from tests.cli.test_questions import paragraphs, write_squad
from tests.families import adaptive
from tests.tasks.asking import word_pieces
from tests.test_choice import learnable

TEXTS = ["the film was good", "a dull plot", "the cast was great", "an awful movie", "fine", "quite bad"]
CELLS: dict[str, list[Any]] = {
    "single_label": ["LABEL_0", "LABEL_1", "LABEL_2"] * 2,
    "multi_label": [["LABEL_0"], ["LABEL_1", "LABEL_2"], []] * 2,
    "regression": [0.5, 1.5, 2.0, 0.0, 1.0, 3.0],
    "token_label": [["LABEL_1"] * len(text.split()) for text in TEXTS],
}
ROWS: dict[str, list[Any]] = {"text": TEXTS, "tokens": [text.split() for text in TEXTS]}
TASKS = {"span": "squad", "supported_span": "hotpotqa", "choice": "race-middle", "marked": "wikihop"}
SUCCESSORS = "successors"  # of Theseus: layers that were grown


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures and resamples take most of the time and are not what is tested."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr(
        "paredown.evaluation.report.intervals", lambda record, answers, *rest, **more: [(0, 1)] * len(answers)
    )


def run(*words: Any) -> int:
    return main([str(word) for word in words])


def rows_of(kind: str, folder: Path) -> list[Any]:
    """The words that give `evaluate` labelled rows of a kind."""
    if kind == "span":
        return [write_squad(folder / "squad.json", paragraphs(6, 1)), "--task", TASKS[kind]]
    if kind == "supported_span":
        return [write_hotpot(folder / "hotpot.json", 4), "--task", TASKS[kind]]
    if kind == "marked":
        (folder / "hops.json").write_text(json.dumps(hops(5, 1)))
        return [folder / "hops.json", "--task", TASKS[kind]]
    if kind == "choice":
        write_race(folder, "dev", "middle", learnable(6, 1))
        return ["--task", TASKS[kind], "--data", folder]
    path = folder / "rows.jsonl"
    text = "tokens" if kind == "token_label" else "text"
    made = [{text: row, "label": label} for row, label in zip(ROWS[text], CELLS[kind], strict=True)]
    path.write_text("".join(json.dumps(one) + "\n" for one in made))
    return [path]


def bundle(folder: Path, tokenizer: Any, kind: str, use: str) -> tuple[Path, int]:
    """A bundle without exits, and how many layers it runs."""
    asked = kind in ("span", "supported_span", "marked")
    own = {"vocab_size": 200} if asked else {}
    model = adaptive("bert", kind, head=None, tokenizer=word_pieces() if asked else tokenizer, **own)
    if use == "fixed depth":
        model.plan = Plan((0, 1, 2))
    if use == SUCCESSORS:
        model.plan = Plan(model.grow_layers([0, 2]))
    model.save_pretrained(folder / "bundle")
    return folder / "bundle", len(model.depth)


@pytest.mark.parametrize("kind, use", [*((kind, "fixed depth") for kind in (*CELLS, *TASKS)), ("span", SUCCESSORS)])
def test_evaluate_and_predict(kind: str, use: str, tokenizer: Any, tmp_path: Path, capsys: Any) -> None:
    made, layers = bundle(tmp_path, tokenizer, kind, use)
    judge = ("evaluate", made, *rows_of(kind, tmp_path), "--timed-batch", 8, "-o", tmp_path / "out")
    assert run(*judge) == 0 and "full depth" in capsys.readouterr().out
    found = json.loads((tmp_path / "out" / "evaluation.json").read_text())
    assert not found["curves"] and found["full"]["layers"] == layers and found["full"]["flops_speedup"] > 1.2
    assert [one["rule"] for one in found["timings"]] == ["full depth"]
    inputs = tmp_path / "RACE" / "dev" / "middle" if kind == "choice" else rows_of(kind, tmp_path)[0]
    named = ("--task", TASKS[kind]) if kind in TASKS else ()
    assert run("predict", made, inputs, tmp_path / "out.jsonl", *named) == 0
    predicted = records(tmp_path / "out.jsonl")
    assert predicted and all(one["layers"] == layers * one.get("windows", 1) for one in predicted)


def classifier(folder: Path, tokenizer: Any, kind: str) -> str:
    labels = LABELS[kind]
    of_kind = "regression" if kind == "regression" else "single_label"
    plan = Plan((0, 1))
    model = adaptive("bert", of_kind, head=None, tokenizer=tokenizer, plan=plan, num_labels=len(labels))
    model.config.id2label = dict(enumerate(labels))
    model.config.label2id = {label: number for number, label in enumerate(labels)}
    model.save_pretrained(folder / kind)
    return str(folder / kind)


@pytest.mark.parametrize("kind, task", [("single_label", "mrpc"), ("regression", "sts-b")])
def test_submissions_without_exits(
    kind: str,
    task: str,
    tokenizer: Any,
    data: Path,  # noqa: F811
    tmp_path: Path,
    capsys: Any,
) -> None:
    made = classifier(tmp_path, tokenizer, kind)
    given = ("--data", data, "-o", tmp_path / "out")
    name = {"mrpc": "MRPC", "sts-b": "STS-B"}[task]
    assert run("evaluate", made, "--task", task, *given, "--write", "glue") == 0
    with zipfile.ZipFile(tmp_path / "out" / "glue.zip") as archive:
        assert archive.namelist() == [f"{name}.tsv"]
    line = ("evaluate", made, "--task", f"elue-{task}", *given, "--write", "elue")
    assert run(*line) == 0
    with zipfile.ZipFile(tmp_path / "out" / "elue.zip") as archive:
        assert archive.namelist() == [f"{name}_2.tsv", f"{name}_infer_exit_layer_2.tsv"]
        layers = archive.read(f"{name}_infer_exit_layer_2.tsv").decode().split()[2:]
    assert len(layers) == 40 and set(layers[1::2]) == {"2"}
    capsys.readouterr()
    assert run(*line, "--patience", "2") == 1  # what is asked for and cannot be done is an error still
    assert "train exits first" in capsys.readouterr().err


def test_a_number_is_swept_with_the_tolerance_of_the_plan(tokenizer: Any, tmp_path: Path, capsys: Any) -> None:
    plan = "patience:2,tolerance=0.5"
    adaptive("bert", "regression", tokenizer=tokenizer, plan=plan).save_pretrained(tmp_path / "b")
    assert run("evaluate", tmp_path / "b", *rows_of("regression", tmp_path), "--timed-batch", 8, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["chosen"][0]["rule"] == plan
    assert all("tolerance=0.5" in point["rule"] for point in found["curves"]["patience"])


def test_the_time_of_a_fixed_depth_is_its_own(tokenizer: Any, tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    """The line "full depth" has the layers of the plan, so its time is of these, against that of the stock model."""
    asked: list[Plan] = []

    def timed(model: AdaptiveModel, rows: Any, plans: list[Plan], size: int) -> dict[Plan, Times]:
        asked.extend(plans)
        return {plan: Times(((len(model.depth_of(plan)) / 1000,),), (1,)) for plan in plans}

    monkeypatch.setattr("paredown.evaluation.report.time_plans", timed)
    made, _ = bundle(tmp_path, tokenizer, "single_label", "fixed depth")
    assert run("evaluate", made, *rows_of("single_label", tmp_path), "--timed-batch", 8, "--json") == 0
    (timing,) = json.loads(capsys.readouterr().out)["timings"]
    assert asked == [Plan(), Plan((0, 1, 2))]
    assert (timing["milliseconds"], timing["faster"]) == (pytest.approx(3), pytest.approx(4 / 3))
