"""ELUE's score by hand, what it refuses, and the points it is made of."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from paredown.errors import BadInput, BadPlan
from paredown.evaluation import Cost, Curve, Standing, Work, compare, elue_score, metric_named
from paredown.evaluation.elue import BASELINE, TASKS, Line, dynamic_points, fitted, settings_of, static_point
from paredown.exits import EntropyNats, Patience
from paredown.registry import answers, exits
from tests.evaluation.made import sst2

COST = Cost(Work(), (Work(2, 300, 0),) * 12, Work(0, 0, 50), {layer: Work(0, 0, 7) for layer in range(11)})


def points(*pairs: tuple[float, float]) -> list[dict[str, Any]]:
    return [{"flops": flops, "score": score} for flops, score in pairs]


def curve(encoder: str = "made", counted_as: str = "paredown", **tasks: list[dict[str, Any]]) -> Curve:
    return Curve(encoder, {name: Line(its, "accuracy", "dev", 10, 128) for name, its in tasks.items()}, counted_as)


BASE = points((100, 0.5), (200, 0.7), (400, 0.8))


def test_a_curve_against_itself_is_exactly_zero() -> None:
    awkward = points((0.1, 0.3), (0.3, 0.1 + 0.2), (1e9 / 7, 1 / 3), (1e9 / 3, 0.9123456789))
    assert elue_score(awkward, awkward[::-1]) == (0.0, [])
    both = curve(MRPC=awkward, SNLI=BASE)
    score, notes = compare(both, both)
    assert score.tasks == {"MRPC": 0.0, "SNLI": 0.0} and score.average == 0.0 and not notes


def test_between_two_points_the_baseline_is_linear() -> None:
    # At 150 the baseline has 0.6, at 250 it has 0.725, at 200 its own 0.7.
    score, notes = elue_score(points((150, 0.65), (250, 0.7), (200, 0.71)), BASE)
    assert score == pytest.approx((0.05 - 0.025 + 0.01) / 3) and not notes


def test_outside_the_nearest_end_stands_and_a_note_names_it() -> None:
    score, notes = elue_score(points((50, 0.6), (800, 0.85), (100, 0.5)), BASE)
    assert score == pytest.approx((0.1 + 0.05 + 0) / 3)
    assert "2 of 3 points lie outside the baseline's" in notes[0]
    standing = Standing.of({"mine": curve(MRPC=points((50, 0.6)))}, curve(MRPC=BASE), ["before"])
    assert standing.notes[0] == "before" and standing.notes[1].startswith("mine, MRPC: 1 of 1 points")


def test_the_average_is_the_plain_mean_over_tasks() -> None:
    base = curve(MRPC=BASE, SNLI=BASE)
    mine = curve(MRPC=points((100, 0.6), (200, 0.8), (400, 0.9)), SNLI=points((100, 0.46)))
    score, _ = compare(mine, base)
    assert score.tasks == {"MRPC": pytest.approx(0.1), "SNLI": pytest.approx(-0.04)}
    assert score.average == pytest.approx(0.03)


def test_other_rows_are_a_warning() -> None:
    mine = Curve("made", {"MRPC": Line(BASE, "accuracy", "test", 10, 256)})
    assert compare(mine, curve(MRPC=BASE))[1] == [
        "MRPC: split is test here and dev in the baseline",
        "MRPC: max_length is 256 here and 128 in the baseline",
    ]


@pytest.mark.parametrize(
    "base, message",
    [
        (curve(SNLI=BASE), "no curve for MRPC; it has: SNLI"),
        (curve(counted_as="elasticbert", MRPC=BASE), "as paredown here and as elasticbert in the baseline"),
        (curve(MRPC=BASE[:1]), "2 points or more, not 1"),
        (curve(MRPC=[*BASE, *points((200, 0.9))]), "two points of the baseline have 200 FLOPs"),
        (Curve("made", {"MRPC": Line(BASE, "f1", "dev", 10)}), "by accuracy here and by f1 in the baseline"),
    ],
)
def test_what_cannot_be_compared_is_refused(base: Curve, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        compare(curve(MRPC=BASE), base)


def test_a_curve_is_json(tmp_path: Path) -> None:
    mine = curve(MRPC=BASE)
    assert Curve.load(mine.save(tmp_path / "deep" / "curve.json")) == mine
    with pytest.raises(BadInput, match="MRPC: a curve to score against needs 2 points"):
        curve(MRPC=BASE[:1]).save(tmp_path / "short.json")
    standing = Standing.of({"mine": mine}, mine)
    standing.save(tmp_path, plots=False)
    assert Standing.from_json(json.loads((tmp_path / "elue.json").read_text())) == standing


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"encoder": "x", "counted_as": "y", "tasks": {"MRPC": {"points": [{"flops": 1}]}}}']
)
def test_what_is_no_curve_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "curve.json").write_text(text)
    with pytest.raises(BadInput, match=r"curve\.json"):
        Curve.load(tmp_path / "curve.json")
    with pytest.raises(BadInput, match="no curve can be read"):
        Curve.load(tmp_path / "absent.json")
    for bad in (float("nan"), True, None, "1"):
        with pytest.raises(BadInput, match="flops and score as numbers"):
            Line([{"flops": 1.0, "score": bad}], "accuracy", "dev", 1)


def test_points_of_the_rules() -> None:
    seen = sst2()
    rules = [exits.parse(text) for text in ("entropy_nats", "patience:tolerance=0.1", "margin")]
    found, left_out = dynamic_points(seen, rules, metric_named("accuracy"), COST)
    assert list(found) == ["entropy_nats", "patience", "margin"] and not left_out
    assert [at["rule"] for at in found["patience"]] == [f"patience:{count}" for count in range(11, 0, -1)]
    for its in found.values():
        flops = [at["flops"] for at in its]
        assert flops == sorted(flops, reverse=True) and flops[0] > flops[-1], "cautious first"
        assert 4 <= len(its) <= 11 and all(0.5 < at["score"] < 1 for at in its)


def test_numbers_have_a_tolerance_and_no_entropy() -> None:
    number = answers.make("regression")
    assert fitted(Patience(3), number) == Patience(3, 0.94) and fitted(Patience(3, 0.2), number).tolerance == 0.2
    assert settings_of(Patience(3, 0.2), 2) == [Patience(2, 0.2), Patience(1, 0.2)]
    made = sst2(rows=20)
    seen = type(made)(
        number, {layer: its[:, :1] for layer, its in made.logits.items()}, {}, made.labels.unsqueeze(1), made.lengths
    )
    found, left_out = dynamic_points(seen, [EntropyNats(), Patience()], metric_named("correlation"), COST)
    assert list(found) == ["patience"] and left_out[0].startswith("entropy_nats is left out:")


def test_the_first_layers_alone_pay_for_no_exit() -> None:
    seen = sst2()
    alone = type(seen)(seen.kind, {12: seen.logits[12]}, {}, seen.labels, seen.lengths)
    at = static_point(alone, metric_named("accuracy"), COST)
    assert at["layers_kept"] == 12 and at["flops"] == COST.full(seen.lengths).double().mean().item()
    with pytest.raises(BadPlan, match="no exits"):
        dynamic_points(alone, [Patience()], metric_named("accuracy"), COST)


@pytest.mark.skipif(not BASELINE.is_file(), reason="benchmarks/elue.py has not been run")
def test_the_baseline_that_comes_along_has_all_tasks() -> None:
    base = Curve.load(BASELINE)
    assert set(base.tasks) == set(TASKS) and compare(base, base)[0].average == 0
