"""`paredown bench`: every way on the same batches, figures that belong together, no speed without its accuracy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from paredown.answers import Encoded
from paredown.cli import main
from paredown.plan import Plan
from paredown.runtime import bench
from paredown.runtime.bench import Bench, Course, courses
from paredown.runtime.rivals import RIVALS, Rival
from tests.families import adaptive

TRANSFORMERS = {name: RIVALS[name] for name in ("transformers sdpa", "transformers eager")}


@pytest.fixture(scope="module")
def bundle(tokenizer: Any, tmp_path_factory: Any) -> Path:
    folder = tmp_path_factory.mktemp("bench") / "model"
    model = adaptive("bert", tokenizer=tokenizer, plan=Plan(exit="entropy:0.5"), vocab_size=len(tokenizer))
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def texts(tmp_path_factory: Any) -> Path:
    path = tmp_path_factory.mktemp("texts") / "texts.jsonl"
    records = [{"text": "good plot " * (1 + row % 7), "sentiment": row % 2} for row in range(40)]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


@pytest.fixture(autouse=True)
def few_rivals(monkeypatch: Any) -> dict[str, Rival]:
    """Others take long to be made ready, where they are installed; tests/runtime/test_rivals.py has them all."""
    known = {
        **TRANSFORMERS,
        "broken": Rival("broken", _broken),
        "absent": Rival("absent", _broken, ("no_such_one",), "x"),
    }
    monkeypatch.setattr(bench, "RIVALS", known)
    monkeypatch.setattr("paredown.cli.bench.RIVALS", known)
    return known


def _broken(model: Any, batches: Any) -> Any:
    raise RuntimeError("its converter knows no such layer\nand much more")


def test_measures_every_way(bundle: Path, texts: Path, tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "bench.json"
    words = ("--batch-size", "1", "--batch-size", "8", "--rounds", "3", "--label-column", "sentiment")
    assert main(["bench", str(bundle), str(texts), *words, "-o", str(out), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found == json.loads(out.read_text()) and found["time"] == "wall" and found["metric"] == "accuracy"
    assert {"cpu", "flags", "threads", "torch", "transformers", "int8_kernel"} <= set(found)
    eight = {f"{runtime}, {plan}" for runtime in ("int8", "fp8") for plan in ("full depth", "plan")}  # not everywhere
    assert set(found["not_measured"]) - eight == {"broken", "absent"}
    assert found["not_measured"]["broken"] == "RuntimeError: its converter knows no such layer"
    for ways in found["batches"].values():
        first, *others = ways
        assert first == "transformers sdpa" and ways[first]["times_transformers"] == ways[first]["agreement"] == 1
        assert {"reference, full depth", "reference, plan", "packed, full depth", "packed, plan"} <= set(others)
        assert all(facts["texts_per_second"] > 0 and facts["p50_ms"] <= facts["p99_ms"] for facts in ways.values())
        assert all(("efficiency" in facts) == name.endswith("plan") for name, facts in ways.items())
        assert all(facts["memory_mb"] is None or facts["memory_mb"] > 0 for facts in ways.values())
        assert 0.9 <= ways["packed, plan"]["fewer_flops"] <= 4
        assert ways["packed, full depth"]["agreement"] == 1 and 0 <= ways["packed, plan"]["agreement"] <= 1
        assert ways["packed, full depth"]["score"] == ways[first]["score"]


def test_prints_a_table_and_draws(bundle: Path, texts: Path, tmp_path: Path, capsys: Any) -> None:
    pytest.importorskip("matplotlib")
    words = ("--batch-size", "4", "--rounds", "2", "--exit", "none", "--one-thread", "--plot", str(tmp_path / "a.png"))
    threads = torch.get_num_threads()
    try:
        assert main(["bench", str(bundle), str(texts), *words]) == 0
    finally:
        torch.set_num_threads(threads)
    printed = capsys.readouterr().out
    assert "batches of 4" in printed and "packed, full depth" in printed and ", plan" not in printed.split("time")[0]
    assert "absent was not measured: no_such_one not installed: pip install 'paredown[x]'" in printed
    assert "process time, plan: all layers" in printed and "accuracy" not in printed
    assert (tmp_path / "a.png").is_file()


def test_what_cannot_be_done_is_said_at_once(bundle: Path, texts: Path, capsys: Any) -> None:
    for words, message in (
        (("--batch-size", "8", "--rounds", "9"), "9 rounds of 8 rows, and one to warm up, need 80 rows; there are 40"),
        (("--label-column", "labels"), "no column 'labels' for --label-column"),
        (("--plot", "speeds.docx"), "--plot writes png, svg or pdf"),
    ):
        assert main(["bench", str(bundle), str(texts), *words]) == 1
        assert message in capsys.readouterr().err


def test_labels_of_something_else_are_left(bundle: Path, tmp_path: Path, capsys: Any, caplog: Any) -> None:
    path = tmp_path / "others.jsonl"
    path.write_text("".join(json.dumps({"text": "good plot", "label": f"topic {row}"}) + "\n" for row in range(8)))
    words = ("--batch-size", "2", "--rounds", "1")
    assert main(["bench", str(bundle), str(path), *words, "--json"]) == 0
    assert "score" not in json.loads(capsys.readouterr().out)["batches"]["2"]["packed, plan"]
    assert "column 'label' is not read, so there is no score" in caplog.text
    assert main(["bench", str(bundle), str(path), *words, "--label-column", "label"]) == 1


def test_a_rival_that_fails_on_the_way_ends_nothing(tokenizer: Any, few_rivals: dict[str, Rival]) -> None:
    def start(model: Any, batches: Any) -> Any:
        def run(inputs: Any) -> Any:
            if inputs["input_ids"].shape[1] > 6:
                raise ValueError("too long")
            return torch.zeros(len(inputs["input_ids"]), 2)

        return run

    few_rivals["short"] = Rival("short", start)
    model = adaptive("bert", tokenizer=tokenizer, vocab_size=len(tokenizer)).use("packed")
    executor, backend = model.executor, model.backend
    rows = [Encoded({"input_ids": [5] * length}) for length in (3, 4, 5, 6, 7, 8)]
    ready = Bench(model, Plan(exit="entropy:0.5"), rows[:2], runtimes=["packed"])
    assert "short" not in ready.missing
    found = ready.run(Course.of(rows[:2], rows[2:], 2, rounds=2))
    assert list(found) == [*TRANSFORMERS, "packed, full depth", "packed, plan"]
    assert ready.missing["short"] == "ValueError: too long" and "score" not in found["packed, plan"]
    assert model.executor is executor and model.backend is backend


@pytest.mark.parametrize("kind", ["multi_label", "regression", "token_label"])
def test_every_kind_of_answer_is_judged(tokenizer: Any, kind: str) -> None:
    model = adaptive("bert", kind, tokenizer=tokenizer, vocab_size=len(tokenizer)).use("packed")
    words = [("good", "plot"), ("bad",), ("a", "good", "film"), ("plot",)]
    labels = {"multi_label": [[1], [], [0, 1], [0]], "regression": [0.5, 1.0, 2.0, 3.0]}.get(
        kind, [[0] * len(text) for text in words]
    )
    inputs = [
        {"text": list(text) if kind == "token_label" else " ".join(text), "label": label}
        for text, label in zip(words, labels, strict=True)
    ]
    rows = model.encode(inputs)
    found = Bench(model, Plan(), rows, runtimes=["packed"]).run(Course.of(rows, rows, 3, rounds=2))
    ours, theirs = found["packed, full depth"], found["transformers sdpa"]
    assert ours["score"] == pytest.approx(theirs["score"], abs=1e-4)
    assert ours.get("agreement") == (None if kind == "regression" else 1)


def test_rows_that_are_timed_are_no_others() -> None:
    rows = [Encoded({"input_ids": [number]}) for number in range(500)]
    planned, calibration = courses(rows, [1, 32, 64], rounds=5)
    assert [course.size for course in planned] == [1, 32, 64]
    for course in planned:
        timed, warm = course.rows, [row for batch in course.warm for row in batch]
        assert len(course.rounds) == 5 and all(sum(map(len, batches)) >= 32 for batches in course.rounds)
        assert all(len(batch) == course.size for batch in course.batches)
        numbers = [row.ids["input_ids"][0] for row in timed]
        assert len(set(numbers)) == len(numbers)
        assert not {id(row) for row in timed} & {id(row) for row in [*warm, *calibration]}
    few, _ = courses(rows[:12], [1], rounds=3)
    assert [sum(map(len, batches)) for batches in few[0].rounds] == [3, 3, 3]
