"""`paredown elue` as a user types it, on two tiny tasks in ELUE's own files."""

from __future__ import annotations

import json
import random
import zipfile
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoModel

from paredown import AdaptiveModel
from paredown.cli import main
from tests.families import tiny
from tests.published import test_elasticbert as elasticbert

GOOD, BAD = ("good", "great", "fine"), ("bad", "dull", "awful")


def sentence(source: random.Random, label: int) -> str:
    return f"the {source.choice(['film', 'plot', 'cast'])} was {source.choice(GOOD if label else BAD)}"


def write(path: Path, header: str, rows: list[tuple[Any, ...]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([header, *["\t".join(map(str, row)) for row in rows]]) + "\n", encoding="utf-8")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """SST-2 with a labelled test set; STS-B without any."""
    folder, source = tmp_path / "elue", random.Random(0)
    for split, number in (("train", 40), ("dev", 16), ("test_full", 20)):
        labels = [source.randrange(2) for _ in range(number)]
        write(folder / "SST-2" / f"{split}.tsv", "sentence\tlabel", [(sentence(source, at), at) for at in labels])
        pairs = [(source.randrange(2), source.randrange(2)) for _ in range(number)]
        if split != "test_full":
            rows = [(sentence(source, a), sentence(source, b), 5.0 if a == b else 0.0) for a, b in pairs]
            write(folder / "STS-B" / f"{split}.tsv", "sentence1\tsentence2\tlabel", rows)
    return folder


@pytest.fixture
def encoder(tmp_path: Path, tokenizer: Any) -> Path:
    """Without a classifier: one of another size would not fit both tasks."""
    folder = tmp_path / "encoder"
    tiny("bert", AutoModel).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def command(encoder: Path, data: Path, output: Path, *more: str) -> list[str]:
    given = ["--epochs", "1", "--lr", "1e-3", "--batch-size", "8", "--max-length", "32"]
    return ["elue", str(encoder), "--data", str(data), "-o", str(output), *given, *more]


def test_both_uses_end_to_end(encoder: Path, data: Path, tmp_path: Path, capsys: Any) -> None:
    out, curve = tmp_path / "out", tmp_path / "curve.json"
    uses = ["--method", "elasticbert:head=linear", "--depth", "1", "--depth", "4"]
    line = command(encoder, data, out, *uses, "--save-baseline", str(curve))
    assert main(line) == 0
    shown = capsys.readouterr()
    aloud = shown.err.replace("\n", " ")
    assert "ELUE scores against encoder" in shown.out and "average" in shown.out
    assert "IMDb is left out" in aloud and "STS-B: entropy_nats is left out" in aloud
    assert "SST-2: judged on 20 rows of test_full" in aloud and "STS-B: judged on 16 rows of dev" in aloud
    assert "STS-B: there are no test rows, so nothing to submit" in aloud

    found = json.loads((out / "elue.json").read_text())
    assert list(found["scores"]) == ["static", "entropy_nats", "patience"]
    assert found["scores"]["static"]["average"] == 0 and found["baseline"] == json.loads(curve.read_text())
    assert list(found["curves"]["entropy_nats"]["tasks"]) == ["SST-2"]
    assert [at["layers_kept"] for at in found["baseline"]["tasks"]["STS-B"]["points"]] == [1, 4]
    assert len(found["curves"]["patience"]["tasks"]["STS-B"]["points"]) == 3
    one, four = found["baseline"]["tasks"]["SST-2"]["points"]
    assert 0.2 < one["flops"] / four["flops"] < 0.4
    alone = AdaptiveModel.from_pretrained(out / "SST-2" / "depth_1" / "model")
    assert alone.plan.depth == (0,) and (out / "elue.png").is_file() and (out / "elue.svg").is_file()
    with zipfile.ZipFile(out / "submission_entropy_nats.zip") as archive:
        assert "SST-2_0.3.tsv" in archive.namelist() and "SST-2_infer_exit_layer_0.3.tsv" in archive.namelist()
        assert archive.read("SST-2_0.3.tsv").decode().splitlines()[0] == "index\tprediction"
    assert (out / "submission_static_4.zip").is_file()

    # Again: nothing is trained a second time, and the answers are the same. From the finished runs: the same too.
    weights = out / "SST-2" / "model" / "model.safetensors"
    before = weights.read_bytes()
    assert main([*line, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == found and weights.read_bytes() == before
    judged = ["elue", str(out), "--data", str(data), "-o", str(tmp_path / "again"), "--baseline", str(curve)]
    assert main([*judged, "--max-length", "32", "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["scores"] == found["scores"] and not (tmp_path / "again" / "SST-2").exists()
    assert main([*judged, "--depth", "1", "--task", "sst-2", "--rule", "margin", "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert list(again["curves"]) == ["static", "margin"] and "max_length is 256 here and 32" in str(again["notes"])
    assert main([*judged, "--depth", "2"]) == 1
    assert "SST-2 holds no finished run of the first 2 layers" in capsys.readouterr().err


def test_says_what_it_would_do(encoder: Path, data: Path, tmp_path: Path, capsys: Any) -> None:
    line = command(encoder, data, tmp_path / "out", "--task", "elue-sst-2", "--depth", "2", "--dry-run")
    assert main([*line, "--json"]) == 0
    (plan,) = json.loads(capsys.readouterr().out)["runs"]
    assert (plan["use"], plan["trained_on"], plan["steps"]) == ("first 2", 40, 5)
    assert (plan["judged_on"], plan["split"]) == (20, "test_full")
    assert main([*line, "--method", "joint"]) == 0
    assert "Nothing was run." in capsys.readouterr().out and not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "change, message",
    [
        (["--task", "cola"], "no task of this benchmark is called 'cola'"),
        (["--task", "imdb"], "train is missing"),
        (["--rule", "entropi"], "did you mean 'entropy'?"),
        (["--rule", "patience", "--rule", "patience:tolerance=0.1"], "two have the same name"),
        (["--method", "fastbrt"], "did you mean 'fastbert'?"),
        (["--save-baseline", "curve.json", "--depth", "2"], "needs --depth twice or more"),
        (["--baseline", "absent.json"], "no curve can be read from absent.json"),
        (["--depth", "9", "--depth", "2", "--save-baseline", "curve.json"], "depth must be 1 to 4"),
    ],
)
def test_errors_are_a_line(
    encoder: Path, data: Path, tmp_path: Path, capsys: Any, change: list[str], message: str
) -> None:
    assert main([*command(encoder, data, tmp_path / "out"), *change]) == 1
    error = capsys.readouterr().err
    assert message in error.replace("\n", " ") and "Traceback" not in error


def test_a_baseline_without_the_task_is_refused_before_training(
    encoder: Path, data: Path, tmp_path: Path, capsys: Any
) -> None:
    curve = {"encoder": "x", "counted_as": "paredown", "tasks": {}}
    (tmp_path / "curve.json").write_text(json.dumps(curve))
    assert main([*command(encoder, data, tmp_path / "out"), "--baseline", str(tmp_path / "curve.json")]) == 1
    assert "no curve for SST-2" in capsys.readouterr().err and not (tmp_path / "out").exists()


def test_a_folder_without_tasks(encoder: Path, tmp_path: Path, capsys: Any) -> None:
    assert main(command(encoder, tmp_path, tmp_path / "out")) == 1
    assert "holds none of ELUE's tasks" in capsys.readouterr().err.replace("\n", " ")


def test_an_elasticbert_begins_with_its_own_poolers(data: Path, tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setitem(elasticbert.SIZES, "max_position_embeddings", 64)
    folder = elasticbert.folder(tmp_path / "elastic", elasticbert.state())
    line = command(folder, data, tmp_path / "out", "--task", "sst-2", "--epochs", "1", "--rule", "patience", "--json")
    assert main(line) == 0
    assert AdaptiveModel.from_pretrained(tmp_path / "out" / "SST-2" / "model").head.name == "pooler"
    for other in (["--method", "fastbert"], ["--depth", "2"]):  # other heads, and none
        assert main([*line, *other, "--dry-run"]) == 0
