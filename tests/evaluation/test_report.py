"""evaluate() tells everything of a model's exits, and what it saves can be read back."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from paredown import AdaptiveModel
from paredown.errors import BadInput, BadSetting, NonFiniteAnswer, ParedownError
from paredown.evaluation import Evaluation, area, evaluate, front
from paredown.evaluation.plots import score_by_layer
from paredown.registry import exits
from tests.evaluation.made import encoded
from tests.families import adaptive

LENGTHS = [3 + index % 20 for index in range(90)]
QUICK: dict[str, Any] = {"speeds": [0.1, 0.5, 0.9, 1.0], "timed_rows": 8, "resamples": 50, "timed_batches": (1, 4)}


@pytest.fixture(scope="module")
def model(tokenizer: Any) -> AdaptiveModel:
    return adaptive("bert", tokenizer=tokenizer, plan="entropy:0.9")


@pytest.fixture(scope="module")
def found(model: AdaptiveModel) -> Evaluation:
    return evaluate(model, encoded("single_label", LENGTHS), allowed_drop=0.2, **QUICK)


def test_it_holds_together(found: Evaluation) -> None:
    assert found.rows == 90 and found.metric == "accuracy" and found.encoder == "bert"
    assert set(found.curves) == set(exits.names()) - {"never"}
    assert found.full["flops_speedup"] == 1 and found.full["layers"] == 4
    assert [point["layers"] for point in found.per_layer] == [1, 2, 3, 4]
    assert found.per_layer[-1]["score"] == found.full["score"]
    assert found.per_layer[-1]["flops"] == found.full["flops"]
    assert all(point["low"] <= point["score"] <= point["high"] for point in [found.full, *found.per_layer])
    for points in found.curves.values():
        flops = [point["flops"] for point in points]
        assert flops == sorted(flops, reverse=True)  # the faster, the cheaper
    everything = [point for points in found.curves.values() for point in points]
    assert all(any(p["flops"] <= q["flops"] and p["score"] >= q["score"] for p in found.front) for q in everything)
    assert set(found.areas) == set(found.curves)


def test_chosen_points_keep_the_score(found: Evaluation) -> None:
    own, *others = found.chosen
    assert own["rule"] == "entropy:0.9" and own["of"] == ""
    for point in [own, *others]:
        assert sum(point["histogram"]) == found.rows and len(point["histogram"]) == 4
        mean = sum(layer * count for layer, count in enumerate(point["histogram"], 1)) / found.rows
        assert mean == pytest.approx(point["layers"])
    for point in others:
        assert point["score"] >= found.full["score"] - found.allowed_drop
        good = [p for p in found.curves[point["of"]] if p["score"] >= found.full["score"] - found.allowed_drop]
        assert point["flops"] == min(p["flops"] for p in good)


def test_times_stand_beside_flops(found: Evaluation) -> None:
    rules = ["full depth", *dict.fromkeys(point["rule"] for point in found.chosen)]
    assert [(t["batch_size"], t["rule"]) for t in found.timings] == [(size, rule) for size in (1, 4) for rule in rules]
    assert all(timing["milliseconds"] > 0 and timing["faster"] > 0 for timing in found.timings)


def test_what_is_saved_can_be_read_back(found: Evaluation, tmp_path: Path) -> None:
    paths = found.save(tmp_path)
    assert Evaluation.load(tmp_path) == found
    assert Evaluation.from_json(json.dumps(found.to_json())) == found
    with open(tmp_path / "curves.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == sum(map(len, found.curves.values()))
    assert all(float(row["flops"]) > 0 and exits.parse(row["rule"]) for row in rows)
    names = {path.name for path in paths}
    pictures = {f"{name}.{e}" for name in ("score_against_cost", "score_by_layer", "exits") for e in ("png", "svg")}
    assert names == pictures | {"evaluation.json", "curves.csv"}
    assert all((tmp_path / name).stat().st_size > 5000 for name in pictures)
    assert (tmp_path / "exits.png").read_bytes().startswith(b"\x89PNG")


def test_tables_are_for_people(found: Evaluation) -> None:
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(found.table(), found.layer_table())
    text = console.export_text()
    assert "entropy:0.9" in text and "MFLOPs" in text and "batch 4" in text and "full depth" in text


def test_without_matplotlib_the_rest_is_saved_and_one_line_names_the_extra(
    found: Evaluation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert [path.name for path in found.save(tmp_path)] == ["evaluation.json", "curves.csv"]
    assert len(caplog.messages) == 1 and "pip install 'paredown[plot]'" in caplog.messages[0]
    with pytest.raises(ParedownError, match=r"paredown\[plot\]"):
        score_by_layer(found)


@pytest.mark.parametrize("kind", ["multi_label", "token_label", "regression"])
def test_every_kind_of_answer(kind: str, tokenizer: Any, tmp_path: Path) -> None:
    model = adaptive("modernbert", kind, tokenizer=tokenizer)
    found = evaluate(model, encoded(kind, LENGTHS[:30]), **QUICK)
    assert ("entropy" in found.curves) == (kind != "regression") and "learned" in found.curves
    found.save(tmp_path, plots=False)
    assert Evaluation.load(tmp_path) == found


def test_texts_with_labels_and_chosen_rules(model: AdaptiveModel) -> None:
    rows = [{"text": "the movie was good", "label": 1}, {"text": "a dull plot", "label": 0}] * 4
    found = evaluate(model, rows, ["entropy", "patience:2"], "matthews", paper="fastbert", **QUICK)
    assert set(found.curves) == {"entropy", "patience"}
    assert found.metric == "matthews" and found.counted_as == "fastbert"
    assert found.full["flops"] == 2 * 128 * (4 * (4 * 32**2 + 2 * 32 * 37) + 32 * 128 + 4 * 128**2) + 2 * 128**2


def test_a_model_without_heads_is_told_apart(tokenizer: Any, tmp_path: Path) -> None:
    found = evaluate(adaptive("bert", head=None, tokenizer=tokenizer), encoded("single_label", LENGTHS[:9]), **QUICK)
    assert not found.curves and not found.chosen and len(found.per_layer) == 1
    assert {path.name for path in found.save(tmp_path)} >= {"score_by_layer.png"}


def test_mistakes_are_errors(model: AdaptiveModel, tokenizer: Any) -> None:
    with pytest.raises(BadInput, match="label"):
        evaluate(model, ["no label here"], **QUICK)
    with pytest.raises(BadSetting, match="same name"):
        evaluate(model, encoded("single_label", [4]), ["entropy:0.1", "entropy:0.2"], **QUICK)
    broken = adaptive("bert", tokenizer=tokenizer)
    with torch.no_grad():
        broken.heads["1"].out.weight.fill_(float("nan"))
    with pytest.raises(NonFiniteAnswer, match="after layer 2"):
        evaluate(broken, encoded("single_label", [4, 5]), **QUICK)


def at(flops: float, score: float) -> dict[str, float]:
    return {"flops": flops, "score": score}


def test_the_front_has_no_point_that_another_beats() -> None:
    points = [at(3, 0.7), at(1, 0.5), at(2, 0.8), at(2, 0.6), at(4, 0.8), at(5, 0.9)]
    assert front(points) == [at(1, 0.5), at(2, 0.8), at(5, 0.9)]


def test_the_area_is_the_mean_loss() -> None:
    first, full = at(1, 0.5), at(5, 0.9)
    assert area([], first, full) == pytest.approx(0.2)  # a straight line down to the first head
    assert area([at(1, 0.9)], at(1, 0.9), full) == pytest.approx(0)
    assert area([at(3, 0.9)], first, full) == pytest.approx(0.1)
    assert area([at(3, 0.9), at(4, 0.2), at(6, 1.0)], first, full) == pytest.approx(0.1)  # neither matters
    assert area([at(1, 1.0)], at(1, 1.0), full) == pytest.approx(-0.1)  # better than the full model everywhere
    assert area([], full, full) == 0
