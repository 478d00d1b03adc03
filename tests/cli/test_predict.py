"""`paredown predict`: every row once and in order, whatever happens on the way; memory flat; errors of one line."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import random
import signal
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from paredown import AdaptiveModel
from paredown.cli import _predicting, main
from paredown.cli._app import people
from paredown.cli._outgoing import ToFile, progress_of
from paredown.errors import OutOfMemory
from paredown.runtime.executor import Executor
from tests.cli.running import records, start
from tests.conftest import WORDS
from tests.families import adaptive
from tests.grids import combinations

FORMATS = ["jsonl", "csv", "parquet"]
FAST = ("--batch-size", "16")  # chunks of 64 rows
ROWS = 300


def texts(number: int) -> list[str]:
    drawn = random.Random(0)
    return [" ".join(drawn.choices(WORDS, k=drawn.randint(1, 9))) for _ in range(number)]


def write_jsonl(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture(scope="session")
def small(tokenizer: Any) -> AdaptiveModel:
    return adaptive("bert", tokenizer=tokenizer, plan="entropy:0.95", hidden_size=16, num_hidden_layers=2)


@pytest.fixture(scope="session")
def bundle(small: AdaptiveModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "small"
    small.scores = {"speeds": [{"rule": "entropy:0.5", "saved": 0.2}, {"rule": "entropy:1.1", "saved": 0.5}]}
    small.save_pretrained(folder)
    return folder


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_predicting, "CHUNK", 4)


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    return write_jsonl(tmp_path / "in.jsonl", [{"id": index, "text": text} for index, text in enumerate(texts(ROWS))])


def run(*words: Any) -> int:
    return main(["predict", *map(str, words)])


def refused(capsys: Any, *words: Any) -> str:
    """The one line that a command ends with."""
    assert run(*words) == 1
    printed = capsys.readouterr().err.strip()
    assert printed.startswith("error") and len(printed.splitlines()) == 1, printed
    return printed


class Killed(BaseException):
    pass


def kill_at(chunk: int, monkeypatch: pytest.MonkeyPatch, half_written: bool = True) -> None:
    """Let the process die while it writes a chunk, some of which has reached the disk."""
    seen = []
    real = ToFile._append

    def die(self: ToFile, data: bytes, done: Any) -> None:
        seen.append(data)
        if done.rows and len(seen) > chunk:
            self._file.write(data[: len(data) // 2] if half_written else data)  # type: ignore[union-attr]
            self._file.flush()  # type: ignore[union-attr]
            raise Killed
        real(self, data, done)

    monkeypatch.setattr(ToFile, "_append", die)


# What comes out


def test_jsonl_says_what_the_model_says(bundle: Path, small: AdaptiveModel, rows: Path, tmp_path: Path) -> None:
    assert run(bundle, rows, tmp_path / "out.jsonl") == 0
    found = records(tmp_path / "out.jsonl")
    expected = small.predict(texts(ROWS))
    assert [one["row"] for one in found] == list(range(ROWS))
    assert {one["layers"] for one in found} == {1, 2}
    for one, predicted in zip(found, expected, strict=True):
        assert (one["label"], one["layers"], one["tokens"]) == (predicted.label, predicted.layers, predicted.tokens)
        assert one["scores"] == pytest.approx(predicted.scores, abs=1e-6) and one["score"] == pytest.approx(
            predicted.score
        )
        assert list(one) == ["row", "label", "score", "scores", "layers", "tokens"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.jsonl", "out.jsonl"]


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_flat_files_hold_the_same(bundle: Path, rows: Path, tmp_path: Path, form: str) -> None:
    for name in ("jsonl", form):
        assert run(bundle, rows, tmp_path / f"out.{name}", *FAST) == 0
    plain, flat = records(tmp_path / "out.jsonl"), records(tmp_path / f"out.{form}")
    for one, other in zip(plain, flat, strict=True):
        scores = {f"score_{label}": score for label, score in one.pop("scores").items()}
        wanted = one | scores | {"error": None}
        assert (
            other == wanted
            if form == "parquet"
            else other == {name: "" if value is None else str(value) for name, value in wanted.items()}
        )
    assert not list(tmp_path.glob("*part*")) + list(tmp_path.glob("*progress*"))


@pytest.mark.parametrize("kind, form", combinations(("multi_label", "regression", "token_label"), FORMATS))
def test_every_kind_of_answer(tokenizer: Any, rows: Path, tmp_path: Path, kind: str, form: str) -> None:
    model = adaptive("bert", kind, tokenizer=tokenizer, hidden_size=16, num_hidden_layers=2)
    model.save_pretrained(tmp_path / "model")
    out = tmp_path / f"out.{form}"
    assert run(tmp_path / "model", rows, out) == 0
    first, predicted = records(out)[0], model.predict(texts(1))[0]
    label = json.loads(first["label"]) if form == "csv" else first["label"]
    assert label == (pytest.approx(predicted.label, abs=1e-6) if kind == "regression" else predicted.label)
    if kind == "token_label":
        scores = first["scores"] if form == "jsonl" else json.loads(first["scores"])
        assert len(scores) == len(label) == len(texts(1)[0].split()) and set(scores[0]) == set(model.labels)


def test_words_as_lists(tokenizer: Any, tmp_path: Path) -> None:
    model = adaptive("bert", "token_label", tokenizer=tokenizer, num_hidden_layers=2)
    model.save_pretrained(tmp_path / "model")
    path = write_jsonl(tmp_path / "in.jsonl", [{"tokens": ["good", "plot"]}, {"tokens": []}, {"tokens": ["bad"]}])
    assert run(tmp_path / "model", path, tmp_path / "out.jsonl", "--skip-bad-rows") == 0
    assert [one["label"] and len(one["label"]) for one in records(tmp_path / "out.jsonl")] == [2, None, 1]


def test_every_form_of_input(bundle: Path, rows: Path, tmp_path: Path) -> None:
    sentences = texts(ROWS)
    table = io.StringIO()
    csv.writer(table).writerows([["label", "phrase"], *[["x", text] for text in sentences]])
    (tmp_path / "in.csv").write_text(table.getvalue())
    (tmp_path / "bare.tsv").write_text("".join(f"{index}\t{text}\n" for index, text in enumerate(sentences)))
    (tmp_path / "in.jsonl.gz").write_bytes(gzip.compress(rows.read_bytes()))
    pyarrow.parquet.write_table(pyarrow.table({"sentence": sentences}), tmp_path / "in.parquet")
    given = {"in.jsonl": [], "in.csv": [], "in.jsonl.gz": [], "in.parquet": []}
    found = []
    for name, more in [*given.items(), ("bare.tsv", ["--no-header", "--text-column", "1"])]:
        assert run(bundle, tmp_path / name, tmp_path / "out.jsonl", *FAST, *more, "--restart") == 0
        found.append((tmp_path / "out.jsonl").read_bytes())
    assert len(set(found)) == 1


def test_pairs(bundle: Path, small: AdaptiveModel, tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "in.jsonl", [{"a": "good plot", "b": "bad cast"}, {"a": "dull", "b": "fine movie"}])
    assert run(bundle, path, tmp_path / "out.jsonl", "--text-column", "a", "--pair-column", "b") == 0
    expected = small.predict([("good plot", "bad cast"), ("dull", "fine movie")])
    assert [one["tokens"] for one in records(tmp_path / "out.jsonl")] == [one.tokens for one in expected]


# Stopped and gone on


@pytest.mark.parametrize("form, half_written", combinations(FORMATS, (True, False)))
def test_killed_while_writing(
    bundle: Path, rows: Path, tmp_path: Path, monkeypatch: Any, form: str, half_written: bool
) -> None:
    whole, out = tmp_path / f"whole.{form}", tmp_path / f"out.{form}"
    assert run(bundle, rows, whole, *FAST) == 0
    for chunk in (0, 2, 1, 1, 0):  # dies again and again, each time a little further
        with monkeypatch.context() as patch, pytest.raises(Killed):
            kill_at(chunk, patch, half_written)
            run(bundle, rows, out, *FAST)
        assert progress_of(out).exists()
    assert run(bundle, rows, out, *FAST) == 0
    assert out.read_bytes() == whole.read_bytes() and not progress_of(out).exists()


def test_killed_at_the_very_end(bundle: Path, rows: Path, tmp_path: Path, monkeypatch: Any) -> None:
    whole, out = tmp_path / "whole.parquet", tmp_path / "out.parquet"
    assert run(bundle, rows, whole, *FAST) == 0

    def die(*unused: Any) -> None:
        raise Killed

    for target in ("paredown.cli._outgoing._to_parquet", "pathlib.Path.unlink"):  # before and after it is in its place
        with monkeypatch.context() as patch, pytest.raises(Killed):
            patch.setattr(target, die)
            run(bundle, rows, out, *FAST)
    assert run(bundle, rows, out, *FAST) == 0
    assert out.read_bytes() == whole.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.jsonl", "out.parquet", "whole.parquet"]


def test_killed_for_real(bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # chunks as a process of its own has them
    path = write_jsonl(tmp_path / "in.jsonl", [{"text": text} for text in texts(2_500)])
    whole, out = tmp_path / "whole.csv", tmp_path / "out.csv"
    assert run(bundle, path, whole, "--batch-size", "8") == 0
    process = start("predict", bundle, path, out, "--batch-size", "8")
    deadline = time.monotonic() + 120
    while not (progress_of(out).exists() and json.loads(progress_of(out).read_text())["done"]["rows"] >= 512):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.02)
    process.kill()
    process.communicate()
    done = json.loads(progress_of(out).read_text())["done"]["rows"]
    assert process.returncode == -signal.SIGKILL and 0 < done < 2_500
    assert run(bundle, path, out, "--batch-size", "8") == 0
    assert out.read_bytes() == whole.read_bytes()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_after_the_chunk(
    bundle: Path, rows: Path, tmp_path: Path, monkeypatch: Any, capsys: Any, number: int
) -> None:
    whole, out = tmp_path / "whole.parquet", tmp_path / "out.parquet"
    assert run(bundle, rows, whole, *FAST) == 0
    real = Executor.predict

    def stop(*args: Any, **kwargs: Any) -> Any:
        signal.raise_signal(number)
        return real(*args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(Executor, "predict", stop)
        assert run(bundle, rows, out, *FAST) == 128 + number
    assert "stopped after 64 rows; run it again, without --restart, to go on" in capsys.readouterr().err
    assert run(bundle, rows, out, *FAST) == 0
    assert "300 rows" in (printed := capsys.readouterr().err) and "went on after 64" in printed
    assert out.read_bytes() == whole.read_bytes()


def test_going_on_with_something_else_is_refused(
    bundle: Path, model: AdaptiveModel, rows: Path, tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    out = tmp_path / "out.jsonl"
    with monkeypatch.context() as patch, pytest.raises(Killed):
        kill_at(2, patch)
        run(bundle, rows, out, *FAST)
    begun = out.read_bytes()
    model.save_pretrained(tmp_path / "other")
    longer = write_jsonl(tmp_path / "longer.jsonl", [{"text": text} for text in texts(ROWS + 1)])
    assert "plan was" in refused(capsys, bundle, rows, out, "--exit", "entropy:0.1")
    assert "bundle was" in refused(capsys, tmp_path / "other", rows, out)
    assert "max length was null and is now 16" in refused(capsys, bundle, rows, out, "--max-length", 16)
    assert "dtype was float32 and is now bfloat16" in refused(capsys, bundle, rows, out, "--dtype", "bfloat16")
    printed = refused(capsys, bundle, longer, out)
    assert "input was in.jsonl and is now longer.jsonl" in printed and "size of the input" in printed
    changed = rows.read_text().replace(texts(1)[0], texts(1)[0][::-1], 1)
    original = rows.read_text()
    rows.write_text(changed)
    assert "are not those that" in refused(capsys, bundle, rows, out, *FAST)
    rows.write_text(original)
    assert out.read_bytes() == begun
    progress_of(out).write_text("{")
    assert "damaged" in refused(capsys, bundle, rows, out)
    assert run(bundle, rows, out, "--restart") == 0 and len(records(out)) == ROWS


def test_a_finished_output_is_not_overwritten(bundle: Path, rows: Path, tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "out.jsonl"
    assert run(bundle, rows, out) == 0
    before = out.read_bytes()
    capsys.readouterr()
    assert "finished; --restart" in refused(capsys, bundle, rows, out) and out.read_bytes() == before
    assert run(bundle, rows, out, "--restart", "--exit", "none") == 0
    assert {one["layers"] for one in records(out)} == {2}
    capsys.readouterr()
    assert "is the input too" in refused(capsys, bundle, rows, rows, "--restart")


def test_two_runs_do_not_write_one_file(
    bundle: Path, rows: Path, tmp_path: Path, capsys: Any, monkeypatch: Any
) -> None:
    out = tmp_path / "out.jsonl"
    real = Executor.predict
    codes: list[int] = []

    def meanwhile(*args: Any, **kwargs: Any) -> Any:
        if not codes:
            codes.append(-1)
            codes.append(run(bundle, rows, out, *FAST))
        return real(*args, **kwargs)

    monkeypatch.setattr(Executor, "predict", meanwhile)
    assert run(bundle, rows, out, *FAST) == 0
    assert codes[1] == 1 and "another run is writing" in capsys.readouterr().err
    assert [one["row"] for one in records(out)] == list(range(ROWS))


def test_memory_is_flat(bundle: Path, tmp_path: Path) -> None:
    many = texts(1000)
    for number in (4_000, 16_000):
        with open(tmp_path / f"{number}.jsonl", "w") as file:
            file.writelines(json.dumps({"text": many[index % 1000]}) + "\n" for index in range(number))
    # VmHWM and not ru_maxrss, which begins with what the parent had.
    code = """
import sys
from paredown.cli import main
bundle, folder = sys.argv[1:]
for number in (4_000, 16_000):
    command = ["predict", bundle, f"{folder}/{number}.jsonl", f"{folder}/{number}.out.jsonl", "--batch-size", "64"]
    assert main(command) == 0
    print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""
    process = start(bundle, tmp_path, code=code)
    out, errors = process.communicate()
    assert process.returncode == 0, errors
    few, all_of_them = map(int, out.split())
    assert all_of_them - few < 8 * 1024, f"{few} KiB with 4,000 rows, {all_of_them} KiB with 16,000"
    with open(tmp_path / "16000.out.jsonl") as file:
        assert all(json.loads(line)["row"] == index for index, line in enumerate(file)) and file.tell() > 0
    assert b"16,000 rows, " in errors and b" of 2 layers" in errors


# Standard input and output


def test_through_pipes(bundle: Path, small: AdaptiveModel, monkeypatch: Any, capsys: Any, caplog: Any) -> None:
    caplog.set_level("INFO")
    lines = "\ufeffgood plot\r\nthe cast was awful\n\n".encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines)))
    assert run(bundle, "-", "-") == 0
    out, errors = capsys.readouterr()
    found = [json.loads(line) for line in out.splitlines()]
    assert [one["label"] for one in found] == [one.label for one in small.predict(["good plot", "the cast was awful"])]
    assert caplog.messages[-1].startswith("standard input is read as one text a line") and errors.startswith("2 rows, ")


def test_json_lines_from_a_pipe(bundle: Path, rows: Path, tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\n" + rows.read_bytes())))
    assert run(bundle, "-", "-", "--skip-bad-rows", "--json") == 0
    printed = capsys.readouterr()
    found = [json.loads(line) for line in printed.out.splitlines()]
    assert len(found) == ROWS + 1 and found[0]["error"] == "the line is empty" and found[1]["label"]
    assert json.loads(printed.err)["rows"] == ROWS + 1
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    assert run(bundle, "-", tmp_path / "empty.csv") == 0
    assert (tmp_path / "empty.csv").read_text().startswith("row,label,score,score_LABEL_0")


def test_a_reader_that_has_had_enough(bundle: Path, rows: Path) -> None:
    process = start("predict", bundle, rows, "-", "--batch-size", "2")
    assert process.stdout is not None and process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.wait() == 0 and b"Traceback" not in process.stderr.read()


# What is wrong


def test_bad_rows(bundle: Path, tmp_path: Path, capsys: Any) -> None:
    path, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    lines = [
        b'{"text": "good"}',
        b'{"text": " "}',
        b"[\xff]",
        b'{"text": "\xff"}',
        b"{",
        b'{"no": 1}',
        b'{"text": "bad"}',
    ]
    path.write_bytes(b"\n".join(lines * 30))
    printed = refused(capsys, bundle, path, out, *FAST)
    assert f"{path}, line 2: empty text in column 'text'; and 44 more up to line 62" in printed
    assert "--skip-bad-rows" in printed
    assert run(bundle, path, out, *FAST, "--skip-bad-rows", "--json") == 0  # goes on where the error was
    assert json.loads(capsys.readouterr().out)["bad_rows"] == 150
    found = records(out)
    assert [one["row"] for one in found] == list(range(210))
    assert [one["label"] is not None for one in found] == [True, *[False] * 5, True] * 30
    assert all(("error" in one) == (one["label"] is None) for one in found)
    assert "UTF-8" in found[3]["error"] and "not JSON" in found[4]["error"] and "no column" in found[5]["error"]
    for form in ("csv", "parquet"):
        assert run(bundle, path, tmp_path / f"out.{form}", "--skip-bad-rows") == 0
        assert [bool(one["error"]) for one in records(tmp_path / f"out.{form}")] == [
            bool(o.get("error")) for o in found
        ]


def test_errors_are_one_line(bundle: Path, rows: Path, tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "out.jsonl"
    cases = {
        "there is no such folder": (tmp_path / "nothing", rows, out),
        "is not a bundle": (tmp_path, rows, out),
        "in.json is missing": (bundle, tmp_path / "in.json", out),
        "must end in .jsonl, .csv, .parquet": (bundle, rows, tmp_path / "out.txt"),
        "there is no folder": (bundle, rows, tmp_path / "no" / "out.csv"),
        "no column 'body'; it has id, text": (bundle, rows, out, "--text-column", "body"),
        "did you mean 'entropy'": (bundle, rows, out, "--exit", "entropi:0.3"),
        "a plan must be JSON": (bundle, rows, out, "--plan", "{"),
        "both say when rows leave": (bundle, rows, out, "--speed", "0.5", "--exit", "none"),
        "speed must lie between": (bundle, rows, out, "--speed", "7"),
        "more than this encoder can read": (bundle, rows, out, "--max-length", "65"),
        "--device is auto": (bundle, rows, out, "--device", "tpu"),
    }
    for message, words in cases.items():
        assert message in refused(capsys, *words)
    assert not out.exists() and not progress_of(out).exists()
    capsys.readouterr()
    assert run(bundle, rows) == 2 and run(bundle, rows, out, "--nonsense") == 2
    assert "Traceback" not in capsys.readouterr().err


def test_a_disk_that_is_full(bundle: Path, rows: Path, tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    out, calls = tmp_path / "out.jsonl", []

    def full(self: ToFile) -> None:
        calls.append(1)
        if len(calls) == 4:
            raise OSError(28, "No space left on device")
        real(self)

    real = ToFile._note
    with monkeypatch.context() as patch:
        patch.setattr(ToFile, "_note", full)
        assert "cannot write" in refused(capsys, bundle, rows, out, *FAST)
    assert run(bundle, rows, out, *FAST) == 0 and [one["row"] for one in records(out)] == list(range(ROWS))


# Settings


def test_plans(bundle: Path, rows: Path, tmp_path: Path) -> None:
    found = {}
    given = {"one": ("--plan", '{"depth": [0]}'), "all": ("--exit", "none"), "fast": ("--speed", "1")}
    for name, words in given.items():
        assert run(bundle, rows, tmp_path / f"{name}.jsonl", *words) == 0
        found[name] = {one["layers"] for one in records(tmp_path / f"{name}.jsonl")}
    assert found == {"one": {1}, "all": {2}, "fast": {1}}


def test_settings_from_a_file(bundle: Path, rows: Path, tmp_path: Path, capsys: Any) -> None:
    out, config = tmp_path / "out.csv", tmp_path / "run.yaml"
    config.write_text(f"bundle: {bundle}\ninput: {rows}\noutput: {out}\nplan:\n  depth: [0]\nbatch-size: 4\n")
    assert run("--config", config) == 0 and {one["layers"] for one in records(out)} == {"1"}
    assert run("--config", config, "--restart", "--plan", "{}") == 0
    assert {one["layers"] for one in records(out)} == {"2"}
    capsys.readouterr()
    config.write_text("speeed: 1\n")
    assert "'speeed' is not a setting" in refused(capsys, "--config", config)


def test_a_dry_run_writes_nothing(bundle: Path, rows: Path, tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    out = tmp_path / "out.jsonl"
    assert run(bundle, rows, out, "--dry-run") == 0
    assert "Nothing was run." in (printed := capsys.readouterr().out) and "entropy:0.95" in printed
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]
    with monkeypatch.context() as patch, pytest.raises(Killed):
        kill_at(2, patch)
        run(bundle, rows, out, *FAST)
    before = out.read_bytes()
    assert run(bundle, rows, out, "--dry-run", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["rows_already_written"] == 128 and found["text_column"] == "text" and found["tokens_per_row"] > 2
    assert found["flops_per_row_at_full_depth"] > 0 and out.read_bytes() == before


def test_a_bar_for_a_terminal(bundle: Path, rows: Path, tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setattr(people, "_force_terminal", True)
    assert run(bundle, rows, tmp_path / "out.jsonl", *FAST) == 0
    printed = capsys.readouterr().err
    assert "rows/s" in printed and "of 2 layers" in printed


# Several processes


def test_several_processes_write_what_one_writes(bundle: Path, tmp_path: Path, capsys: Any) -> None:
    many = [{"text": text} for text in texts(200)]
    path = write_jsonl(tmp_path / "in.jsonl", [*many, {"text": ""}, *many])
    whole, out = tmp_path / "whole.csv", tmp_path / "out.csv"
    assert run(bundle, path, whole, *FAST, "--skip-bad-rows") == 0
    capsys.readouterr()
    assert "line 201: empty text" in refused(capsys, bundle, path, out, *FAST, "--processes", 2)
    assert json.loads(progress_of(out).read_text())["done"]["rows"] == 192
    assert run(bundle, path, out, *FAST, "--processes", 2, "--skip-bad-rows") == 0
    assert out.read_bytes() == whole.read_bytes()


def test_a_process_that_is_killed() -> None:
    with ProcessPoolExecutor(1, get_context("fork")) as pool, pytest.raises(OutOfMemory, match="run it again"):
        _predicting._result(pool.submit(os._exit, 9))
