"""`paredown import`: every layout is recognised, and what it holds becomes a bundle."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import BertConfig

from paredown import AdaptiveModel, Plan
from paredown.cli import main
from tests.families import tiny
from tests.published import test_deebert as deebert
from tests.published import test_elasticbert as elasticbert
from tests.published import test_fastbert as fastbert
from tests.published import test_theseus as theseus


def made(layout: str, folder: Path, tokenizer: Any) -> tuple[Path, list[str]]:
    """A checkpoint in a layout, and the flags that it needs."""
    if layout == "fastbert":
        words = fastbert.vocabulary(folder / "words")
        BertConfig(hidden_size=fastbert.WIDTH, num_attention_heads=fastbert.HEADS).save_pretrained(words)
        torch.save(fastbert.state(), folder / "fastbert.bin")
        return folder / "fastbert.bin", ["--tokenizer", str(words)]
    if layout == "deebert":
        path = deebert.folder(folder / "a", "bert", deebert.state("bert", labels=3))
        fastbert.vocabulary(folder / "words")
        return path, ["--tokenizer", str(folder / "words" / "vocab.txt")]
    if layout == "elasticbert":
        return elasticbert.folder(folder / "a", elasticbert.state(classifiers=3)), []
    if layout == "theseus":
        return theseus.folder(folder / "a", theseus.state()), []
    tiny("roberta").save_pretrained(folder / "a")
    tokenizer.save_pretrained(folder / "a")
    return folder / "a", []


FOUND = {
    "fastbert": ("attention after layers 0, 1, 2", Plan(exit="entropy:0.5")),
    "deebert": ("pooler after layers 0, 1", Plan(exit="entropy_nats:0.1")),
    "elasticbert": ("pooler after layers 0, 1, 2", Plan(exit="entropy_nats:0.3")),
    "theseus": ("none", Plan(depth=(4, 5))),
    "plain": ("none", Plan()),
}


@pytest.mark.parametrize("layout", FOUND)
def test_every_layout(layout: str, tokenizer: Any, tmp_path: Path, capsys: Any) -> None:
    source, flags = made(layout, tmp_path, tokenizer)
    line = ["import", str(source), str(tmp_path / "bundle"), "--labels", "a, b, c", *flags]
    assert main([*line, "--dry-run", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["layout"], found["heads"], found["labels"]) == (layout, FOUND[layout][0], ["a", "b", "c"])
    assert not (tmp_path / "bundle").exists()
    assert main(line) == 0
    assert f"layout       {layout}" in capsys.readouterr().out
    model = AdaptiveModel.from_pretrained(tmp_path / "bundle")
    assert model.plan == FOUND[layout][1] and model.labels == ["a", "b", "c"]
    assert model.predict(["word0 word1"])[0].label in model.labels
    assert main(line) == 1 and "exists already" in capsys.readouterr().err


def test_successors_that_were_converted(tmp_path: Path, capsys: Any) -> None:
    path = theseus.folder(tmp_path / "a", theseus.converted(), theseus.SUCCESSORS)
    assert main(["import", str(path), str(tmp_path / "bundle"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["layout"], found["layers"], found["plan"]) == ("plain", 2, "all layers")
    assert main(["import", str(path), str(tmp_path / "again"), "--json", "--format", "theseus"]) == 0


def test_what_cannot_be_imported(tokenizer: Any, tmp_path: Path, capsys: Any) -> None:
    def complaint(source: Path, *flags: str) -> str:
        assert main(["import", str(source), str(tmp_path / "bundle"), *flags]) == 1
        return capsys.readouterr().err

    torch.save({"a": torch.ones(1)}, tmp_path / "other.bin")
    printed = complaint(tmp_path / "other.bin")
    assert all(name in printed for name in ("fastbert", "deebert", "elasticbert", "theseus", "plain"))
    assert "format is one of" in complaint(tmp_path / "other.bin", "--format", "pabee")
    elastic = elasticbert.folder(tmp_path / "elastic", elasticbert.state())
    assert "`paredown train` takes it" in complaint(elastic)
    dee = deebert.folder(tmp_path / "dee", "bert", deebert.state("bert"))
    assert "without a vocabulary" in complaint(dee)
    assert "answers 2 labels, but 3 are named" in complaint(dee, "--labels", "a,b,c")
    bare = tmp_path / "bare"
    tiny("bert").base_model.save_pretrained(bare)
    tokenizer.save_pretrained(bare)
    assert "none of the layouts" in complaint(bare)


def test_a_fine_tuned_elasticbert_serves_without_being_imported(tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setitem(elasticbert.SIZES, "max_position_embeddings", 64)  # FLOPs are measured on 40 tokens
    path = elasticbert.folder(tmp_path / "a", elasticbert.state(classifiers=2), id2label={"0": "bad", "1": "good"})
    (tmp_path / "rows.csv").write_text("text,label\nword0 word1,good\nword2,bad\nword3 word4,bad\n")
    line = ["evaluate", str(path), str(tmp_path / "rows.csv"), "-r", "entropy", "--timed-batch", "2", "--json"]
    assert main(line) == 0 and json.loads(capsys.readouterr().out)["rows"] == 3
    plain = elasticbert.folder(tmp_path / "b", elasticbert.state())
    assert main(["evaluate", str(plain), str(tmp_path / "rows.csv")]) == 1
    assert "`paredown train` takes it" in capsys.readouterr().err


def test_training_from_a_file_and_from_elasticbert(tmp_path: Path, capsys: Any, caplog: Any) -> None:
    (tmp_path / "rows.csv").write_text("text,label\n" + "word0 word1,good\nword2,bad\n" * 8)
    rest = ["--train", str(tmp_path / "rows.csv"), "--epochs", "1", "-m", "joint:head=attention", "--json"]
    elastic = elasticbert.folder(tmp_path / "elastic", elasticbert.state())
    assert main(["train", str(elastic), "-o", str(tmp_path / "one"), *rest]) == 0
    assert AdaptiveModel.from_pretrained(tmp_path / "one" / "model").head.name == "attention"
    words = fastbert.vocabulary(tmp_path / "words")
    BertConfig(hidden_size=fastbert.WIDTH, num_attention_heads=fastbert.HEADS).save_pretrained(words)
    torch.save(fastbert.state(), tmp_path / "uer.bin")
    file = ["train", str(tmp_path / "uer.bin"), "-o", str(tmp_path / "two"), *rest]
    assert main([*file]) == 1 and "attention_heads" in capsys.readouterr().err
    assert main([*file, "--tokenizer", str(words)]) == 0
    assert AdaptiveModel.from_pretrained(tmp_path / "two" / "model").labels == ["bad", "good"]
    capsys.readouterr()
    (tmp_path / "more.csv").write_text("text,label\n" + "word0 word1,x\nword2,y\nword3,z\n" * 8)
    again = ["train", str(tmp_path / "two" / "model"), "-o", str(tmp_path / "three"), *rest]
    again[again.index(str(tmp_path / "rows.csv"))] = str(tmp_path / "more.csv")
    assert main(again) == 0
    assert AdaptiveModel.from_pretrained(tmp_path / "three" / "model").labels == ["x", "y", "z"]
    assert caplog.text.count("answers 2 labels (bad, good), not 3 labels (x, y, z)") == 1
