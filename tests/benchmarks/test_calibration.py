"""A kept ground says what the bundle said: the same losses and costs of every plan."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.calibration import World, by_risk
from benchmarks.calibration_ground import load, save
from paredown.calibration import Risk
from paredown.calibration.candidates import Ground, outlook, recorded_plans
from paredown.evaluation import metric_named
from paredown.plan import Plan
from tests.calibration.test_calibrate import made

RISK = Risk("score", metric_named("accuracy"))


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Ground, Path]:
    model, rows = made("single_label", 80)
    reducer = "fixed_share:0.5,score=attention"
    ground = Ground.record(model, rows, recorded_plans(model, (), [reducer]), 16)
    folder = tmp_path_factory.mktemp("ground")
    save(ground, "accuracy", folder)
    return ground, folder


def test_a_ground_is_read_without_the_bundle(kept: tuple[Ground, Path]) -> None:
    ground, folder = kept
    again, metric = load(folder)
    assert metric == "accuracy" and list(again.records) == list(ground.records)
    plans = [plan.but(exit="entropy:0.9") for plan in ground.records]
    units = np.arange(ground.units)
    ours, theirs = (outlook(its.judged(RISK), plans, units) for its in (ground, again))
    assert (ours.losses == theirs.losses).all() and (ours.flops == theirs.flops).all()


def test_more_units_come_nearer_to_the_oracle(kept: tuple[Ground, Path]) -> None:
    judged = by_risk(kept[1])["disagreement"]
    assert judged.record.plan == Plan()
    found = World(judged, 0.6, 40, 2).by_units(oracle=1.0)
    assert found["2000"]["exact"] <= found["16000"]["exact"] + 1e-9
