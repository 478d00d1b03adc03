"""Every head of the catalogue, for every kind of answer and every way of pooling."""

from __future__ import annotations

import json
import math
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import BertConfig, BertForSequenceClassification, BertForTokenClassification, BertTokenizer

from paredown import AdaptiveModel
from paredown.encoders.padded import PaddedTokens
from paredown.errors import BadSetting
from paredown.network import HeadShape
from paredown.registry import answers, heads
from paredown.runtime.packed_state import PackedTokens, Packing
from tests.placement import close

NAMES, POOLS = heads.names(), ("first", "mean", "max")
WIDTH, LABELS, LAYERS = 16, 3, 3
ONE_BY_ONE = [kind for kind in answers.names() if not (answers[kind].per_token or answers[kind].grouped)]
CASES = [(name, pool, kind) for name in NAMES for pool in POOLS for kind in ONE_BY_ONE]
CASES += [(name, "first", "token_label") for name in NAMES]


def bert(kind: str, tokenizer: Any = None) -> AdaptiveModel:
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=40,
        hidden_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=2,
        intermediate_size=20,
        max_position_embeddings=32,
        num_labels=LABELS,
        problem_type=answers.make(kind).problem_type,
        initializer_range=0.3,
    )
    stock = BertForTokenClassification if kind == "token_label" else BertForSequenceClassification
    return AdaptiveModel(stock(config), tokenizer=tokenizer, kind=answers.make(kind)).eval()


@lru_cache
def adopted(kind: str) -> AdaptiveModel:
    """One model for many tests, in 64 bits so that a leak cannot pass for rounding."""
    return bert(kind).double()


def grown(name: str, pool: str, kind: str) -> AdaptiveModel:
    model = adopted(kind)
    model.drop_heads()
    model.grow_heads(heads.make(name, pool=pool))
    return stirred(model)


def built(name: str, pool: str = "first", kind: str = "single_label", spread: float = 0.3) -> Any:
    """One head without a model."""
    torch.manual_seed(0)
    facts = shape(width=WIDTH, labels=LABELS, per_token=kind == "token_label", pooler=nn.Linear(WIDTH, WIDTH))
    return stirred(heads.make(name, pool=pool).build(facts)[0], spread).eval()


def stirred(module: Any, spread: float = 0.3) -> Any:
    """With larger weights: the initial ones are so small that a mistake could hide."""
    with torch.no_grad():
        for parameter in getattr(module, "heads", module).parameters():
            parameter.normal_(std=spread)
    return module


def states(rows: int = 3, tokens: int = 7) -> tuple[Tensor, Tensor]:
    hidden = torch.randn(rows, tokens, WIDTH, generator=torch.Generator().manual_seed(1))
    lengths = torch.tensor([tokens, 4, 1])[:rows]
    return hidden, torch.arange(tokens) < lengths.unsqueeze(1)


def shape(**changes: Any) -> HeadShape:
    facts: dict[str, Any] = {"width": 768, "labels": 2, "layers": (0,), "per_token": False, "dropout": 0.1}
    return HeadShape(**{**facts, "pooler": None, **changes})


@pytest.mark.parametrize(("name", "pool", "kind"), CASES)
def test_shapes(name: str, pool: str, kind: str) -> None:
    head = built(name, pool, kind)
    hidden, mask = states()
    items = (3, 7) if kind == "token_label" else (3,)
    assert head.feature(PaddedTokens(hidden, mask)).shape == (*items, head.size)
    assert head(PaddedTokens(hidden, mask)).shape == (*items, LABELS)
    assert torch.equal(head(PaddedTokens(hidden, mask)), head.score(head.feature(PaddedTokens(hidden, mask))))


@pytest.mark.parametrize("garbage", [1e4, float("inf"), float("nan")])
@pytest.mark.parametrize(("name", "pool", "kind"), CASES)
def test_padding_and_neighbours_change_nothing(name: str, pool: str, kind: str, garbage: float) -> None:
    head = built(name, pool, kind).double()
    hidden, mask = states()
    hidden = hidden.double().masked_fill(~mask.unsqueeze(-1), garbage)
    together = head(PaddedTokens(hidden, mask))
    for row, length in enumerate(mask.sum(1).tolist()):
        alone = head(PaddedTokens(hidden[row : row + 1, :length], mask[row : row + 1, :length]))
        seen = together[row : row + 1, :length] if kind == "token_label" else together[row : row + 1]
        assert (alone - seen).abs().max() <= 1e-12


@pytest.mark.parametrize(("name", "pool", "kind"), CASES)
def test_a_row_that_went_wrong_harms_only_itself(name: str, pool: str, kind: str) -> None:
    """Packed, all rows lie in one tensor."""
    head = built(name, pool, kind).double()
    lengths = torch.tensor([4, 7, 1, 3])
    hidden = torch.randn(15, WIDTH, dtype=torch.double)
    wrong = hidden.clone()
    wrong[4:7] = torch.tensor([math.nan, math.inf, -math.inf], dtype=torch.double).unsqueeze(1)
    fine, found = (head(PackedTokens(states, Packing(lengths, 15, 7), 7)) for states in (hidden, wrong))
    others = [0, 2, 3]
    assert (found[others] - fine[others]).abs().max() <= 1e-12
    assert not found[1].isfinite().all()


@pytest.mark.parametrize(("name", "pool", "kind"), CASES)
def test_answers_do_not_depend_on_the_batch(name: str, pool: str, kind: str) -> None:
    model = grown(name, pool, kind)
    ids = torch.randint(5, 40, (3, 9), generator=torch.Generator().manual_seed(2))
    mask = (torch.arange(9) < torch.tensor([[9], [6], [3]])).long()
    with torch.no_grad():
        together = model.trace({"input_ids": ids, "attention_mask": mask}).logits
        for row, length in enumerate(mask.sum(1).tolist()):
            alone = {"input_ids": ids[row : row + 1, :length], "attention_mask": mask[row : row + 1, :length]}
            for layer, logits in model.trace(alone).logits.items():
                seen = together[layer][row : row + 1]
                assert (logits - (seen[:, :length] if kind == "token_label" else seen)).abs().max() <= 1e-12


@pytest.mark.parametrize("name", NAMES)
def test_dropout_only_in_training(name: str) -> None:
    head = built(name)
    hidden, mask = states()
    assert torch.equal(head(PaddedTokens(hidden, mask)), head(PaddedTokens(hidden, mask)))
    head.train()
    assert not torch.equal(head(PaddedTokens(hidden, mask)), head(PaddedTokens(hidden, mask)))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("name", "pool"), [(name, pool) for name in NAMES for pool in POOLS])
def test_half_precision_stays_near(name: str, pool: str, dtype: torch.dtype) -> None:
    head = built(name, pool, spread=0.1)
    hidden, mask = states()
    expected = head(PaddedTokens(hidden, mask))
    assert torch.allclose(head.to(dtype)(PaddedTokens(hidden.to(dtype), mask)).float(), expected, atol=0.05)


def test_the_mean_of_a_long_text_neither_overflows_nor_drifts() -> None:
    hidden = torch.full((1, 512, 4), 500.0, dtype=torch.float16)
    assert torch.equal(PaddedTokens(hidden, torch.ones(1, 512, dtype=torch.bool)).pooled("mean"), hidden[:, 0])
    double = torch.rand(2, 5, 4, dtype=torch.float64)
    assert PaddedTokens(double, torch.ones(2, 5, dtype=torch.bool)).pooled("mean").dtype == torch.float64


@pytest.mark.parametrize(("name", "pool"), [(name, pool) for name in NAMES for pool in POOLS])
def test_json_and_text_round_trip(name: str, pool: str) -> None:
    spec = heads.make(name, pool=pool)
    assert heads.from_json(json.loads(json.dumps(heads.to_json(spec)))) == spec
    assert heads.parse(f"{name}:{pool}") == spec


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("pool", ["mean", "max"])
def test_nothing_is_pooled_where_every_token_is_answered(name: str, pool: str) -> None:
    with pytest.raises(BadSetting, match="nothing to pool"):
        bert("token_label").grow_heads(heads.make(name, pool=pool))


@pytest.mark.parametrize("name", NAMES)
def test_unknown_pool_is_refused(name: str) -> None:
    with pytest.raises(BadSetting, match="first"):
        heads.make(name, pool="last")


def little_tokenizer(folder: Path) -> BertTokenizer:
    words = [f"word{index}" for index in range(35)]
    (folder / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]))
    return BertTokenizer.from_pretrained(folder)


@pytest.mark.parametrize("kind", ["single_label", "token_label"])
@pytest.mark.parametrize("name", NAMES)
def test_a_bundle_brings_the_same_heads_back(name: str, kind: str, tmp_path: Path) -> None:
    model = bert(kind, little_tokenizer(tmp_path))
    model.grow_heads(name, [0, 2])
    stirred(model)
    model.save_pretrained(tmp_path / "bundle")
    again = AdaptiveModel.from_pretrained(tmp_path / "bundle")
    assert (again.head, again.head_layers) == (model.head, (0, 2))
    before, after = dict(model.named_parameters()), dict(again.named_parameters())
    assert before.keys() == after.keys()
    assert all(torch.equal(before[key], after[key]) for key in before)
    hidden, mask = states()
    for layer, head in model.heads.items():
        assert close(head(PaddedTokens(hidden, mask)), again.heads[layer](PaddedTokens(hidden, mask)))


@pytest.mark.parametrize("name", NAMES)
def test_heads_on_chosen_layers(name: str) -> None:
    model = bert("single_label")
    model.grow_heads(name, [2, 0])
    assert model.head_layers == (0, 2)
    batch = {"input_ids": torch.randint(5, 40, (2, 6)), "attention_mask": torch.ones(2, 6, dtype=torch.long)}
    assert list(model.trace(batch).logits) == [0, 2]
    with pytest.raises(BadSetting, match="layers 0 to 2"):
        bert("single_label").grow_heads(name, [3])


@pytest.mark.parametrize("name", NAMES)
def test_growing_again(name: str) -> None:
    model = bert("single_label")
    model.grow_heads(name)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    parameters = [id(parameter) for parameter in model.parameters()]
    model.grow_heads(name)
    assert parameters == [id(parameter) for parameter in model.parameters()]
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    another = next(other for other in NAMES if other != name)
    for other, layers in ((heads.make(name, pool="mean"), None), (name, [1]), (another, None)):
        with pytest.raises(BadSetting, match="already has"):
            model.grow_heads(other, layers)


def test_pooler_starts_where_the_encoders_pooler_stands_and_goes_its_own_way() -> None:
    model = bert("single_label")
    model.grow_heads("pooler")
    ours, theirs = model.heads["0"].dense, model.stock.bert.pooler.dense
    assert torch.equal(ours.weight, theirs.weight) and torch.equal(ours.bias, theirs.bias)
    assert ours.weight.data_ptr() != theirs.weight.data_ptr()


def test_shared_pooler_is_the_encoders_own_and_saved_once(tmp_path: Path) -> None:
    model = bert("single_label", little_tokenizer(tmp_path))
    model.grow_heads("shared_pooler")
    assert all(head.dense is model.stock.bert.pooler.dense for head in model.heads.values())
    model.save_pretrained(tmp_path / "bundle")
    assert {key.split(".")[2] for key in load_file(tmp_path / "bundle" / "paredown.safetensors")} == {"out"}
    again = AdaptiveModel.from_pretrained(tmp_path / "bundle")
    assert all(head.dense is again.stock.bert.pooler.dense for head in again.heads.values())


def test_shared_pooler_without_one_to_share_is_saved_once(tmp_path: Path) -> None:
    model = bert("token_label", little_tokenizer(tmp_path))
    model.grow_heads("shared_pooler")
    assert model.heads["0"].dense is model.heads["1"].dense
    model.save_pretrained(tmp_path / "bundle")
    assert sum("dense.weight" in key for key in load_file(tmp_path / "bundle" / "paredown.safetensors")) == 1
    again = AdaptiveModel.from_pretrained(tmp_path / "bundle")
    assert again.heads["0"].dense is again.heads["1"].dense
    assert torch.equal(again.heads["1"].dense.weight, model.heads["1"].dense.weight)


# Sizes as published

PUBLISHED = [("attention", 2, 181_250), ("attention", 4, 181_508), ("pooler", 2, 592_130), ("linear", 2, 1_538)]


@pytest.mark.parametrize(("name", "labels", "expected"), PUBLISHED)
def test_parameters_at_bert_base(name: str, labels: int, expected: int) -> None:
    head = heads.make(name).build(shape(labels=labels))[0]
    assert sum(parameter.numel() for parameter in head.parameters()) == expected


def test_where_the_first_token_answers_it_alone_asks() -> None:
    head = heads.make("attention").build(shape())[0].eval()
    hidden, mask = torch.randn(3, 7, 768), torch.arange(7) < torch.tensor([[7], [4], [1]])
    asked: list[int] = []
    head.attention.query.register_forward_hook(lambda module, inputs, output: asked.append(inputs[0].shape[1]))
    feature = head.feature(PaddedTokens(hidden, mask))
    everybody = head.attention(PaddedTokens(head.dense_in(hidden).tanh(), mask), only_first=False).each()
    assert asked == [1, 7]
    torch.testing.assert_close(feature, head.dense_out(everybody[:, 0]).tanh())


@pytest.mark.parametrize("settings", [{"size": 0}, {"attention_heads": 3}, {"attention_heads": 0}, {"size": -2}])
def test_attention_heads_must_share_the_width(settings: dict[str, int]) -> None:
    with pytest.raises(BadSetting, match="cannot share"):
        heads.make("attention", **settings)


def test_a_single_query_a_row_finds_the_same_in_training_and_in_use() -> None:
    """In use it passes the maps of keys and values in the place of all tokens."""
    head = built("attention").double()
    hidden, mask = torch.randn(3, 5, WIDTH).double(), torch.arange(5) < torch.tensor([[5], [2], [4]])
    in_use = head.eval().feature(PaddedTokens(hidden, mask))
    head.attention.dropout = 0.0
    assert close(head.train().feature(PaddedTokens(hidden, mask)), in_use)
