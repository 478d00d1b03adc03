"""Claims: checks read what experiments measure, and verdicts follow from them."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import claims, result_files
from benchmarks.claims import CLAIMS, Claim, Loses, Plan, Reaches, Retains
from benchmarks.experiments import EXPERIMENTS


def run(recipe: str, seed: int, full: float, at_2x: float) -> dict[str, Any]:
    def point(score: float, faster: float) -> dict[str, Any]:
        return {"test": {"score": score, "flops_speedup": faster, "paper_speedup": faster}}

    plans = {"none": {"full": point(full, 1.0), "targets": {"entropy": {"2x": point(at_2x, 2.1), "9x": None}}}}
    return {"recipe": recipe, "seed": seed, "plans": plans}


RESULTS = {
    "one": [run("plain", 1, 0.90, 0.89), run("plain", 2, 0.92, 0.915), run("small", 1, 0.89, 0.8)],
    "two": [run("plain", 1, 0.50, 0.45), run("plain", 2, 0.50, 0.49), run("small", 1, 0.40, 0.3)],
}


@pytest.fixture(autouse=True)
def results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(result_files, "committed", lambda name: {"runs": RESULTS[name]} if name in RESULTS else None)


def test_losses_are_of_the_same_seed() -> None:
    one, two = Loses(("one", "two", "three"), Plan("plain", "entropy 2x"), Plan("plain"), 1.0).findings()
    assert one.values == pytest.approx((1.0, 0.5)) and one.holds and one.faster == pytest.approx(2.1)
    assert two.values == pytest.approx((5.0, 1.0)) and not two.holds
    assert one.interval[0] < 0.75 < one.interval[1]
    (every,) = Loses(("one",), Plan("plain", "entropy 2x"), Plan("plain"), 0.8, every_seed=True).findings()
    assert not every.holds


def test_one_task_does_not_make_the_mean() -> None:
    whole, without_one, without_two = Retains(("one", "two"), Plan("small"), Plan("plain"), 90.0).findings()
    assert whole.values == pytest.approx((100 * 1.29 / 1.40,)) and whole.holds
    assert without_one.values == pytest.approx((80.0,)) and not without_one.holds
    assert without_two.holds and without_two.experiment == "without two"


def test_verdicts() -> None:
    good, bad, missing = (
        Reaches(name, Plan("plain"), least) for name, least in (("one", 90.5), ("two", 60), ("three", 1))
    )
    verdicts = [Claim("", "", checks).verdict for checks in ((good,), (good, bad), (bad,), (missing,), (good, missing))]
    assert verdicts == ["holds", "holds in part", "does not hold here", "not run yet", "holds where it was run"]
    assert Claim("", "", (good, missing)).waiting == ["three"]


def test_claims_name_what_experiments_measure() -> None:
    """Experiments, recipes, rules and targets of the table."""
    for check in (check for claim in CLAIMS for check in claim.checks):
        for name in check.experiments:
            experiment = EXPERIMENTS[name]
            for plan in (check.plan, getattr(check, "against", check.plan)):
                recipe = experiment.recipe(plan.recipe)
                able = {claims.FULL, *(f"{rule} {target:g}x" for rule in recipe.rules for target in experiment.targets)}
                able |= {f"{reducer}, {one}" for reducer in recipe.reducers for one in able}
                assert plan.plan in able, f"{name}: {plan}"
