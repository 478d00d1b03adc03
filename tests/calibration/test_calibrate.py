"""calibrate() on models of every kind of answer: what is promised, what is refused and why, and when it is void."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from paredown import AdaptiveModel, Plan
from paredown.bundle import save_plan
from paredown.calibration import Calibrated, Certificate, Promise, calibrate
from paredown.calibration.calibrating import halves
from paredown.calibration.candidates import Ground
from paredown.calibration.losses import Risk
from paredown.errors import BadBundle, BadInput, BadSetting, CannotPromise
from paredown.evaluation import metric_for, worth
from paredown.registry import answers
from tests.evaluation.made import encoded
from tests.families import adaptive
from tests.placement import copied

MEANS = {"single_label", "choice", "span", "supported_span", "marked"}  # kinds whose usual metric is a mean over units


class Padding:
    pad_token_id = 1


def made(kind: str, units: int = 200, tokenizer: Any = None) -> tuple[AdaptiveModel, list[Any]]:
    model = adaptive("bert", kind, tokenizer=tokenizer or Padding(), num_hidden_layers=4)
    lengths = [random.Random(index).randint(6, 20) for index in range(units)]
    return model, encoded(kind, lengths)


def calibrated(model: AdaptiveModel, rows: list[Any], **promise: Any) -> Calibrated:
    return calibrate(model, rows, Promise(**{"risk": "disagreement", "max_drop": 0.6, **promise}))


@pytest.mark.parametrize("kind", answers.names())
def test_every_kind_is_judged_by_its_units(kind: str) -> None:
    model, rows = made(kind)
    units = len(model.kind.by_unit(rows))
    found = calibrated(model, rows, max_drop=None, target_speedup=1.2).certificate
    assert found.units + found.selected_on == units and sum(found.exits) == found.units
    assert found.observed <= found.bound <= 1 and found.disagreement == found.observed
    assert found.speedup > 1.1
    assert model.route(found.plan)


@pytest.mark.parametrize("kind", answers.names())
def test_a_loss_of_score_is_promised_only_of_means(kind: str) -> None:
    model, rows = made(kind)
    if kind in MEANS:
        wanted = Promise(target_speedup=1.2)
        found = calibrate(model, rows, wanted, rules=["learned", "entropy"]).certificate
        assert found.risk == "score" and found.metric == model.kind.metric
    else:
        with pytest.raises(BadInput, match=r"is not a mean over rows.*--risk error.*--risk disagreement"):
            calibrate(model, rows, Promise(max_drop=0.3))
        found = calibrate(model, rows, Promise(target_speedup=1.2, risk="error"), rules=["learned"]).certificate
        assert found.risk == "error" and found.observed <= found.bound


def test_rows_without_labels_can_only_be_compared() -> None:
    model, rows = made("single_label")
    bare = [replace(row, label=None) for row in rows]
    assert calibrated(model, bare).certificate.risk == "disagreement"
    with pytest.raises(BadInput, match="without labels"):
        calibrate(model, bare, Promise(max_drop=0.3))


def test_losses_and_costs_are_those_of_the_running_model() -> None:
    """The certificate's figures, against the model itself on the units that certified."""
    model, rows = made("single_label")
    found = calibrate(model, rows, Promise(max_drop=0.3), selection=0.35).certificate
    _, testing = halves(len(rows), 0.35, 0)
    judged = worth(model, [rows[index] for index in testing], plan=found.plan)
    assert found.observed == pytest.approx(judged.full_score - judged.score)
    assert found.speedup == pytest.approx(judged.flops_speedup)
    assert list(found.exits) == judged.exits


def test_too_few_rows_are_told_how_many_would_do() -> None:
    model, rows = made("single_label", 60)
    with pytest.raises(CannotPromise, match=r"at these rates about [\d,]+ rows would be needed|allow a larger loss"):
        calibrated(model, rows, max_drop=0.02)
    easy = [replace(row, label=None) for row in rows]
    with torch.no_grad():  # all heads answer as the last one: nothing is ever lost
        for head in model.heads.values():
            for parameter in head.parameters():
                parameter.zero_()
        for parameter in model.stock.classifier.parameters():
            parameter.zero_()
    with pytest.raises(CannotPromise, match=r"lost 0.00 there.*about 44\d rows would be needed in all"):
        calibrated(model, easy, max_drop=0.01)  # 0.99 ** 299 < 0.05, and 20 of the 60 choose
    with pytest.raises(CannotPromise, match="too few to promise anything"):
        calibrated(model, rows[:20])


def test_goals_that_cannot_be_reached_are_named() -> None:
    model, rows = made("single_label")
    with pytest.raises(CannotPromise, match=r"the fastest plan needs .* times fewer FLOPs"):
        calibrated(model, rows, max_drop=None, target_speedup=50)
    with pytest.raises(CannotPromise, match=r"the fastest plan takes .* ms"):
        calibrated(model, rows, max_drop=None, max_latency_ms=1e-6)
    wanted = Promise(max_latency_ms=1e6, risk="disagreement")
    slow = calibrate(model, rows, wanted, rules=["at_layer"]).certificate
    assert slow.milliseconds is not None and 0 < slow.milliseconds < 1e6 and slow.asked == {"max_latency_ms": 1e6}
    headless = adaptive("bert", head=None, tokenizer=Padding())
    with pytest.raises(BadInput, match="nothing to choose among"):
        calibrated(headless, rows)


@pytest.mark.parametrize(
    "wrong",
    [{}, {"max_drop": 0.1, "target_speedup": 2}, {"max_drop": 2}, {"max_drop": 0.1, "confidence": 1}]
    + [{"max_drop": 0.1, "risk": "luck"}, {"target_speedup": 3, "guarantee": "average"}],
)
def test_a_promise_is_checked(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadSetting):
        Promise(**wrong)


def test_tokens_and_depths_are_tried_too() -> None:
    model, rows = made("single_label", 80)
    model.plan = Plan(reduce="fixed_share:0.5,score=attention")
    wanted = Promise(target_speedup=1.02, risk="disagreement")
    reduced = calibrate(model, rows, wanted, rules=[])
    assert reduced.plan.exit is None and reduced.plan.reduce is not None and reduced.tried > 2
    shorter = calibrate(model, rows, wanted, rules=[], reduce=[], depths=[(0, 1, 3)])
    assert shorter.plan == Plan((0, 1, 3))


def test_all_units_may_test_where_rules_share_the_level() -> None:
    model, rows = made("single_label")
    found = calibrate(model, rows, Promise(max_drop=0.6, risk="disagreement"), selection=0.0).certificate
    assert found.selected_on == 0 and found.units == len(rows)
    numbers, labelled = made("regression", 60)
    with pytest.raises(BadSetting, match="scale"):  # which some units would choose
        calibrate(numbers, labelled, Promise(max_drop=0.6, risk="error"), selection=0.0)
    on_average = calibrated(model, rows, guarantee="average").certificate
    assert on_average.confidence is None and "on average" in str(on_average)


@pytest.mark.parametrize("kind", ["single_label", "span"])
def test_other_rows_may_choose_and_all_test(kind: str) -> None:
    model, rows = made(kind)
    units = len(model.kind.by_unit(rows))
    _, others = made(kind, 40)
    wanted = Promise(max_drop=0.6, risk="disagreement")
    found = calibrate(model, rows, wanted, choose_on=others).certificate
    assert found.units == units and found.selected_on == len(model.kind.by_unit(others))
    again = calibrate(model, others, wanted, choose_on=rows).certificate
    assert (again.units, again.selected_on) == (found.selected_on, found.units)
    assert found.speedup == pytest.approx(worth(model, rows, plan=found.plan).flops_speedup)
    few = [rows[index] for indexes in model.kind.by_unit(rows)[:10] for index in indexes]
    with pytest.raises(CannotPromise, match="10 rows that choose and"):
        calibrate(model, rows, wanted, choose_on=few)


# Certificates


@pytest.fixture
def certified(tokenizer: Any, tmp_path: Path) -> tuple[AdaptiveModel, Path]:
    model, rows = made("single_label", tokenizer=tokenizer)
    found = calibrated(model, rows)
    model.plan, model.certificate = found.plan, found.certificate
    model.save_pretrained(tmp_path / "bundle")
    return model, tmp_path / "bundle"


def test_a_bundle_keeps_its_certificate(certified: tuple[AdaptiveModel, Path]) -> None:
    model, folder = certified
    again = AdaptiveModel.from_pretrained(folder)
    assert again.void is None and again.certificate == model.certificate
    assert Certificate.from_json(json.loads(json.dumps(again.certificate.to_json()))) == model.certificate
    again.save_pretrained(folder.parent / "copy")
    assert AdaptiveModel.from_pretrained(folder.parent / "copy").certificate == model.certificate


def test_another_plan_voids_it_until_the_plan_is_back(certified: tuple[AdaptiveModel, Path]) -> None:
    model, folder = certified
    save_plan(folder, Plan(exit="entropy:0.77"))
    again = AdaptiveModel.from_pretrained(folder)
    assert again.certificate is None and "its plan is not the one that was certified" in str(again.void)
    save_plan(folder, model.plan)
    assert AdaptiveModel.from_pretrained(folder).certificate == model.certificate
    assert AdaptiveModel.from_pretrained(folder, plan="entropy:0.77").certificate is None


@pytest.mark.parametrize("part", ["stock", "heads"])
def test_other_weights_void_it(certified: tuple[AdaptiveModel, Path], part: str) -> None:
    model, folder = certified
    other = copied(model)
    with torch.no_grad():
        next(getattr(other, part).parameters()).add_(1e-3)
    other.save_pretrained(folder)
    again = AdaptiveModel.from_pretrained(folder)
    assert again.certificate is None and "weights are not those that were certified" in str(again.void)


def test_weights_in_sixteen_bits_are_other_weights(certified: tuple[AdaptiveModel, Path]) -> None:
    model, folder = certified
    model.save_pretrained(folder, dtype="float16")
    assert AdaptiveModel.from_pretrained(folder).certificate is None


def test_a_runtime_that_answers_otherwise_voids_it(certified: tuple[AdaptiveModel, Path]) -> None:
    model, _ = certified
    assert model.use("packed").certificate is not None
    assert model.use("int8").certificate is None and "int8 answers otherwise" in str(model.void)


def test_a_broken_certificate_is_a_broken_bundle(certified: tuple[AdaptiveModel, Path]) -> None:
    from paredown.bundle.format import _read, _sealed

    _, folder = certified
    facts = _read(folder)
    facts["certificate"] = {"risk": "score"}
    (folder / "paredown.json").write_text(_sealed(facts))
    with pytest.raises(BadBundle, match="no certificate"):
        AdaptiveModel.from_pretrained(folder)


# A runtime that is near, not the same


@pytest.fixture
def eight_bits(certified: tuple[AdaptiveModel, Path]) -> tuple[AdaptiveModel, Path]:
    """A bundle whose plan is certified with int8."""
    model, folder = certified
    done = calibrated(model.eval().use("int8"), made("single_label")[1])
    save_plan(folder, done.plan, done.certificate)
    return AdaptiveModel.from_pretrained(folder), folder


def test_losses_of_int8_are_measured_against_the_encoder_itself() -> None:
    """Else a promise would leave out what eight bits lose."""
    model, rows = made("single_label")
    plans = [Plan(), Plan(reduce="attention:0.5")]
    exact = Ground.record(model.eval(), rows, plans[:1], 64).full.logits[4]
    ground = Ground.record(model.use("int8"), rows, plans, 64)
    assert model.executor.name == "int8" and ground.exact is not None
    assert (ground.exact.logits[4] - exact).abs().max() <= 1e-5 < (ground.full.logits[4] - exact).abs().max()
    judged = ground.judged(Risk("disagreement", metric_for(model.kind)))
    assert all(its.full is ground.exact for its in judged.values()) and len(judged) == 2


def test_a_bundle_runs_as_it_was_certified(eight_bits: tuple[AdaptiveModel, Path]) -> None:
    model, folder = eight_bits
    assert model.executor.name == "int8" and model.executor.reason == "its plan was certified with it"
    assert "full depth in 32 bits" in str(model.certificate)
    packed = AdaptiveModel.from_pretrained(folder, runtime="packed")
    assert packed.certificate is None and "certified with the runtime int8" in str(packed.void)
    save_plan(folder, Plan())
    assert AdaptiveModel.from_pretrained(folder).executor.name == "packed", "another plan has no certificate"


def test_where_int8_cannot_follow_another_runtime_answers(eight_bits: tuple[AdaptiveModel, Path]) -> None:
    model, _ = eight_bits
    model.double()
    assert model.executor.name == "packed" and "float32" in model.executor.reason and model.certificate is None
    model.float()
    with pytest.raises(BadSetting, match="weights in float32"):
        model.use("int8").double()
