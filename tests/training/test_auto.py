"""The ground of `auto`: a floor of steps, rates by part and batch, early stopping, held-out rows, a plan from dev."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paredown import AdaptiveModel
from paredown.errors import BadPlan, BadSetting
from paredown.evaluation import metric_named
from paredown.registry import methods
from paredown.training import train
from paredown.training.batches import Batches, held_out
from paredown.training.learner import Learner
from paredown.training.outcome import conclude
from paredown.training.processes import Processes
from tests.families import adaptive
from tests.tasks.asking import hotpot_questions, made_questions, word_pieces
from tests.tasks.choosing import made_choices
from tests.test_choice import learnable
from tests.training.tiny import Steps, rows, stage, tiny

SHORT = "auto:least_steps=8,epochs=1,exit_epochs=1,joint_epochs=1"


def trained(kind: str, output: Path, method: str = SHORT, dev: Any = None, **settings: Any) -> tuple[Any, Any]:
    model = tiny(kind)
    return model, train(model, method, rows(40, kind), dev, output=output, progress=False, **settings)


@pytest.mark.parametrize("kind", ["single_label", "multi_label", "regression", "token_label"])
def test_every_kind_is_trained_by_default_and_gets_a_plan(kind: str, tmp_path: Path) -> None:
    model, report = trained(kind, tmp_path, dev=rows(20, kind))
    assert [entry.name for entry in report.stages] == ["finetune", "distill", "joint"]
    assert model.head.name == ("pooler" if kind == "token_label" else "attention")
    assert report.worth["rows"] == 20 and report.worth["full_layers"] == 3
    assert report.worth["score"] >= report.worth["full_score"] - 0.005
    again = AdaptiveModel.from_pretrained(tmp_path / "model")
    assert again.plan == model.plan and again.scores["worth"] == report.worth


@pytest.mark.parametrize("kind", ["span", "supported_span", "choice", "marked"])
def test_questions_are_trained_by_default_too(kind: str, tmp_path: Path, tokenizer: Any) -> None:
    asked = {
        "span": lambda seed: made_questions(12, 20, seed),
        "supported_span": lambda seed: hotpot_questions(8, seed),
        "choice": lambda seed: learnable(12, seed),
        "marked": lambda seed: made_choices(8, seed=seed),
    }[kind]
    pieces, own = (tokenizer, {}) if kind == "choice" else (word_pieces(), {"vocab_size": 200})
    model = adaptive("bert", kind, head=None, tokenizer=pieces, **own)
    method = "auto:least_steps=2,epochs=0.5,exit_epochs=0.5,joint_epochs=0.5,batch_size=8"
    report = train(model, method, asked(1), asked(2), output=tmp_path, max_length=48, progress=False)
    assert model.head.name == ("attention" if kind == "choice" else "pooler")
    assert report.worth["full_layers"] == 4 and sum(report.worth["exits"]) >= report.worth["rows"] == len(asked(2))


def test_stages_are_sized_for_the_encoder() -> None:
    model = tiny()
    method = methods.parse("auto:batch_size=16")
    method.grow(model)
    finetune, distill, joint = method.stages(model)
    wide = (384 / 32) ** 0.5
    assert (finetune.lr, distill.lr, joint.lr) == pytest.approx((5e-5 * wide, 5e-4, 3e-5 * wide))
    assert {one.least_steps for one in (finetune, distill, joint)} == {500}
    assert finetune.rate is not None and finetune.rate("heads.2.out.bias") == 10
    assert all(finetune.rate(name) == 1 for name in model.body)


def test_the_rate_follows_the_root_of_the_batch(tmp_path: Path) -> None:
    model, settled = tiny(), stage(batch_size=8, lr=1e-3, warmup=0.0)
    processes = Processes(tmp_path)

    def peak(size: int, **changes: Any) -> float:
        return Learner(model, replace(settled, **changes), [], Batches([5] * 64, size, (0,)), processes).lr(0)

    assert peak(32) == pytest.approx(1e-3)
    assert peak(32, scales_lr=True) == pytest.approx(2e-3)


def test_a_stage_ends_early_when_nothing_improves_but_not_in_its_first_half(tmp_path: Path) -> None:
    def run(patience: int | None) -> int:
        chosen = stage(epochs=10, patience=patience)
        scores = iter([0.5, *[0.4] * 30])
        settings: Any = {"metric": lambda *_: next(scores), "output": tmp_path / str(patience), "progress": False}
        return len(train(tiny(), Steps([chosen]), rows(16), rows(8), **settings).stages[0].losses)

    per_epoch = run(None) // 10
    assert run(2) == 5 * per_epoch  # the best was the first; half of ten epochs had to pass
    assert run(7) == 8 * per_epoch


def test_rows_are_held_out_where_nobody_gives_dev_rows(tmp_path: Path, caplog: Any) -> None:
    caplog.set_level(logging.WARNING, "paredown.training")
    _, report = trained("single_label", tmp_path)
    assert "20 of the 40 training rows are held out" in caplog.text  # never more than half
    assert report.worth["rows"] == 20
    for number, size in ((200, 50), (3000, 300), (50_000, 1000)):
        learnt, held = held_out(list(range(number)))
        assert len(held) == size and sorted(learnt + held) == list(range(number))


def test_a_papers_method_holds_nothing_out_and_keeps_its_rule(tmp_path: Path) -> None:
    model, report = trained("single_label", tmp_path, "fastbert:epochs=0.5,exit_epochs=0.5")
    assert report.worth is None and str(model.plan.exit) == "entropy:0.5"


def test_a_rule_the_user_chose_stays(tmp_path: Path) -> None:
    model = tiny()
    model.grow_heads("attention:size=10", range(3))
    model.plan = model.plan.but(exit="confidence:0.6")
    train(model, SHORT, rows(24), rows(12), output=tmp_path, progress=False)
    assert str(model.plan.exit) == "confidence:0.6"


def test_more_loss_allowed_never_means_more_work() -> None:
    model = tiny()
    model.grow_heads("attention", range(3))
    dev = model.encode(rows(30), None)
    flops = [conclude(model, dev, metric_named("accuracy"), drop, 16).worth.flops for drop in (0.0, 0.1, 0.3, 0.9)]
    assert flops == sorted(flops, reverse=True)


def test_speed_is_a_share_of_what_is_saved_on_dev_rows(tmp_path: Path) -> None:
    model, _ = trained("single_label", tmp_path, dev=rows(20))
    speeds = model.scores["speeds"]
    assert [one["saved"] for one in speeds] == sorted(one["saved"] for one in speeds)
    assert model.at_speed(0).exit is None and str(model.at_speed(1).exit) == speeds[-1]["rule"]
    layers = [
        sum(one.layers for one in model.predict(["a good film", "the dull plot"], speed=at)) for at in (0, 0.5, 1)
    ]
    assert layers[0] == 6 and layers == sorted(layers, reverse=True) and layers[-1] == 2
    with pytest.raises(BadSetting, match="between 0"):
        model.at_speed(1.5)
    with pytest.raises(BadSetting, match="give one"):
        model.predict(["a film"], plan=model.plan, speed=0.5)
    with pytest.raises(BadPlan, match="dev rows"):
        tiny().at_speed(0.5)


def test_answers_that_are_all_alike_are_named(tmp_path: Path, caplog: Any) -> None:
    caplog.set_level(logging.WARNING, "paredown.training")
    still = stage(lr=1e-12)
    report = train(tiny(), Steps([still]), rows(16), rows(16), output=tmp_path, progress=False)
    labels = np.array([row["label"] for row in rows(16)])
    assert 0 < labels.mean() < 1
    assert len(report.warnings) == 1 and "stage learn: " in caplog.text
    assert "same answer" in report.warnings[0] or "commonest" in report.warnings[0]


def test_max_drop_is_a_share() -> None:
    with pytest.raises(BadSetting, match="max_drop"):
        methods.parse("auto:max_drop=5")
