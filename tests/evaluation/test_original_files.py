"""The files of the original tools, as their readers expect them."""

from __future__ import annotations

import json
import re
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from paredown.errors import BadInput, BadSetting
from paredown.evaluation import Record, metric_named, replay
from paredown.evaluation.original_files import (
    predictions,
    write_deebert,
    write_elasticbert,
    write_elue_submission,
    write_glue_submission,
)
from paredown.kinds import KINDS
from paredown.registry import exits
from tests.evaluation.made import sst2


def test_deebert(tmp_path: Path) -> None:
    seen, metric = sst2(), metric_named("f1")
    lines = write_deebert(tmp_path, seen, [0, 0.1, 0.4], metric, seconds=[3.5, 2.0, 1.25])
    done = replay(seen, exits.parse("entropy_nats:0.1"))
    counter, time, fraction, score = json.loads((tmp_path / "entropy_0.1.json").read_text())
    assert counter == {str(layer): int((done.layers == layer).sum()) for layer in range(1, 13)}
    assert time == 2.0 and score == seen.score(done.logits, metric)
    assert fraction == pytest.approx(done.layers.double().mean().item() / 12)
    assert json.loads((tmp_path / "entropy_0.0.json").read_text())[2] == 1.0  # nobody left
    each = np.load(tmp_path / "each_layer.npy", allow_pickle=False)
    assert each.dtype == float and each.tolist() == list(seen.scores(metric).values())
    counts = {int(layer): count for layer, count in counter.items()}
    wanted = [
        "0.1",
        "Eval time: 2.0",
        f"Exit layer counter {counts}",
        f"Expected saving {fraction}",
        f"Result: {score}",
    ]
    assert lines[5:10] == wanted


def test_elasticbert(tmp_path: Path) -> None:
    seen = sst2(50)
    lines = write_elasticbert(tmp_path, seen, "SST-2", ["0", "1"], [0.3], [0, 3], split="infer")
    done = replay(seen, exits.parse("entropy_nats:0.3"))
    rows = (tmp_path / "SST-2_0.3.tsv").read_text().splitlines()
    assert rows[0] == "index\tprediction" and len(rows) == 51
    assert [row.split("\t") for row in rows[1:]] == [
        [str(place), str(label)] for place, label in enumerate(done.logits.argmax(1).tolist())
    ]
    rows = (tmp_path / "SST-2_infer_exit_layer_0.3.tsv").read_text().splitlines()
    assert rows[0] == "index\texit_layer"
    assert [int(row.split("\t")[1]) for row in rows[1:]] == done.layers.tolist()
    assert {path.name for path in tmp_path.iterdir()} == {
        f"SST-2_{part}{at}.tsv" for part in ("", "infer_exit_layer_") for at in ("0.3", "0", "3")
    }
    mean = done.layers.double().mean().item()
    assert f"*** Early_exit_entropy = 0.3 Avg. Inference Layers = {mean:.2f} Speed Up = {12 / mean:.2f} ***" in lines
    assert "*** Patience = 0 Avg. Inference Layers = 12.00 Speed Up = 1.00 ***" in lines
    assert re.match(r"  accuracy = 0\.\d+", lines[0])
    write_elasticbert(tmp_path / "dev", seen, "SST-2", ["0", "1"], [0.3])
    assert [path.name for path in (tmp_path / "dev").iterdir()] == ["SST-2_eval_exit_layer_0.3.tsv"]
    with pytest.raises(BadSetting, match="split"):
        write_elasticbert(tmp_path, seen, "SST-2", ["0", "1"], split="test")


def test_glue_submission(tmp_path: Path) -> None:
    seen = sst2(4)
    labels = predictions(seen, replay(seen, None), ["entailment", "not_entailment"])
    path = write_glue_submission(
        tmp_path / "glue.zip", {"rte": labels, "sts-b": [5.2, -1.0, 2.25], "mnli-mm": ["neutral"]}
    )
    with zipfile.ZipFile(path) as archive:
        assert archive.namelist() == ["MNLI-mm.tsv", "RTE.tsv", "STS-B.tsv"]
        assert archive.read("STS-B.tsv").decode() == "index\tprediction\n0\t5.000\n1\t0.000\n2\t2.250\n"
        assert archive.read("RTE.tsv").decode().splitlines()[1] == f"0\t{labels[0]}"
    again = write_glue_submission(
        tmp_path / "b.zip", {"rte": labels, "sts-b": [5.2, -1.0, 2.25], "mnli-mm": ["neutral"]}
    )
    assert again.read_bytes() == path.read_bytes()
    with pytest.raises(BadInput, match="RTE"):
        write_glue_submission(tmp_path / "c.zip", {"imdb": labels})


def test_elue_submission(tmp_path: Path) -> None:
    seen = sst2(4)
    done = replay(seen, exits.parse("entropy_nats:0.3"))
    points = {0.3: (predictions(seen, done, ["0", "1"]), done.layers)}
    path = write_elue_submission(tmp_path / "elue.zip", {"sst-2": points})
    with zipfile.ZipFile(path) as archive:
        assert archive.namelist() == ["SST-2_0.3.tsv", "SST-2_infer_exit_layer_0.3.tsv"]


def test_numbers_and_several_labels() -> None:
    numbers = Record(KINDS["regression"], {1: torch.tensor([[1.5], [2.0]])}, {}, None, torch.tensor([3, 3]))
    assert predictions(numbers, numbers.logits[1], ["score"]) == [1.5, 2.0]
    several = Record(KINDS["multi_label"], {1: torch.zeros(2, 3)}, {}, None, torch.tensor([3, 3]))
    with pytest.raises(BadInput, match="multi_label"):
        predictions(several, several.logits[1], ["a", "b", "c"])
