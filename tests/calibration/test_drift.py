"""Drift is noticed, and seldom where there is none, however often one looks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from paredown.calibration import Certificate, DriftMonitor
from paredown.calibration.drift import ConfidenceSequence, same_distribution
from paredown.errors import BadInput
from paredown.plan import Plan

CERTIFICATE = Certificate(
    risk="score",
    metric="accuracy",
    bound=0.01,
    confidence=0.95,
    method="",
    asked={"max_drop": 0.01},
    units=1000,
    selected_on=500,
    observed=0.0,
    speedup=2.0,
    exits=(500, 200, 150, 3, 147),
    disagreement=0.02,
    disagreement_bound=0.03,
    plan=Plan(exit="entropy:0.3"),
    data="",
    model="",
    runtime="packed",
    exact=True,
    date="2026-01-01",
    versions={},
)
SHARES = np.array(CERTIFICATE.exits) / 1000


def layers(count: int, shares: np.ndarray, seed: int) -> list[int]:
    return np.random.default_rng(seed).choice(np.arange(1, 6), count, p=shares).tolist()


def alarm(monitor: DriftMonitor, ran: list[int]) -> bool:
    for each in ran:
        monitor.add(each)
    return bool(monitor.verdict().reasons)


def test_rows_like_those_that_certified_seldom_alarm() -> None:
    """Of ten blocks each, tested as they come; the certificate's own exits are a sample too."""
    random, alarms = np.random.default_rng(0), 0
    for seed in range(100):
        seen = replace(CERTIFICATE, exits=tuple(random.multinomial(1000, SHARES).tolist()))
        alarms += alarm(DriftMonitor(seen, block=300), layers(3000, SHARES, seed))
    assert alarms <= 7  # more than 7 of 100 come by chance once in 150 times, at 2.5 %


@pytest.mark.parametrize("late", [0, 2000])
def test_rows_that_leave_elsewhere_are_noticed(late: int) -> None:
    harder = np.array([0.3, 0.2, 0.2, 0.0, 0.3])
    monitor = DriftMonitor(CERTIFICATE, block=500)
    assert alarm(monitor, layers(late, SHARES, 1) + layers(1000, harder, 2))
    found = monitor.verdict()
    assert "rows leave elsewhere than certified" in found.reasons[0] and found.mean_layers > found.certified_layers
    assert found.to_json()["units"] == late + 1000


def test_shadows_bound_the_disagreement() -> None:
    calm, changed = DriftMonitor(CERTIFICATE), DriftMonitor(CERTIFICATE)
    random = np.random.default_rng(0)
    for _ in range(2000):
        calm.add_shadow(float(random.random() < 0.02))
        changed.add_shadow(float(random.random() < 0.08))
    assert not calm.verdict().reasons and calm.verdict().low <= 0.02 <= calm.verdict().high
    (reason,) = changed.verdict().reasons
    assert "of the answers differ from full depth; certified were at most 3.00 %" in reason
    own = DriftMonitor(replace(CERTIFICATE, risk="disagreement", bound=0.2))
    assert own.promised == 0.2


@pytest.mark.parametrize("mean", [0.02, 0.3])
def test_a_confidence_sequence_holds_at_all_times(mean: float) -> None:
    random, broken = np.random.default_rng(1), 0
    for _ in range(60):
        sequence = ConfidenceSequence(0.05)
        for value in (random.random(400) < mean).tolist():
            sequence.add(float(value))
        low, high = sequence.interval  # bounds never widen: if they ever failed, they fail at the end
        broken += not low <= mean <= high
    assert broken <= 7  # more than 7 of 60 come by chance once in 100 times, at 5 %
    assert high - low < 0.25


def test_few_units_in_a_cell_are_joined_to_others() -> None:
    assert same_distribution(np.array([100, 0, 1, 0]), np.array([50, 1, 0, 0])) == 1.0
    assert same_distribution(np.array([100, 100]), np.array([20, 80])) < 1e-4


def test_a_log_of_another_plan_is_refused() -> None:
    with pytest.raises(BadInput, match="ran 9 layers"):
        DriftMonitor(CERTIFICATE).add(9)
