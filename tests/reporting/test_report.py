"""report() keeps enough in the page to say of every setting what a replay says."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paredown import AdaptiveModel, Plan
from paredown.answers import Choices, Row
from paredown.cli import main
from paredown.errors import BadInput
from paredown.evaluation.record import record
from paredown.evaluation.replay import replay
from paredown.registry import answers, exits
from paredown.reporting import compact, report
from paredown.reporting.curves import RuleCurve
from tests.evaluation.made import encoded
from tests.families import adaptive

LENGTHS = [4 + index % 17 for index in range(60)]
MEANS = {"single_label", "choice", "span", "supported_span", "marked"}  # kinds whose usual metric is a mean over units
QUICK: dict[str, Any] = {"timed": False, "examples": 3}


def asked(kind: str) -> list[Any]:
    """Rows that know what they were made from, where answers are decoded with its help."""
    rows = encoded(kind, LENGTHS)
    if kind == "choice":
        names = [tuple(f"option {at}" for at in range(len(row.options))) for row in rows]
        return [replace(row, asked=Choices("q", "", "which?", its, 0)) for row, its in zip(rows, names, strict=True)]
    if kind == "token_label":
        words = [tuple(f"word{at}" for at in range(len(row.first or ()))) for row in rows]
        return [
            replace(row, asked=Row(its), words=tuple(range(len(its)))) for row, its in zip(rows, words, strict=True)
        ]
    return rows


def in_page(html: str) -> dict[str, Any]:
    """The data of a page, as its script reads it."""
    (text,) = re.findall(r'<script id="record" type="application/json">(.*?)</script>', html, re.DOTALL)
    found: dict[str, Any] = json.loads(text)
    return found


def unpacked(rule: dict[str, Any], scale: int) -> tuple[np.ndarray, np.ndarray]:
    """[settings, units] layers and scores of what was packed."""
    counts, start, layers, scores = (
        np.frombuffer(base64.b64decode(rule["states"][name]), np.uint8)
        for name in ("counts", "from", "layers", "scores")
    )
    ends = np.cumsum(counts)
    found = np.empty((2, len(rule["points"]), len(counts)))
    for unit, end in enumerate(ends):
        for at in range(end - counts[unit], end):
            found[:, start[at] :, unit] = [[layers[at] / scale], [scores[at] / 255]]
    return found[0], found[1]


@pytest.mark.parametrize("kind", answers.names())
def test_every_kind_of_answer(kind: str, tokenizer: Any) -> None:
    model = adaptive("bert", kind, tokenizer=tokenizer, plan="patience:2" if kind == "regression" else "entropy:0.9")
    if kind == "regression":
        model.plan = Plan(exit="patience:2,tolerance=0.1")
    data = in_page(report(model, asked(kind), **QUICK).html())
    assert data["kept"] == data["units"] and data["is_mean"] == (kind in MEANS)
    assert data["rules"][0]["points"][data["plan"]["setting"]]["rule"] == str(model.plan.exit)
    for rule in data["rules"]:
        layers, scores = unpacked(rule, data["layer_scale"])
        assert [point["layers"] for point in rule["points"]] == sorted(
            (p["layers"] for p in rule["points"]), reverse=True
        )
        assert all(
            point["low"] <= point["score"] + 1e-6 and point["score"] <= point["high"] + 1e-6 for point in rule["points"]
        )
        if data["is_mean"]:
            assert scores.mean(1) == pytest.approx([point["score"] for point in rule["points"]], abs=0.003)
        if not model.kind.windowed:
            assert layers.mean(1) == pytest.approx([point["layers"] for point in rule["points"]], abs=1e-5)
    assert len(data["per_layer"]) == 4 and data["rows"] and all(row["answers"] for row in data["rows"])


def test_exits_are_those_of_a_replay(tokenizer: Any) -> None:
    model = adaptive("bert", tokenizer=tokenizer, plan="entropy:0.9")
    rows = encoded("single_label", LENGTHS)
    data, seen = report(model, rows, **QUICK).data, record(model, rows)
    assert {rule["name"] for rule in data["rules"]} == set(exits.names()) - {"never"}
    for rule in data["rules"]:
        layers, _ = unpacked(rule, data["layer_scale"])
        for point, found in zip(rule["points"], layers, strict=True):
            assert found.tolist() == replay(seen, exits.of(point["rule"])).layers.tolist()


def test_a_bound_per_layer_is_a_line_of_its_own(tokenizer: Any) -> None:
    model = adaptive("bert", tokenizer=tokenizer, plan="entropy:(0.5,0.95,0.99)")
    data = report(model, encoded("single_label", LENGTHS), **QUICK).data
    first, *others = data["rules"]
    assert first["name"] == "entropy, a bound per layer" and "entropy" in [rule["name"] for rule in others]
    assert first["points"][data["plan"]["setting"]]["rule"] == str(model.plan.exit)
    assert (first["points"][0]["layers"], first["points"][-1]["layers"]) == (4, 1) and len(first["points"]) > 10


def test_without_a_plan_the_slider_begins_where_little_is_lost(tokenizer: Any) -> None:
    model = adaptive("bert", tokenizer=tokenizer)
    data = report(model, encoded("single_label", LENGTHS), **QUICK).data
    place, all_points = data["plan"], [point for rule in data["rules"] for point in rule["points"]]
    chosen = data["rules"][place["rule"]]["points"][place["setting"]]
    good = [point for point in all_points if point["score"] >= data["full"]["score"] - 0.01]
    assert not place["exit"] and chosen in good and chosen["flops"] == min(point["flops"] for point in good)


def test_no_head_before_the_last_layer_means_no_rules(tokenizer: Any) -> None:
    model = adaptive("bert", tokenizer=tokenizer)
    model.drop_heads()
    data = report(model, encoded("single_label", LENGTHS), **QUICK).data
    assert data["rules"] == [] and data["kept"] == 60 and len(data["per_layer"]) == 1


def test_many_rows_are_drawn_from(tokenizer: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(compact, "MOST_UNITS", 25)
    model = adaptive("bert", tokenizer=tokenizer, plan="entropy:0.9")
    data = report(model, encoded("single_label", LENGTHS), **QUICK).data
    assert (data["kept"], data["units"]) == (25, 60)
    assert all(len(base64.b64decode(group["of"])) == 25 for group in data["groups"])
    assert all(0 <= row["unit"] < 25 for row in data["rows"])


def test_there_is_room_for_many_units_of_deep_models() -> None:
    chance = np.random.default_rng(0)
    layers = np.sort(chance.integers(1, 25, (101, 20_000)), axis=0)[::-1].astype(float)
    curves = [RuleCurve(str(rule), [], [], layers, chance.random((101, 20_000)).round(1)) for rule in range(3)]
    scale = compact.layer_scale(24)
    units = compact.kept_units(curves * 4, 20_000, scale)
    assert 200 < len(units) < 5000
    assert 4 * sum(len(text) for curve in curves for text in compact.packed(curve, units, scale).values()) < 1_700_000


def test_dropped_tokens_are_counted_as_the_record_does(tokenizer: Any) -> None:
    model = adaptive(
        "bert", tokenizer=tokenizer, plan=Plan(exit="entropy:0.9", reduce="fixed_share:0.4,score=attention")
    )
    rows = encoded("single_label", LENGTHS)
    data, seen = report(model, rows, **QUICK).data, record(model, rows, plan=model.plan)
    assert len(data["tokens"]) == 3
    for one in data["tokens"]:
        left = [sum(layers > layer for layers in one["layers"]) for layer in range(4)]
        assert left == seen.tokens[one["unit"]].tolist() and left[-1] < left[0] == len(one["tokens"])
    assert data["full"]["flops"] > data["rules"][0]["points"][0]["flops"]  # full depth keeps every token


def test_texts_cannot_become_markup(tokenizer: Any) -> None:
    model = adaptive("bert", tokenizer=tokenizer, plan="entropy:0.9", vocab_size=len(tokenizer))
    bad = "</script><img src=x onerror=alert(1)>{{ script }}\u2028"
    texts = [Row(f"{bad} good film {index}", label=index % 3) for index in range(12)]
    html = report(model, texts, name=bad + "\ud800", **QUICK).html()
    assert "<img" not in html and html.count("</script>") == 2
    shown = in_page(html)["rows"][0]["text"]
    assert shown.startswith("</script><img src=x onerror=alert(1)>{{ script }}\u2028")


def test_rows_need_labels(tokenizer: Any) -> None:
    model = adaptive("bert", tokenizer=tokenizer, plan="entropy:0.9")
    with pytest.raises(BadInput, match="needs a label"):
        report(model, [replace(row, label=None) for row in encoded("single_label", LENGTHS)], **QUICK)


@pytest.mark.parametrize("rule", ["vote:2", "patience:3", None])
def test_times_are_measured_under_any_plan(tokenizer: Any, rule: str | None) -> None:
    model = adaptive("bert", tokenizer=tokenizer, plan=rule)
    times = report(model, encoded("single_label", LENGTHS), examples=1).data["times"]
    assert times["layers"] == [1, 2, 3, 4] and min(*times["milliseconds"], times["stock"]) > 0


@pytest.fixture
def bundle(tokenizer: Any, tmp_path: Path) -> Path:
    model: AdaptiveModel = adaptive("bert", tokenizer=tokenizer, plan="entropy:0.9", vocab_size=len(tokenizer))
    model.save_pretrained(tmp_path / "films" / "model")
    return tmp_path / "films" / "model"


def test_the_command(bundle: Path, tmp_path: Path, capsys: Any) -> None:
    rows, page, folder = tmp_path / "rows.csv", tmp_path / "out" / "report.html", tmp_path / "record"
    label = AdaptiveModel.from_pretrained(bundle).labels
    rows.write_text("text,label\n" + "".join(f"{'a good film ' * (1 + i % 5)},{label[i % 3]}\n" for i in range(30)))
    peers = {"packed, plan": {"texts_per_second": 10.0, "times_transformers": 2.0}}
    measured = tmp_path / "bench.json"
    measured.write_text(json.dumps({"batches": {"1": peers}, "cpu": "x", "gpu": None, "threads": 1, "time": "wall"}))
    words = ["report", str(bundle), str(rows), "-o", str(page), "--record", str(folder), "--bench", str(measured)]
    assert main([*words, "--examples", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"report": str(page), "bytes": page.stat().st_size, "rows": 30}
    data = in_page(page.read_text(encoding="utf-8"))
    assert data["name"] == "films/model" and data["bench"]["batches"]["1"] == peers and folder.is_dir()
    assert data["times"]["stock"] > 0 and all(p["milliseconds"] > 0 for rule in data["rules"] for p in rule["points"])
    assert main([*words, "--exit", "margin:0.2"]) == 0 and "written" in capsys.readouterr().out
    assert in_page(page.read_text(encoding="utf-8"))["rules"][0]["name"] == "margin"
    measured.write_text('{"batches": []}')
    assert main(words) == 1 and "is not what `paredown bench --output` writes" in capsys.readouterr().err
