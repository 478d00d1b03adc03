"""Prediction by workers of a Ray: the file of a local run to the byte, whoever dies on the way."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from paredown import AdaptiveModel
from paredown.answers._shape import Shape
from paredown.cli import _predicting, main
from paredown.cli._outgoing import Done, progress_of, shards_of
from paredown.cli._shards import Shards
from paredown.cluster import Shard, Workers, predict, session
from paredown.cluster.session import LOOPBACK, reach
from paredown.errors import BadInput, BadSetting, ClusterFailed
from tests.cli.running import records
from tests.conftest import WORDS
from tests.families import adaptive

os.environ.update(LOOPBACK)  # read when Ray is imported, which the test of any address may do first
ROWS, SIZE = 1000, 32  # of the input, of a shard
ON_RAY = ("--ray", "local", "--workers", "2")  # of one thread each, as many as this process has: the same bits


def run(*words: Any) -> int:
    return main(["predict", *map(str, words), "--batch-size", "8"])


def refused(capsys: Any, *words: Any) -> str:
    """The one line that a command ends with."""
    assert run(*words) == 1
    printed = capsys.readouterr().err.strip()
    assert printed.startswith("error") and len(printed.splitlines()) == 1, printed
    return printed


@pytest.fixture(scope="module")
def model(tokenizer: Any) -> AdaptiveModel:
    return adaptive("bert", tokenizer=tokenizer, plan="entropy:0.95", hidden_size=16, num_hidden_layers=2)


@pytest.fixture(scope="module")
def bundle(model: AdaptiveModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "small"
    model.save_pretrained(folder)
    return folder


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_predicting, "CHUNK", SIZE // 8)


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path, drawn = tmp_path / "in.jsonl", random.Random(0)
    texts = [" ".join(drawn.choices(WORDS, k=drawn.randint(1, 9))) for _ in range(ROWS)]
    texts[ROWS // 2] = " "  # a bad row
    path.write_text("".join(json.dumps({"id": index, "text": text}) + "\n" for index, text in enumerate(texts)))
    return path


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    """A Ray of this machine, which all runs of this process join."""
    ray = reach("local")
    settings = {"include_dashboard": False, "log_to_driver": False, "logging_level": "ERROR"}
    ray.init("local", num_cpus=3, object_store_memory=100_000_000, **settings)
    yield ray
    ray.shutdown()


def processes(name: str = "") -> list[psutil.Process]:
    """Those of the Ray that this process has started, by the beginning of their name."""
    return [one for one in psutil.Process().children(recursive=True) if one.name().startswith(name)]


def act_at(number: int, monkeypatch: pytest.MonkeyPatch, act: Any) -> list[int]:
    """Do something when so many shards have come; returns the numbers of those that come."""
    real, seen = Shards.add, []

    def add(self: Shards, shard: Any) -> None:
        real(self, shard)
        seen.append(shard.number)
        if len(seen) == number:
            act()

    monkeypatch.setattr(Shards, "add", add)
    return seen


def test_a_stopped_run_goes_on_a_killed_worker_is_replaced_and_the_file_is_that_of_a_local_run(
    ray: Any, bundle: Path, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    out, words = tmp_path / "out.csv", ("--skip-bad-rows", "--id-column", "id")
    assert run(bundle, rows, tmp_path / "local.csv", *words) == 0
    with monkeypatch.context() as patch:
        act_at(3, patch, lambda: signal.raise_signal(signal.SIGTERM))
        assert run(bundle, rows, out, *words, *ON_RAY) == 128 + signal.SIGTERM
    capsys.readouterr()
    before = {int(path.stem) for path in shards_of(out).glob("*.shard")}
    assert len(before) >= 3 and not out.exists()

    assert "plan was" in refused(capsys, bundle, rows, out, *words, *ON_RAY, "--exit", "entropy:0.1")
    other = tmp_path / "other.jsonl"
    other.write_text(rows.read_text().replace("good", "fine"))
    assert "sha256 of the input was" in refused(capsys, bundle, other, out, *words, *ON_RAY)
    assert "was begun with --ray" in refused(capsys, bundle, rows, out, *words)

    with monkeypatch.context() as patch:
        seen = act_at(4, patch, lambda: processes("ray::MapWorker")[0].kill())
        assert run(bundle, rows, out, *words, *ON_RAY, "--json") == 0
    assert json.loads(capsys.readouterr().out)["rows"] == ROWS  # what Ray says of the dead goes to standard error
    number = -(-ROWS // SIZE)
    assert sorted(seen) == sorted({*range(number + 1)} - before)  # each once; the last one says that it is the last
    assert out.read_bytes() == (tmp_path / "local.csv").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.jsonl", "local.csv", "other.jsonl", "out.csv"]


def test_another_bundle_does_not_go_on_with_a_run(
    bundle: Path, model: AdaptiveModel, rows: Path, tmp_path: Path, capsys: Any
) -> None:
    out, facts = tmp_path / "out.jsonl", {"task": {"bundle": "that of another"}, "size": SIZE}
    shards_of(out).mkdir()
    (shards_of(out) / "run.json").write_text(json.dumps(facts))
    assert "bundle was that of another and is now" in refused(capsys, bundle, rows, out, *ON_RAY)
    (shards_of(out) / "run.json").write_text("{")
    assert "damaged" in refused(capsys, bundle, rows, out, *ON_RAY)
    assert run(bundle, rows, out, "--skip-bad-rows", "--restart") == 0 and not shards_of(out).exists()


def shards(path: Path, model: AdaptiveModel, restart: bool = False) -> Shards:
    shape = Shape(model.kind, tuple(model.labels))
    opened = Shards(path, shape, {"bundle": "one"}, restart)
    opened.open()
    assert opened.begin(SIZE) == SIZE
    return opened


def test_shards_are_put_together_in_their_order_once_all_are_there(model: AdaptiveModel, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    out.write_text("of a local run that was stopped\n")
    progress_of(out).write_text("{}")
    first = shards(out, model)
    assert not out.exists() and not progress_of(out).exists()
    with pytest.raises(BadSetting, match="another run"):
        shards(out, model, restart=True)
    for number in (2, 0, 2):
        first.add(Shard(number, SIZE, f"{number}\n".encode(), 2.0 * SIZE))
    assert first.done.rows == 2 * SIZE
    first.add(Shard(3, 0))
    with pytest.raises(ClusterFailed, match="only 2 shards"):
        first.finish()
    first.close()

    again = shards(out, model)
    assert again.numbers == {0, 2} and again.done == Done(2 * SIZE, layers=4.0 * SIZE)
    again.add(Shard(1, SIZE, b"1\n"))
    again.add(Shard(3, 0))
    again.finish()
    assert out.read_text() == "0\n1\n2\n" and list(tmp_path.iterdir()) == [out]


def test_shards_of_a_run_that_was_given_up_do_not_come_back(model: AdaptiveModel, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    old = shards(out, model)
    for number in range(3):
        old.add(Shard(number, SIZE, b"old\n"))
    old.close()
    new = shards(out, model, restart=True)
    new.add(Shard(0, 1, b"new\n"))
    new.add(Shard(1, 0))
    new.finish()
    assert out.read_text() == "new\n"


def test_a_dataset_becomes_what_a_local_run_writes(ray: Any, bundle: Path, rows: Path, tmp_path: Path) -> None:
    assert run(bundle, rows, tmp_path / "local.parquet", "--skip-bad-rows", "--id-column", "id") == 0
    listed = [{"row": index, **json.loads(line)} for index, line in enumerate(rows.read_text().splitlines())]
    dataset = ray.data.from_items(listed, override_num_blocks=4)
    with pytest.raises(BadInput, match="no column 'name'"):
        predict(dataset, bundle, keep_columns=["name"])
    found = predict(dataset, bundle, keep_columns=["id"], skip_bad_rows=True, workers=1, batch_size=8).take_all()
    found.sort(key=lambda one: one["row"])
    expected = records(tmp_path / "local.parquet")
    assert [list(one) for one in found] == [list(one) for one in expected]
    for one, other in zip(found, expected, strict=True):  # other rows shared a batch with it, so scores may round
        assert one == pytest.approx(other, abs=1e-5) if other["error"] is None else one == other
    assert [address for one in processes() for address in listening(one) if address not in ("127.0.0.1", "::1")] == []


def listening(process: psutil.Process) -> list[str]:
    found = [one.laddr.ip for one in process.net_connections("tcp") if one.status == psutil.CONN_LISTEN]
    return [address.removeprefix("::ffff:") for address in found]


# Without a Ray


def test_without_ray_the_extra_is_named(
    bundle: Path, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert "pip install 'paredown[ray]'" in refused(capsys, bundle, rows, tmp_path / "out.jsonl", *ON_RAY)


def test_an_address_where_nobody_answers_is_an_error_within_seconds(
    bundle: Path, rows: Path, tmp_path: Path, capsys: Any
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    start, out = time.monotonic(), tmp_path / "out.jsonl"
    assert f"no Ray answers at 127.0.0.1:{port}" in refused(capsys, bundle, rows, out, "--ray", f"127.0.0.1:{port}")
    assert "local, auto or HOST:PORT" in refused(capsys, bundle, rows, out, "--ray", "somewhere")
    assert "give --ray too" in refused(capsys, bundle, rows, out, "--workers", 2)
    assert "standard input" in refused(capsys, bundle, "-", out, *ON_RAY)
    assert time.monotonic() - start < 60 and not shards_of(out).exists()


def test_a_cluster_that_wants_a_token_says_so() -> None:
    def init(*_: Any, **__: Any) -> None:
        raise ConnectionError("Failed to connect") from RuntimeError("RPC error: InvalidAuthToken: missing")

    with pytest.raises(ClusterFailed, match="RAY_AUTH_MODE=token"):
        session._join(SimpleNamespace(init=init), "10.0.0.1:6379", None)


@pytest.mark.parametrize(
    ("nodes", "number", "device", "expected"),
    [
        ([{"CPU": 8}], None, "auto", Workers(1, "cpu", 7)),  # one CPU reads the rows
        ([{"CPU": 8}], 2, "auto", Workers(2, "cpu", 3)),
        ([{"CPU": 3}, {"CPU": 4}], None, "auto", Workers(2, "cpu", 3)),
        ([{"CPU": 3}, {"CPU": 4}], 3, "auto", Workers(3, "cpu", 1)),
        ([{"CPU": 8, "GPU": 2}, {"CPU": 8, "GPU": 1}], None, "auto", Workers(3, "cuda")),
        ([{"CPU": 8, "GPU": 2}], 1, "cuda", Workers(1, "cuda")),
        ([{"CPU": 8, "GPU": 2}], 1, "cpu", Workers(1, "cpu", 7)),
    ],
)
def test_workers_fit_the_machines(nodes: Any, number: int | None, device: str, expected: Workers) -> None:
    assert Workers.on(nodes, number, device) == expected


@pytest.mark.parametrize(
    ("number", "device", "message"),
    [
        (2, "cpu", "2 workers need 3 CPUs, one to read the rows; there are 2"),
        (None, "cuda", "1 workers need a GPU each, and the cluster has 0"),
        (None, "tpu", "not 'tpu'"),
        (0, "auto", "at least 1"),
    ],
)
def test_workers_that_do_not_fit_are_an_error(number: int | None, device: str, message: str) -> None:
    with pytest.raises(BadSetting, match=message):
        Workers.on([{"CPU": 2}], number, device)
