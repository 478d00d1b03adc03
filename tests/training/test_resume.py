"""Promises 10 and 11: a run that was stopped and resumed ends with the bits of one that was not."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import paredown.methods  # noqa: F401  registers them
from paredown import AdaptiveModel
from paredown.errors import BadSetting
from paredown.registry import methods
from paredown.training import Report, train
from paredown.training.checkpoint import Checkpoints
from paredown.training.learner import Learner
from tests.grids import thorough
from tests.placement import unaligned
from tests.training.tiny import Steps, bits, rows, stage, tiny

SHORT = {"epochs": 1.0, "exit_epochs": 1.0, "least_steps": 0, "batch_size": 8, "lr": 1e-3}
pytestmark = pytest.mark.usefixtures("deterministic")


class Stop(Exception):
    pass


def short(name: str) -> Any:
    """A method with few, small steps."""
    fields = {field.name for field in dataclasses.fields(methods[name])}
    return methods.make(name, **{key: value for key, value in SHORT.items() if key in fields})


def run(output: Path, chosen: list[Any], **settings: Any) -> tuple[AdaptiveModel, Report]:
    model = tiny()
    data = {"train_rows": rows(44), "dev_rows": rows(9), "unlabelled": [row["text"] for row in rows(12)]}
    return model, train(model, chosen, **{**data, "output": output, "checkpoint_every": 4, **settings})


def run_with_stops(
    output: Path, chosen: list[Any], monkeypatch: pytest.MonkeyPatch, every: int, **settings: Any
) -> Any:
    """The same run, killed before every so many steps and resumed in a new model."""
    stops = steps = 0
    step = Learner.step

    def stopping(self: Learner, number: int) -> float:
        nonlocal steps
        if steps == every:
            raise Stop
        steps += 1
        return step(self, number)

    monkeypatch.setattr(Learner, "step", stopping)
    while True:
        steps = 0
        try:
            result = run(output, chosen, **settings)
            break
        except Stop:
            stops += 1
    monkeypatch.undo()
    assert stops >= 1
    return result


def newest_files(output: Path) -> dict[str, bytes]:
    found = Checkpoints(output).newest()
    assert found is not None
    return {name: (found.path / name).read_bytes() for name in ("model.safetensors", "optimizer.safetensors")}


def assert_same(one: tuple[AdaptiveModel, Report], other: tuple[AdaptiveModel, Report]) -> None:
    assert bits(one[0]) == bits(other[0])
    for first, second in zip(one[1].stages, other[1].stages, strict=True):
        assert dataclasses.replace(first, seconds=0.0) == dataclasses.replace(second, seconds=0.0)


@pytest.mark.parametrize("name", [*methods.names(), *thorough(methods.aliases())])
def test_every_method_resumes_to_the_bit(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = run(tmp_path / "whole", [short(name)])
    every = 5 if len(whole[1].stages) == 1 else 9  # within a stage, which has six steps
    stopped = run_with_stops(tmp_path / "stopped", [short(name)], monkeypatch, every)
    assert_same(whole, stopped)
    assert newest_files(tmp_path / "whole") == newest_files(tmp_path / "stopped")


@pytest.mark.thorough
@pytest.mark.parametrize("name", methods.names())
def test_40_steps_of_every_method_are_20_and_20(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stages = [field.name for field in dataclasses.fields(methods[name]) if field.name.endswith("epochs")]
    shares = {1: (40,), 2: (20, 20), 3: (20, 10, 10), 4: (10, 10, 10, 10)}[len(stages)]
    epochs = {stage: steps / 11 for stage, steps in zip(stages, shares, strict=True)}
    fields = {field.name for field in dataclasses.fields(methods[name])}
    exact = {key: value for key, value in {"least_steps": 0, "max_drop": None}.items() if key in fields}
    method = methods.make(name, batch_size=4, lr=1e-3, **epochs, **exact)
    alone = {"unlabelled": None, "dev_rows": None, "checkpoint_every": 20}
    whole = run(tmp_path / "whole", [method], **alone)
    assert sum(len(entry.losses) for entry in whole[1].stages) == 40
    assert_same(whole, run_with_stops(tmp_path / "stopped", [method], monkeypatch, every=20, **alone))
    assert newest_files(tmp_path / "whole") == newest_files(tmp_path / "stopped")


def test_bits_do_not_depend_on_where_weights_lay(tmp_path: Path) -> None:
    one, other = tiny(), unaligned(tiny())
    for number, model in enumerate((one, other)):
        train(model, "joint:epochs=1,batch_size=8", rows(16), output=tmp_path / str(number))
    assert bits(one) == bits(other)


def test_a_list_of_methods_resumes_to_the_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = [short("finetune"), short("two_stage"), short("alternating")]
    whole = run(tmp_path / "whole", chosen)
    assert_same(whole, run_with_stops(tmp_path / "stopped", chosen, monkeypatch, every=7))


def test_40_steps_are_20_and_20(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stage boundary lies at 20 steps; runs stop before, at and after it."""
    halves = [Steps([stage("one", batch_size=4, epochs=20 / 11), stage("two", batch_size=4, epochs=20 / 11)])]
    whole = run(tmp_path / "whole", halves, checkpoint_every=20)
    assert [len(entry.losses) for entry in whole[1].stages] == [20, 20]
    for stop in (19, 20, 21):
        output = tmp_path / str(stop)
        assert_same(whole, run_with_stops(output, halves, monkeypatch, every=stop, checkpoint_every=6))
        assert newest_files(tmp_path / "whole") == newest_files(output)


def test_same_seed_same_bits_other_seed_other_bits(tmp_path: Path) -> None:
    one, two, other = (
        run(tmp_path / name, [short("fastbert")], seed=seed) for name, seed in (("a", 1), ("b", 1), ("c", 2))
    )
    assert_same(one, two)
    assert bits(one[0]) != bits(other[0])


def test_a_finished_run_is_not_trained_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = run(tmp_path, [Steps([stage()])])
    monkeypatch.setattr(Learner, "step", None)
    assert_same(first, run(tmp_path, [Steps([stage()])]))


@pytest.mark.parametrize("damage", ["cut", "changed", "missing", "empty"])
def test_a_damaged_checkpoint_is_passed_over(damage: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    whole = run(tmp_path / "whole", [Steps([stage()])])
    run(tmp_path / "hurt", [Steps([stage()])])
    newest = max((tmp_path / "hurt" / "checkpoints").glob("step-*"))
    target = newest / "model.safetensors"
    if damage == "cut":
        target.write_bytes(target.read_bytes()[:-9])
    elif damage == "changed":
        target.write_bytes(target.read_bytes()[:-9] + b"damaged!!")
    elif damage == "missing":
        target.unlink()
    else:
        shutil.rmtree(newest)
        newest.mkdir()
    resumed = run(tmp_path / "hurt", [Steps([stage()])])
    assert str(newest) in caplog.text
    assert_same(whole, resumed)


def test_another_run_in_the_same_folder_is_refused_by_name(tmp_path: Path) -> None:
    run(tmp_path, [Steps([stage()])])
    with pytest.raises(BadSetting, match="seed was 42, now 7"):
        run(tmp_path, [Steps([stage()])], seed=7)
    with pytest.raises(BadSetting, match=r"methods was .*; rows was .*; data was"):
        run(tmp_path, ["finetune"], train_rows=rows(45))
    with pytest.raises(BadSetting, match="resume=True goes on with it"):
        run(tmp_path, [Steps([stage()])], resume=False)


def test_two_checkpoints_are_kept_with_the_best_they_name(tmp_path: Path) -> None:
    run(tmp_path, [Steps([stage(epochs=4)])], checkpoint_every=3)
    kept = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert kept == ["step-00000021", "step-00000024"]
    named = {json.loads((tmp_path / "checkpoints" / name / "manifest.json").read_text())["best"] for name in kept}
    assert {path.name for path in (tmp_path / "best").iterdir()} == {f"step-{step:08d}" for step in named}


def test_nothing_is_pickled(tmp_path: Path) -> None:
    run(tmp_path, [short("fastbert")])
    endings = {path.suffix for path in tmp_path.rglob("*") if path.is_file()}
    assert endings <= {".safetensors", ".json", ".txt", ".md"}
