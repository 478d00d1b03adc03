"""The files of the original tools, as their readers expect them."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from paredown.errors import BadInput, BadSetting
from paredown.evaluation import METRICS, Record, metric_named, replay
from paredown.evaluation.original_files import (
    deebert_metric,
    elastic_points,
    predictions,
    still_missing,
    write_deebert,
    write_elasticbert,
    write_elue_submission,
    write_glue_submission,
)
from paredown.registry import answers, exits
from tests.evaluation.made import sst2


def numbers(*values: float) -> Record:
    return Record(
        answers.make("regression"), {1: torch.tensor([[value] for value in values])}, {}, None, torch.ones(len(values))
    )


def entries(path: Path) -> dict[str, str]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name).decode() for name in archive.namelist()}


def test_deebert(tmp_path: Path) -> None:
    seen, metric = sst2(), metric_named("f1")
    written = write_deebert(tmp_path, seen, [0, 0.1, 0.4], metric, seconds=[3.5, 2.0, 1.25])
    done = replay(seen, exits.parse("entropy_nats:0.1"))
    rows, seconds, share, score, *counts = np.load(tmp_path / "entropy_0.1.npy", allow_pickle=False).tolist()
    assert rows == len(seen) and seconds == 2.0 and score == seen.score(done.logits, metric)
    assert counts == done.histogram(12) and share == pytest.approx(done.layers.double().mean().item() / 12)
    assert np.load(tmp_path / "entropy_0.0.npy", allow_pickle=False)[2] == 1.0  # nobody left
    each = np.load(tmp_path / "each_layer.npy", allow_pickle=False)
    assert each.dtype == float and each.tolist() == list(seen.scores(metric).values())
    assert written.lines[5:10] == [
        "0.1",
        "Eval time: 2.0",
        f"Exit layer counter {dict(enumerate(done.histogram(12), 1))}",
        f"Expected saving {share}",
        f"Result: {score}",
    ]
    assert set(written.files) == set(tmp_path.iterdir())


def test_the_metric_that_deebert_reports() -> None:
    assert deebert_metric(("accuracy_and_f1", "accuracy", "f1")) == "f1"
    assert deebert_metric(("correlation", "pearson", "spearman")) == "spearman"
    assert deebert_metric(("mean_reciprocal_rank",)) == "mean_reciprocal_rank"


def test_elasticbert(tmp_path: Path) -> None:
    seen, points = sst2(50), elastic_points([0.3], [0, 3])
    metrics = [METRICS[name] for name in ("f1", "accuracy_and_f1", "accuracy")]
    written = write_elasticbert(tmp_path, seen, "sst-2", ["0", "1"], points, "infer", metrics)
    done = replay(seen, exits.parse("entropy_nats:0.3"))
    rows = (tmp_path / "sst-2_0.3.tsv").read_text().splitlines()
    assert rows[0] == "index\tprediction" and len(rows) == 51
    assert rows[1:] == [f"{number}\t{label}" for number, label in enumerate(done.logits.argmax(1).tolist())]
    rows = (tmp_path / "sst-2_infer_exit_layer_0.3.tsv").read_text().splitlines()
    assert rows[0] == "index\texit_layer"
    assert [int(row.split("\t")[1]) for row in rows[1:]] == done.layers.tolist()
    names = {f"sst-2_{part}{at}.tsv" for part in ("", "infer_exit_layer_") for at in ("0.3", "0", "3")}
    assert {path.name for path in written.files} == {path.name for path in tmp_path.iterdir()} == names
    mean = done.layers.double().mean().item()
    assert [line.split(" = ")[0] for line in written.lines[:3]] == ["  acc", "  acc_and_f1", "  f1"]
    line = f"*** Early_exit_entropy = 0.3 Avg. Inference Layers = {mean:.2f} Speed Up = {12 / mean:.2f} ***"
    assert written.lines[3] == line
    assert "*** Patience = 0 Avg. Inference Layers = 12.00 Speed Up = 1.00 ***" in written.lines
    write_elasticbert(tmp_path / "dev", seen, "sst-2", ["0", "1"], points[:1])
    assert [path.name for path in (tmp_path / "dev").iterdir()] == ["sst-2_eval_exit_layer_0.3.tsv"]
    with pytest.raises(BadSetting, match="split"):
        write_elasticbert(tmp_path, seen, "sst-2", ["0", "1"], points, split="test")


def test_a_glue_submission_collects_tasks(tmp_path: Path) -> None:
    seen, path = sst2(4), tmp_path / "new" / "glue.zip"
    write_glue_submission(path, seen, "rte", ["entailment", "not_entailment"])
    write_glue_submission(path, numbers(5.2, -1.0, 2.25), "sts-b", ["score"])
    write_glue_submission(path, sst2(3), "mnli", ["neutral", "entailment"])
    found = entries(path)
    assert list(found) == ["MNLI-m.tsv", "RTE.tsv", "STS-B.tsv"] and list(path.parent.iterdir()) == [path]
    assert found["STS-B.tsv"] == "index\tprediction\n0\t5.000\n1\t0.000\n2\t2.250\n"
    assert "RTE" not in still_missing(path) and "MNLI-mm" in still_missing(path)
    before = path.read_bytes()
    write_glue_submission(path, seen, "RTE", ["entailment", "not_entailment"])
    assert path.read_bytes() == before  # the same predictions are the same file
    write_glue_submission(path, seen, "rte", ["a", "b"], exits.parse("entropy_nats:0.3"))
    assert entries(path)["RTE.tsv"] != found["RTE.tsv"] and entries(path)["STS-B.tsv"] == found["STS-B.tsv"]
    with pytest.raises(BadInput, match="RTE"):
        write_glue_submission(tmp_path / "c.zip", seen, "imdb", ["0", "1"])


def test_a_file_that_is_no_zip_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "glue.zip"
    path.write_text("my notes")
    with pytest.raises(BadInput, match="no zip"):
        write_glue_submission(path, sst2(4), "rte", ["a", "b"])
    assert path.read_text() == "my notes" and list(tmp_path.iterdir()) == [path]


def test_an_elue_submission_replaces_a_task_whole(tmp_path: Path) -> None:
    seen, path = sst2(4), tmp_path / "elue.zip"
    write_elue_submission(path, seen, "elue-snli", ["0", "1"], elastic_points([0.3]))
    write_elue_submission(path, seen, "sst-2", ["0", "1"], elastic_points([0.3, 0.5]))
    write_elue_submission(path, seen, "elue-sst-2", ["0", "1"], elastic_points((), [2]))
    files = [
        f"{task}_{part}.tsv" for task, at in (("SNLI", 0.3), ("SST-2", 2)) for part in (at, f"infer_exit_layer_{at}")
    ]
    assert list(entries(path)) == files


def test_numbers_and_several_labels() -> None:
    seen = numbers(1.5, 2.0)
    assert predictions(seen, seen.logits[1], ["score"]) == [1.5, 2.0]
    several = Record(answers.make("multi_label"), {1: torch.zeros(2, 3)}, {}, None, torch.tensor([3, 3]))
    with pytest.raises(BadInput, match="multi_label"):
        predictions(several, several.logits[1], ["a", "b", "c"])
