"""The packed runtime answers as the reference does: every family, kind, plan and reducer, whoever shares a pool."""

from __future__ import annotations

import copy
import pickle
import random
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from paredown.answers._rows import Encoded, token_rows
from paredown.errors import BadSetting
from paredown.model import AdaptiveModel
from paredown.plan import Plan
from paredown.runtime import packed
from paredown.runtime.blocks import BLOCKS, PostNorm, PreNorm
from paredown.runtime.packed import Packed
from paredown.runtime.packed_state import PackedState, Packing
from paredown.runtime.pools import Pools
from paredown.runtime.runner import Runner
from paredown.state import Answer
from tests.families import adaptive, batch

KINDS = ("single_label", "multi_label", "regression", "token_label", "span", "choice")
LENGTHS = [7, 3, 12, 12, 5, 9]
PLANS = ("none", "entropy:0.5", "patience:2", "learned:0.4")
REDUCERS = (None, "attention:0.9", "fixed_share:0.5,score=attention", "selector:0.5", "fixed_share:0.4")
MARGIN = 1e-5

pytestmark = pytest.mark.usefixtures("library")


def asked(kind: str, lengths: list[int] = LENGTHS, seed: int = 0) -> dict[str, Tensor]:
    inputs = batch(99, lengths, seed=seed)
    if kind == "choice":
        inputs["group"] = torch.arange(len(lengths)) // 3
    return inputs


def plan_of(kind: str, exit: str, reduce: str | None) -> Plan:
    if kind == "regression" and exit != "none":
        exit = "patience:1,tolerance=0.5"
    return Plan(exit=None if exit == "none" else exit, reduce=reduce)


def made(family: str, kind: str, reduce: str | None = None, **changes: Any) -> AdaptiveModel:
    model = adaptive(family, kind, **changes)
    if reduce is not None and "attention" not in reduce:
        model.grow_selectors((1, 2), 8)
        with torch.no_grad():
            for parameter in model.selectors.parameters():
                parameter.normal_(generator=torch.Generator().manual_seed(len(parameter)))
    return model.eval()


def same(model: AdaptiveModel, inputs: dict[str, Tensor], wanted: Answer, found: Answer) -> None:
    real = inputs["attention_mask"].bool() if model.kind.name == "token_label" else ...
    assert torch.equal(wanted.layers, found.layers) and torch.equal(wanted.tokens, found.tokens)
    assert (wanted.logits - found.logits)[real].abs().max() <= MARGIN * max(1.0, wanted.logits[real].abs().max().item())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("family", sorted(BLOCKS))
def test_answers_as_the_reference(family: str, kind: str) -> None:
    for number, reduce in enumerate(REDUCERS):
        model, inputs = made(family, kind, reduce), asked(kind)
        plan = plan_of(kind, PLANS[number % len(PLANS)], reduce)
        wanted = model.use("reference").answer(inputs, plan)
        assert isinstance(model.use("packed").embed(inputs, backend=model.backend), PackedState)
        same(model, inputs, wanted, model.answer(inputs, plan))


@pytest.mark.parametrize("kind", ["single_label", "choice"])
@pytest.mark.parametrize("family", sorted(BLOCKS))
def test_rows_leave_by_their_first_token(family: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others pass the rest of a layer when they are not alone, and only of rows that stay."""
    passed: list[int] = []
    for block in (PostNorm, PreNorm):
        after = block.after

        def noted(self: Any, found: Tensor, hidden: Tensor, after: Any = after) -> Tensor:
            passed.append(len(hidden))
            return after(self, found, hidden)

        monkeypatch.setattr(block, "after", noted)
    model, inputs, plan = made(family, kind), asked(kind), Plan(exit="entropy:0.5")
    wanted = model.use("reference").answer(inputs, plan)
    model.use("packed")
    for saves in (False, True):
        monkeypatch.setattr(packed, "_saves", lambda state, leaving, saves=saves: saves)
        passed.clear()
        same(model, inputs, wanted, model.answer(inputs, plan))
        layers = wanted.layers if kind == "single_label" else wanted.layers[inputs["group"]]
        firsts = int(layers.sum()) if saves else 0
        others = sum(length * (int(run) - saves) for length, run in zip(LENGTHS, layers, strict=True))
        assert sum(passed) == firsts + others


@pytest.mark.parametrize(
    "rows, tokens, last, saves", [(8, 1024, False, True), (1, 25, False, False), (1, 25, True, True)]
)
def test_first_tokens_go_ahead_where_that_saves_time(rows: int, tokens: int, last: bool, saves: bool) -> None:
    lengths = torch.full((rows,), tokens // rows)
    packing, hidden = Packing(lengths, tokens, tokens // rows), torch.zeros(tokens, 1)
    state = PackedState(hidden=hidden, row=lengths, position=lengths, packing=packing, columns=packing.longest)
    assert packed._saves(state, 1.0 if last else packed.LEAVING) == saves


@pytest.mark.parametrize("head", ["linear", "attention", "linear:mean", "linear:max", "attention:pool=mean"])
@pytest.mark.parametrize("kind", ["single_label", "token_label"])
def test_every_head_reads_packed_tokens(head: str, kind: str) -> None:
    if kind == "token_label" and "m" in head.partition(":")[2]:
        return  # there is nothing to pool
    model, inputs, plan = made("bert", kind, head=head), asked(kind), Plan(exit="entropy:0.6")
    wanted = model.use("reference").answer(inputs, plan)
    same(model, inputs, wanted, model.use("packed").answer(inputs, plan))


@given(
    lengths=st.lists(st.integers(1, 24), min_size=2, max_size=9),
    cut=st.integers(1, 8),
    full=st.sampled_from([1, 16, 40, 1000]),
    threshold=st.floats(0.05, 1.0),
    reduce=st.sampled_from([None, "fixed_share:0.6,score=attention"]),
    ahead=st.sampled_from([0.0, 0.5, 1.0]),
    order=st.randoms(use_true_random=False),
)
def test_who_shares_a_pool_makes_no_difference(
    lengths: list[int], cut: int, full: int, threshold: float, reduce: str | None, ahead: float, order: random.Random
) -> None:
    """Rows arrive in batches of any size and order, with bounds of their own, wait for others or not, and leave by
    first tokens that went ahead, or with all."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packed, "_saves", lambda state, leaving: order.random() < ahead)
        _share_a_pool(lengths, cut, full, threshold, reduce, order)


def _share_a_pool(
    lengths: list[int], cut: int, full: int, threshold: float, reduce: str | None, order: random.Random
) -> None:
    model = adaptive("bert").use("packed")
    plans = [
        Plan(exit=f"entropy:{threshold if row % 2 else threshold / 2}", reduce=reduce) for row in range(len(lengths))
    ]
    inputs = batch(99, lengths)
    rows = list(range(len(lengths)))
    order.shuffle(rows)
    pools = Pools(Runner(model, model.route(plans[0])), full)
    for start in range(0, len(rows), cut):
        some = rows[start : start + cut]
        width = max(lengths[row] for row in some)
        part = {name: value[some, :width] for name, value in inputs.items()}
        bounds = torch.tensor([model.route(plans[row]).bounds for row in some])
        with torch.inference_mode():
            pools.submit(pools.runner.embed(part, bounds).numbered(torch.tensor(some)))
            while pools.advance(hurry=order.random() < 0.3):
                pass
    with torch.inference_mode():
        while pools.advance(hurry=True):
            pass
    found = pools.drain()
    assert found is not None
    units, logits, layers, tokens = found
    assert sorted(units.tolist()) == list(range(len(lengths)))
    model.use("reference")
    for at, row in enumerate(units.tolist()):
        alone = {name: value[row : row + 1, : lengths[row]] for name, value in inputs.items()}
        wanted = model.answer(alone, plans[row])
        assert (wanted.logits[0] - logits[at]).abs().max() <= 1e-4
        assert (int(wanted.layers), int(wanted.tokens)) == (int(layers[at]), int(tokens[at]))


def test_a_pool_that_is_due_runs_before_it_is_full() -> None:
    model = adaptive("bert").use("packed")
    pools = Pools(Runner(model, model.route(Plan())), full=1000)
    with torch.inference_mode():
        pools.submit(pools.runner.embed(batch(99, [4, 5])), due=7.0)
        assert not pools.advance(now=6.9) and pools.advance(now=7.0)
    assert pools.drain() is not None and pools.drain() is None


def test_rows_with_holes_run_as_they_came() -> None:
    """A mask that hides tokens elsewhere than at the end is the reference's business."""
    model, inputs = adaptive("bert"), batch(99, [9, 6])
    inputs["attention_mask"][0, 3] = 0
    wanted = model.use("reference").answer(inputs)
    assert torch.equal(model.use("packed").answer(inputs).logits, wanted.logits)


def test_layers_follow_the_weights() -> None:
    model, inputs = adaptive("bert").use("packed"), batch(99, [9, 6])
    before = model.answer(inputs).logits
    with torch.no_grad():
        model.walk.layers[2].attention.self.key.weight.mul_(1.5)  # type: ignore[union-attr]
    after = model.answer(inputs).logits
    assert not torch.equal(before, after)
    assert torch.allclose(after, model.use("reference").answer(inputs).logits, atol=MARGIN)
    assert model.use("packed").double().answer(inputs).logits.dtype == torch.float64


@pytest.mark.parametrize("fused", [False, True])
def test_layers_follow_an_optimizer(fused: bool) -> None:
    """A fused one does not count its changes."""
    model, inputs = adaptive("bert").use("packed"), batch(99, [9, 6])
    before = model.answer(inputs).logits
    optimizer = torch.optim.AdamW(model.walk.stock.parameters(), lr=0.01, fused=fused)
    for parameter in model.walk.stock.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    after = model.answer(inputs).logits
    assert (after - before).abs().max() > 0.01
    assert torch.allclose(after, model.use("reference").answer(inputs).logits, atol=1e-4)


def test_copies_answer_alike() -> None:
    model, inputs = adaptive("bert").use("packed"), batch(99, [9, 6])
    wanted = model.answer(inputs, Plan(exit="entropy:0.5"))
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        found = twin.answer(inputs, Plan(exit="entropy:0.5"))  # weights may lie elsewhere, which moves the last bits
        assert torch.allclose(found.logits, wanted.logits, atol=MARGIN) and torch.equal(found.layers, wanted.layers)
        assert isinstance(twin.backend, Packed) and twin.backend.walk is twin.walk


def test_families_without_fast_layers_say_so() -> None:
    model = adaptive("albert")
    with pytest.raises(BadSetting, match="albert cannot run packed: fast layers are known for bert"):
        model.use("packed")
    assert model.use("auto").executor.name == "reference" and "albert" in model.executor.reason
    assert adaptive("bert").use("auto").executor.name == "packed"


def test_a_layer_that_is_not_the_usual_one_is_refused() -> None:
    """What the fast layers do not know of, they would leave out."""
    model = adaptive("bert")
    layer: Any = model.walk.layers[1]
    layer.register_forward_hook(lambda module, inputs, output: output * 2)
    with pytest.raises(BadSetting, match="otherwise than those of a usual bert"):
        model.use("packed")


def test_token_ids_are_those_of_the_tokenizer(tokenizer: Any) -> None:
    """Ids are taken from the tokenizer's core, without what it builds around them."""
    texts = ["a film", "", "good " * 40, "the [SEP] of it all"]
    for pairs in (None, ["b", "c d " * 30, "", "e"]):
        wanted = tokenizer(texts, pairs, truncation=True, max_length=16)
        found = token_rows(tokenizer, texts, pairs, 16)
        assert [one["input_ids"] for one in found] == wanted["input_ids"]
        assert [one.get("token_type_ids") for one in found] == wanted.get("token_type_ids", [None] * len(texts))


def test_a_backend_put_there_by_hand_stays() -> None:
    model = adaptive("bert")
    model.backend = packed = Packed(model.walk)
    model.answer(batch(99, [4]))
    assert model.backend is packed


@pytest.mark.parametrize("family", ["bert", "roberta", "mpnet"])
def test_a_batch_that_never_was_padded(family: str) -> None:
    """Rows of token ids and their padded batch are the same to the backend, a padding id among the ids included."""
    model, inputs = adaptive(family).use("packed"), batch(99, [5, 2, 7])
    inputs["input_ids"][0, 2] = 1  # what RoBERTa pads with
    kept = zip(inputs["input_ids"], inputs["attention_mask"], strict=True)
    rows = [Encoded({"input_ids": ids[mask.bool()].tolist()}) for ids, mask in kept]
    wanted, found = model.backend.packed(inputs), model.backend.batch(rows)  # type: ignore[attr-defined]
    assert all(torch.equal(wanted[name], value) for name, value in found.items())
