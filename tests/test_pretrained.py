"""Ways in: PyTorch files, and checkpoints whose labels are not the ones wanted."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModel, AutoModelForSequenceClassification, PreTrainedModel

from paredown import AdaptiveModel, Plan
from paredown.encoders.longer import lengthened
from paredown.encoders.pretrained import kept_labels
from paredown.errors import BadBundle
from tests.families import adaptive, batch, tiny

FAMILIES = ["bert", "roberta", "distilbert", "albert", "electra", "modernbert", "deberta-v2", "mpnet"]


def folder(path: Path, model: PreTrainedModel, tokenizer: Any, labels: list[str] | None = None) -> Path:
    if labels is not None:
        model.config.id2label = dict(enumerate(labels))
        model.config.label2id = {label: index for index, label in enumerate(labels)}
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


def as_torch_files(path: Path, model: PreTrainedModel, shards: int = 1, legacy_names: bool = False) -> Path:
    """The weights as old versions of transformers kept them."""
    (path / "model.safetensors").unlink()
    state = dict(model.state_dict())
    if legacy_names:
        renamed = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
        for new, old in renamed.items():
            state = {name.replace(new, old): value for name, value in state.items()}
    if shards == 1:
        torch.save(state, path / "pytorch_model.bin")
        return path
    files = [f"pytorch_model-{shard:05}-of-{shards:05}.bin" for shard in range(shards)]
    where = {name: files[index % shards] for index, name in enumerate(state)}
    for file in files:
        torch.save({name: state[name] for name in where if where[name] == file}, path / file)
    (path / "pytorch_model.bin.index.json").write_text(json.dumps({"metadata": {}, "weight_map": where}))
    return path


def logits(model: AdaptiveModel) -> torch.Tensor:
    return model.answer(batch(30, [7, 4]), Plan()).logits


# PyTorch files


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("shards", [1, 3])
def test_torch_files_of_every_family(family: str, shards: int, tokenizer: Any, tmp_path: Path) -> None:
    stock = tiny(family)
    path = folder(tmp_path / "a", stock, tokenizer)
    expected = logits(AdaptiveModel.from_pretrained(path))
    as_torch_files(path, stock, shards, legacy_names=family == "bert")
    assert torch.allclose(logits(AdaptiveModel.from_pretrained(path)), expected, atol=1e-5)


@pytest.mark.parametrize("auto", [AutoModelForSequenceClassification, AutoModel])
def test_torch_files_can_be_lengthened(auto: Any, tokenizer: Any, tmp_path: Path) -> None:
    stock = tiny("bert", auto)
    path = as_torch_files(folder(tmp_path / "a", stock, tokenizer), stock)
    assert lengthened(path, 256).before == 128


def test_safetensors_are_preferred(tokenizer: Any, tmp_path: Path) -> None:
    path = folder(tmp_path / "a", tiny("bert"), tokenizer)
    (path / "pytorch_model.bin").write_bytes(b"not even a file of tensors")
    assert AdaptiveModel.from_pretrained(path).layers == 4


@pytest.mark.parametrize(
    ("index", "complaint"),
    [
        ("{", "which file"),
        ("[]", "which file"),
        ('{"weight_map": {"a": "../secret.bin"}}', "which file"),
        ('{"weight_map": {"a": 3}}', "which file"),
        ('{"weight_map": {"a": "pytorch_model-00007-of-00007.bin"}}', "is not there"),
        ('{"weight_map": {"a": "pytorch_model-00000-of-00003.bin"}}', "do not hold: a"),
    ],
)
def test_a_damaged_index_is_refused(index: str, complaint: str, tokenizer: Any, tmp_path: Path) -> None:
    stock = tiny("bert")
    path = as_torch_files(folder(tmp_path / "a", stock, tokenizer), stock, shards=3)
    (path / "pytorch_model.bin.index.json").write_text(index)
    with pytest.raises(BadBundle, match=complaint):
        AdaptiveModel.from_pretrained(path)


def test_a_weights_file_stands_for_its_folder(tokenizer: Any, tmp_path: Path) -> None:
    path = folder(tmp_path / "a", tiny("bert"), tokenizer)
    assert AdaptiveModel.from_pretrained(path / "model.safetensors").layers == 4


# Labels


@pytest.mark.parametrize(
    ("theirs", "ours", "kept"),
    [
        (["no", "yes"], None, [0, 1]),
        (["no", "yes"], ["yes", "no"], [1, 0]),
        (["NO", "Yes"], ["yes", "no"], [1, 0]),
        (["a", "A"], ["A", "a"], [1, 0]),
        (["LABEL_0", "LABEL_1"], ["yes", "no"], [0, 1]),
        (["no", "yes"], ["LABEL_0", "LABEL_1"], [0, 1]),
        (["score"], ["similarity"], [0]),
        (["no", "yes"], ["bad", "good"], None),
        (["no", "yes"], ["no", "yes", "so so"], None),
        (["LABEL_0", "LABEL_1"], ["a", "b", "c"], None),
    ],
)
def test_which_labels_agree(theirs: list[str], ours: list[str] | None, kept: list[int] | None) -> None:
    assert kept_labels(theirs, ours) == kept


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("shards", [0, 1])
def test_other_labels_get_a_new_classifier(
    family: str, shards: int, tokenizer: Any, tmp_path: Path, caplog: Any
) -> None:
    stock = tiny(family)
    path = folder(tmp_path / "a", stock, tokenizer, ["contradiction", "entailment", "neutral"])
    if shards:
        as_torch_files(path, stock, shards)
    model = AdaptiveModel.from_pretrained(path, labels=["bad", "good"])
    assert model.labels == ["bad", "good"] and logits(model).shape == (2, 2)
    assert "answers 3 labels (contradiction, entailment, neutral), not 2 labels (bad, good)" in caplog.text
    before = dict(stock.base_model.named_parameters())
    after = dict(model.stock.base_model.named_parameters())
    assert all(torch.equal(after[name], value) for name, value in before.items())


def test_other_names_of_as_many_labels_get_a_new_classifier(tokenizer: Any, tmp_path: Path, caplog: Any) -> None:
    stock = tiny("bert", num_labels=2)
    path = folder(tmp_path / "a", stock, tokenizer, ["no", "yes"])
    old = stock.classifier.weight
    assert not torch.equal(AdaptiveModel.from_pretrained(path, labels=["bad", "good"]).stock.classifier.weight, old)
    assert "a new classifier was made" in caplog.text
    caplog.clear()
    turned = AdaptiveModel.from_pretrained(path, labels=["YES", "NO"])
    assert torch.equal(turned.stock.classifier.weight, old.flip(0)) and turned.labels == ["YES", "NO"]
    assert AdaptiveModel.from_pretrained(path, num_labels=2).labels == ["no", "yes"]
    assert not caplog.text


def test_numbered_labels_are_taken_in_order_aloud(tokenizer: Any, tmp_path: Path, caplog: Any) -> None:
    caplog.set_level(logging.INFO)
    stock = tiny("bert", num_labels=2)
    path = folder(tmp_path / "a", stock, tokenizer)
    model = AdaptiveModel.from_pretrained(path, labels=["bad", "good"])
    assert torch.equal(model.stock.classifier.weight, stock.classifier.weight) and model.labels == ["bad", "good"]
    assert "taken for 2 labels (bad, good)" in caplog.text


def test_a_bare_encoder_is_not_talked_about(tokenizer: Any, tmp_path: Path, caplog: Any) -> None:
    caplog.set_level(logging.INFO, "paredown")
    path = folder(tmp_path / "a", tiny("bert").base_model, tokenizer)
    assert AdaptiveModel.from_pretrained(path, labels=["bad", "good"]).labels == ["bad", "good"]
    assert not [record for record in caplog.records if record.name.startswith("paredown")]


def test_weights_of_another_size_are_still_refused(tokenizer: Any, tmp_path: Path) -> None:
    path = folder(tmp_path / "a", tiny("bert"), tokenizer)
    facts = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(facts | {"intermediate_size": 40}))
    with pytest.raises(BadBundle, match="another size"):
        AdaptiveModel.from_pretrained(path, labels=["bad", "good"])


# Bundles


def test_a_bundle_for_other_labels_keeps_its_encoder(tokenizer: Any, tmp_path: Path, caplog: Any) -> None:
    model = adaptive("bert", tokenizer=tokenizer, head=None)
    model.plan = Plan(depth=model.grow_layers([0, 1]))
    with torch.no_grad():
        model.grown[0].output.dense.weight.add_(1.0)  # type: ignore[union-attr, operator]
    model.grow_heads("pooler")
    model.plan = model.plan.but(exit="entropy:0.9")
    model.save_pretrained(tmp_path / "bundle")
    other = AdaptiveModel.from_pretrained(tmp_path / "bundle", labels=["bad", "good"])
    assert other.labels == ["bad", "good"] and not other.heads and other.plan == Plan(depth=(4, 5))
    grown: Any = other.grown[0]
    assert torch.equal(grown.output.dense.weight, model.grown[0].output.dense.weight)  # type: ignore[union-attr]
    assert "a new classifier was made" in caplog.text and "its exits are not" in caplog.text
    assert AdaptiveModel.from_pretrained(tmp_path / "bundle", task="span").kind.name == "span"


def test_a_bundle_for_its_own_labels_keeps_everything(tokenizer: Any, tmp_path: Path, caplog: Any) -> None:
    model = adaptive("bert", tokenizer=tokenizer, plan="entropy:0.9")
    model.save_pretrained(tmp_path / "numbered")
    named = AdaptiveModel.from_pretrained(tmp_path / "numbered", labels=["bad", "good", "so so"])
    assert named.heads and named.plan == model.plan and named.labels == ["bad", "good", "so so"]
    named.save_pretrained(tmp_path / "named")
    for wanted in (["good", "bad"], ["so so", "bad", "good"]):  # rows need not have them all, nor in this order
        again = AdaptiveModel.from_pretrained(tmp_path / "named", labels=wanted, task="single_label")
        assert again.heads and again.labels == ["bad", "good", "so so"]
    assert not caplog.text


def test_a_bundle_s_folder_is_still_plain(model: AdaptiveModel, tmp_path: Path) -> None:
    model.save_pretrained(tmp_path)
    assert AutoModelForSequenceClassification.from_pretrained(tmp_path).config.num_labels == 3
