"""What a run leaves behind: the best weights in a bundle, metrics.json, tracker files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import paredown.methods  # noqa: F401  registers them
from paredown import AdaptiveModel
from paredown.errors import BadInput, BadSetting
from paredown.training import train
from paredown.training.outcome import judge
from tests.training.test_resume import short
from tests.training.tiny import Steps, bits, rows, stage, tiny


def test_the_best_weights_end_in_the_bundle(tmp_path: Path) -> None:
    values = iter([0.2, 0.9, 0.9, 0.1, 0.9, 0.9])  # the last two: what the plan is worth in the end
    seen: list[dict[str, bytes]] = []
    model = tiny()

    def metric(predicted: np.ndarray, labels: np.ndarray) -> float:
        seen.append(bits(model))
        return next(values)

    report = train(model, Steps([stage(epochs=4)]), rows(24), rows(8), output=tmp_path, metric=metric)
    (entry,) = report.stages
    assert [found.step for found in entry.evaluations] == [3, 6, 9, 12]
    assert (entry.best, entry.best_step) == (0.9, 6)  # only a strictly better one replaces it
    assert bits(model) == seen[1] != seen[3]
    assert bits(AdaptiveModel.from_pretrained(tmp_path / "model")) == seen[1]


def test_a_score_of_zero_still_counts(tmp_path: Path) -> None:
    report = train(tiny(), Steps([stage()]), rows(8), rows(8), output=tmp_path, metric=lambda *unused: 0.0)
    assert report.stages[0].best == 0.0 and report.stages[0].best_step == 1


def test_some_parameters_learn_at_another_rate(tmp_path: Path) -> None:
    model, before = tiny(), bits(tiny())

    def rate(name: str) -> float:
        return 0.0 if name.startswith("stock.classifier") else 1.0

    train(model, Steps([stage(rate=rate)]), rows(24), output=tmp_path)
    moved = {name for name, value in bits(model).items() if value != before[name]}
    assert moved and not any(name.startswith("stock.classifier") for name in moved)


def test_judged_by() -> None:
    scores = {1: 0.2, 2: 0.4, 3: 0.9}
    assert judge(scores, "final") == 0.9
    assert judge(scores, "exits") == pytest.approx(0.3)
    assert judge(scores, "all") == pytest.approx(0.5)
    assert judge({3: 0.9}, "exits") == 0.9


def test_metrics_and_tracker_files(tmp_path: Path) -> None:
    report = train(
        tiny(), short("fastbert"), rows(24), rows(8), output=tmp_path, trackers=["tensorboard"], evaluate_every=2
    )
    written = json.loads((tmp_path / "metrics.json").read_text())
    assert [entry["name"] for entry in written["stages"]] == ["finetune", "distill"]
    for entry, found in zip(report.stages, written["stages"], strict=True):
        assert found["losses"] == entry.losses and len(entry.losses) == entry.steps == 3
        assert [evaluation["step"] for evaluation in found["evaluations"]] == [2, 3]
        assert entry.seconds > 0
    assert list((tmp_path / "logs").rglob("events.out.tfevents*"))


def test_the_last_method_proposes_the_plan(tmp_path: Path) -> None:
    model = tiny()
    train(model, ["finetune:epochs=1", short("fastbert")], rows(8), output=tmp_path / "a")
    assert str(AdaptiveModel.from_pretrained(tmp_path / "a" / "model").plan.exit) == "entropy:0.5"
    model.plan = model.plan.but(exit="confidence:0.9")
    train(model, short("fastbert"), rows(8), output=tmp_path / "b")
    assert str(model.plan.exit) == "confidence:0.9"


def test_learning_happens(tmp_path: Path) -> None:
    model = tiny(dropout=0.0)
    method = Steps([stage(epochs=12, lr=3e-3, batch_size=16)])
    report = train(model, method, rows(96), rows(96), output=tmp_path, checkpoint_every=999)
    assert (report.stages[0].best or 0) > 0.9


def test_compiled_layers_learn_the_same_and_are_restored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compile = torch.compile
    compiled: list[Any] = []

    def eager(function: Any, dynamic: bool) -> Any:
        compiled.append(compile(function, dynamic=dynamic, backend="eager"))
        return compiled[-1]

    monkeypatch.setattr(torch, "compile", eager)
    results = []
    for index, chosen in enumerate((False, True)):
        model = tiny(layers=2, dropout=0.0)
        done = train(model, Steps([stage(epochs=1)]), rows(16), output=tmp_path / str(index), compile=chosen)
        results.append(done.stages[0].losses)
        assert not any("forward" in layer.__dict__ for layer in model.walk.layers)
    assert len(compiled) == 2 and results[1] == pytest.approx(results[0], abs=1e-5)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_lower_precision_trains(precision: str, tmp_path: Path) -> None:
    model = tiny()
    report = train(model, Steps([stage()]), rows(16), output=tmp_path, precision=precision)
    assert all(np.isfinite(report.stages[0].losses))
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}


def test_wrong_arguments_are_named(tmp_path: Path) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"batch_size": 0}, "batch_size"),
        ({"precision": "fp8"}, "precision"),
        ({"methods": []}, "no method"),
        ({"methods": Steps([stage(trains=lambda name: False)])}, "trains no parameter"),
    ]
    for wrong, message in cases:
        with pytest.raises(BadSetting, match=message):
            train(tiny(), **{"methods": Steps([stage()]), "train_rows": rows(8), "output": tmp_path, **wrong})
    with pytest.raises(BadInput, match="training row 1 has no label"):
        train(tiny(), "finetune", [rows(1)[0], "no label"], output=tmp_path)
    with pytest.raises(BadInput, match="no training rows"):
        train(tiny(), "finetune", [], output=tmp_path)
