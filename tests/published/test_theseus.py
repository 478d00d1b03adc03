"""BERT-of-Theseus checkpoints answer as its evaluation does: the successors alone, converted or not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import BertConfig, BertForSequenceClassification

from paredown import AdaptiveModel, Plan
from paredown.errors import BadBundle, BadSetting
from paredown.published import load_theseus
from paredown.registry import methods

LAYERS, SUCCESSORS = 4, 2
SIZES: dict[str, Any] = {
    "vocab_size": 45,
    "hidden_size": 16,
    "num_attention_heads": 4,
    "intermediate_size": 20,
    "max_position_embeddings": 30,
    "initializer_range": 0.3,
}
State = dict[str, Tensor]


def bert(layers: int, seed: int, labels: int = 3) -> BertForSequenceClassification:
    torch.manual_seed(seed)
    return BertForSequenceClassification(BertConfig(**SIZES, num_hidden_layers=layers, num_labels=labels)).eval()


def state(labels: int = 3) -> State:
    """The names of bert_of_theseus/modeling_bert_of_theseus.py: both stacks, all else once."""
    found = dict(bert(LAYERS, 0, labels).state_dict())
    for name, value in bert(SUCCESSORS, 1, labels).state_dict().items():
        if ".encoder.layer." in name:
            found[name.replace(".layer.", ".scc_layer.")] = value
    return found | {"bert.embeddings.position_ids": torch.arange(30).unsqueeze(0)}


def converted() -> State:
    """As convert_to_hf_ckpt.py writes: successors in the place of the layers."""
    kept = {name: value for name, value in state().items() if ".encoder.layer." not in name}
    return {name.replace(".scc_layer.", ".layer."): value for name, value in kept.items()}


def folder(path: Path, state: State, layers: int = LAYERS, **more: Any) -> Path:
    """As transformers 2 saved it: no model type, the tokenizer beside it."""
    path.mkdir()
    facts = {**SIZES, "num_hidden_layers": layers, "layer_norm_eps": 1e-12, "hidden_act": "gelu"}
    facts |= {"num_labels": 3, "output_hidden_states": True, "pruned_heads": {}, "torchscript": False}
    (path / "config.json").write_text(json.dumps(facts | more))
    torch.save(state, path / "pytorch_model.bin", _use_new_zipfile_serialization=False)
    words = [f"word{index}" for index in range(40)]
    (path / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]))
    return path


def batch() -> State:
    ids = torch.randint(5, 45, (2, 9), generator=torch.Generator().manual_seed(1))
    mask = (torch.arange(9) < torch.tensor([[9], [6]])).long()
    return {"input_ids": ids.masked_fill(mask == 0, 0), "attention_mask": mask}


def plain_answer(state: State, layers: int) -> Tensor:
    model = bert(layers, 7)
    wanted = {name: value for name, value in state.items() if not name.endswith("position_ids")}
    model.load_state_dict({name: value for name, value in wanted.items() if ".scc_layer." not in name})
    with torch.no_grad():
        return model(**batch()).logits


def test_both_stacks(tmp_path: Path) -> None:
    model = load_theseus(folder(tmp_path / "a", state()), labels=["a", "b", "c"])
    assert model.plan == Plan(depth=(4, 5)) and model.labels == ["a", "b", "c"] and len(model.grown) == SUCCESSORS
    successors, predecessor = plain_answer(converted(), SUCCESSORS), plain_answer(state(), LAYERS)
    assert torch.allclose(model.answer(batch()).logits, successors, atol=1e-5)
    assert torch.allclose(model.answer(batch(), Plan()).logits, predecessor, atol=1e-5)
    model.save_pretrained(tmp_path / "bundle")
    again = AdaptiveModel.from_pretrained(tmp_path / "bundle")
    assert again.plan == model.plan and torch.allclose(again.answer(batch()).logits, successors, atol=1e-5)
    theseus = methods.make("theseus")  # its training can go on
    theseus.check(again)
    theseus.grow(again)


def test_converted_successors(tmp_path: Path) -> None:
    model = load_theseus(folder(tmp_path / "a", converted(), SUCCESSORS, id2label={"0": "x", "1": "y", "2": "z"}))
    assert model.plan == Plan() and model.labels == ["x", "y", "z"] and model.layers == SUCCESSORS
    assert torch.allclose(model.answer(batch()).logits, plain_answer(converted(), SUCCESSORS), atol=1e-5)


def test_general_purpose_successors_for_another_task(tmp_path: Path, caplog: Any) -> None:
    """Trained on MNLI, then fine-tuned on a task of two labels: from the bundle, and from what is exported of it."""
    model = load_theseus(folder(tmp_path / "a", state()), labels=["contradiction", "entailment", "neutral"])
    model.save_pretrained(tmp_path / "bundle")
    tuned = AdaptiveModel.from_pretrained(tmp_path / "bundle", labels=["bad", "good"])
    assert tuned.plan == Plan(depth=(4, 5)) and tuned.answer(batch()).logits.shape == (2, 2)
    assert "a new classifier was made" in caplog.text
    methods.make("finetune").check(tuned)


def test_one_label_is_a_number(tmp_path: Path) -> None:
    assert load_theseus(folder(tmp_path / "a", state(labels=1))).kind.name == "regression"


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (
            lambda s: s.pop("bert.encoder.scc_layer.1.output.dense.bias"),
            r"missing: bert\.encoder\.scc_layer\.1\.output",
        ),
        (lambda s: s.pop("bert.encoder.layer.0.output.dense.bias"), r"missing: bert\.encoder\.layer\.0\.output"),
        (lambda s: s.pop("classifier.weight"), r"missing: classifier\.weight"),
        (lambda s: s.update({"lte.weight": torch.ones(1)}), r"unknown: lte\.weight"),
        (lambda s: s.update({f"bert.encoder.scc_layer.{n}.a": torch.ones(1) for n in range(2, 9)}), "never more"),
    ],
)
def test_what_does_not_fit_is_named(change: Any, complaint: str, tmp_path: Path) -> None:
    change(wrong := state())
    with pytest.raises(BadBundle, match=complaint):
        load_theseus(folder(tmp_path / "a", wrong))


def test_labels_that_do_not_fit(tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match="3 labels"):
        load_theseus(folder(tmp_path / "a", state()), labels=["a"])
