"""UER's pre-training files are encoders to train from; what they answer is checked by test_fastbert.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import BertConfig

from paredown import AdaptiveModel
from paredown.errors import BadBundle, BadSetting
from paredown.published import load_fastbert
from tests.published.test_fastbert import HEADS, LAYERS, WIDTH, state, vocabulary


def pretrained(newer: bool = False) -> dict[str, Tensor]:
    """As UER saves after pre-training: an encoder and its targets, with the names of version 1 or 3."""
    kept = {name.removeprefix("kernel."): value for name, value in state().items()}
    kept = {name: value for name, value in kept.items() if not name.startswith(("classifiers.", "target."))}
    follows = "target.sp.linear_1" if newer else "target.nsp_linear_1"
    kept |= {f"{follows}.weight": torch.randn(WIDTH, WIDTH), f"{follows}.bias": torch.randn(WIDTH)}
    kept["target.mlm_linear_1.weight"] = torch.randn(WIDTH, WIDTH)
    for old, now in {"word": "word", "position": "pos", "segment": "seg"}.items() if newer else ():
        kept[f"embedding.{now}.embedding.weight"] = kept.pop(f"embedding.{old}_embedding.weight")
    return kept


@pytest.fixture
def beside(tmp_path: Path) -> Path:
    """A folder with a vocabulary, and a config that tells the number of attention heads."""
    folder = vocabulary(tmp_path / "words")
    BertConfig(hidden_size=WIDTH, num_attention_heads=HEADS).save_pretrained(folder)
    return folder


def saved(path: Path, tensors: dict[str, Tensor]) -> Path:
    torch.save(tensors, path)
    return path


@pytest.mark.parametrize("newer", [False, True])
def test_the_encoder_is_fastberts_own(newer: bool, beside: Path, tmp_path: Path) -> None:
    tensors = pretrained(newer)
    path = saved(tmp_path / "google_zh.bin", tensors)
    model = AdaptiveModel.from_pretrained(path, tokenizer=beside, labels=["bad", "good"])
    same = load_fastbert(saved(tmp_path / "fast.bin", state()), attention_heads=HEADS).stock.bert
    for name, value in same.named_parameters():
        if not name.startswith("pooler."):
            assert torch.equal(model.stock.bert.get_parameter(name), value), name
    follows = "target.sp.linear_1" if newer else "target.nsp_linear_1"
    assert torch.equal(model.stock.bert.pooler.dense.weight, tensors[f"{follows}.weight"])
    assert model.labels == ["bad", "good"] and model.layers == LAYERS and not model.heads
    assert model.tokenizer("word0")["input_ids"][-1] == model.tokenizer.sep_token_id
    assert model.predict(["word0 word1"])[0].label in model.labels


def test_the_vocabulary_beside_it_or_a_vocabulary_file(beside: Path, tmp_path: Path) -> None:
    path = saved(beside / "google_zh.bin", pretrained())
    assert AdaptiveModel.from_pretrained(path).predict(["word0"])
    model = AdaptiveModel.from_pretrained(path, tokenizer=beside / "vocab.txt", task="token_label", labels=["O", "B"])
    assert model.tokenizer("WORD0")["input_ids"] == [2, 5, 3] and model.kind.name == "token_label"


def test_exits_of_fastbert_are_left_out_aloud(beside: Path, tmp_path: Path, caplog: Any) -> None:
    model = AdaptiveModel.from_pretrained(saved(tmp_path / "fast.bin", state()), tokenizer=beside)
    assert not model.heads and "`paredown import` keeps them" in caplog.text


def test_what_is_missing_is_named(beside: Path, tmp_path: Path) -> None:
    path = saved(tmp_path / "a.bin", tensors := pretrained())
    BertConfig(hidden_size=WIDTH, num_attention_heads=HEADS).save_pretrained(tmp_path)
    with pytest.raises(BadSetting, match="stores no vocabulary"):
        AdaptiveModel.from_pretrained(path)
    (short := tmp_path / "short.txt").write_text("\n".join(f"word{index}" for index in range(9999)))
    with pytest.raises(BadSetting, match="has embeddings of"):
        AdaptiveModel.from_pretrained(path, tokenizer=short)
    del tensors["encoder.transformer.1.feed_forward.linear_2.bias"]
    with pytest.raises(BadBundle, match=r"missing: encoder\.transformer\.1\.feed_forward\.linear_2\.bias"):
        AdaptiveModel.from_pretrained(saved(path, tensors), tokenizer=beside)
    with pytest.raises(BadBundle, match="unknown: stranger"):
        AdaptiveModel.from_pretrained(saved(path, pretrained() | {"stranger": torch.ones(1)}), tokenizer=beside)
    with pytest.raises(BadBundle, match="no file to train from"):
        AdaptiveModel.from_pretrained(saved(path, {"a": torch.ones(1)}), tokenizer=beside)
