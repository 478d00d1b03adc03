"""The int8 runtime answers nearly as the packed one does, and as exactly whoever shares its batch."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers.activations import GELUActivation

from paredown.errors import BadSetting
from paredown.model import AdaptiveModel
from paredown.plan import Plan
from paredown.ranges import Inputs, Range, Ranges
from paredown.runtime import half_attention, int8_choice
from paredown.runtime.blocks import BLOCKS
from paredown.runtime.half_attention import LONG, WAYS, HalfAttention
from paredown.runtime.int8 import Int8
from paredown.runtime.int8_kernels import KERNELS, UNIT, Weights, by_token, by_token_above
from paredown.runtime.pools import Pools
from paredown.runtime.runner import Runner
from paredown.runtime.slots import HIDDEN
from paredown.runtime.watching import ranges_in
from paredown.system.measured import measure
from tests.families import adaptive, batch

USABLE = [name for name, kernel in KERNELS.items() if kernel.objection() is None]
LENGTHS = [7, 3, 12, 12, 5, 9]
NEAR = 0.03  # how far logits of a tiny model may be from those in 32 bits, of the largest
SAME = 1e-5

pytestmark = pytest.mark.skipif(not USABLE, reason="no int8 kernel on this machine")


def made(family: str = "bert", **changes: Any) -> AdaptiveModel:
    return adaptive(family, "single_label", **changes).eval()


def eight(model: AdaptiveModel, calibrated: bool, kernel: str = USABLE[0] if USABLE else "") -> Int8:
    if calibrated:
        model.ranges = ranges_in(model.walk, [batch(99, [11, 6, 14], seed=1), batch(99, [4, 12], seed=2)])
    backend: Any = model.use(f"int8:{kernel}").backend
    return backend


def alone(inputs: dict[str, Tensor], row: int) -> dict[str, Tensor]:
    return {name: value[row : row + 1, : LENGTHS[row]] for name, value in inputs.items()}


@pytest.mark.parametrize("calibrated", [False, True])
@pytest.mark.parametrize("family", sorted(BLOCKS))
def test_answers_are_near_and_do_not_depend_on_neighbours(family: str, calibrated: bool) -> None:
    model, inputs = made(family), batch(99, LENGTHS)
    wanted = model.use("packed").answer(inputs, Plan()).logits
    eight(model, calibrated)
    found = model.answer(inputs, Plan()).logits
    assert not torch.equal(found, wanted)
    assert (found - wanted).abs().max() <= NEAR * max(1.0, wanted.abs().max().item())
    for row in range(len(LENGTHS)):
        assert (model.answer(alone(inputs, row), Plan()).logits - found[row]).abs().max() <= SAME


@pytest.mark.parametrize("kernel", USABLE)
def test_rows_of_several_batches_share_pools(kernel: str) -> None:
    model, inputs = made(), batch(99, LENGTHS)
    eight(model, True, kernel)
    route = model.route(Plan(exit="entropy:0.6"))
    wanted = model.answer(inputs, Plan(exit="entropy:0.6"))
    pools = Pools(Runner(model, route), 20)
    for first in range(0, len(LENGTHS), 2):
        rows = {name: value[first : first + 2] for name, value in inputs.items()}
        state = model.embed(rows, True, first, model.backend)
        pools.submit(state)
        while pools.advance():
            pass
    while pools.advance(hurry=True):
        pass
    drained = pools.drain()
    assert drained is not None
    units, logits, layers = drained[:3]
    assert sorted(units.tolist()) == list(range(len(LENGTHS)))
    assert torch.equal(layers, wanted.layers[units])
    assert (logits - wanted.logits[units]).abs().max() <= SAME


@pytest.mark.parametrize("calibrated", [False, True])
@pytest.mark.parametrize("kernel", USABLE)
@pytest.mark.parametrize("way", [*WAYS, None])
def test_tokens_are_dropped(way: str | None, kernel: str, calibrated: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paredown.runtime.int8.faster_in_half", lambda: WAYS[way] if way else None)
    model, inputs, plan = made(), batch(99, LENGTHS), Plan(reduce="fixed_share:0.5,score=attention")
    wanted = model.use("packed").answer(inputs, plan)
    eight(model, calibrated, kernel)
    found = model.answer(inputs, plan)
    assert torch.equal(found.tokens, wanted.tokens)
    assert (found.logits - wanted.logits).abs().max() <= 3 * NEAR * max(1.0, wanted.logits.abs().max().item())


# Kernels


def linear(outputs: int = 48, inputs: int = 32) -> tuple[Tensor, Tensor]:
    drawn = torch.Generator().manual_seed(outputs)
    return torch.randn((outputs, inputs), generator=drawn) / inputs**0.5, torch.randn(outputs, generator=drawn)


@pytest.mark.parametrize("kernel", USABLE)
@pytest.mark.parametrize("biased", [True, False])
def test_kernels_sum_bytes_exactly(kernel: str, biased: bool) -> None:
    weight, bias = linear()
    weights, inputs = Weights.of(weight, bias if biased else None), Range(-2.0, 3.0)
    hidden = torch.rand((21, 32), generator=torch.Generator().manual_seed(0)) * 7 - 3  # some beyond the range
    exact = (inputs.bytes_of(hidden).double() - inputs.zero) * inputs.scale
    wanted = exact @ (weights.values.double() * weights.scale.double().unsqueeze(1)).t()
    wanted = wanted + bias if biased else wanted
    assert (KERNELS[kernel].linear(weights, inputs)(hidden) - wanted).abs().max() <= 1e-4


@pytest.mark.parametrize("kernel", USABLE)
def test_largest_products_do_not_overflow(kernel: str) -> None:
    weights = Weights.of(torch.ones(16, 64), None)
    found = KERNELS[kernel].linear(weights, Range(0.0, 1.0))(torch.ones(4, 64))
    assert (found - 64).abs().max() <= 1e-3


@pytest.mark.parametrize("kernel", USABLE)
def test_a_feed_forward_is_near_to_that_in_floats(kernel: str) -> None:
    (up, bias), (down, other) = linear(48, 32), linear(32, 48)
    hidden = torch.rand((9, 32), generator=torch.Generator().manual_seed(0)) * 2 - 1
    gelu = GELUActivation()
    wanted = gelu(hidden @ up.t() + bias) @ down.t() + other
    between = Range(-0.17, 4.0)
    weights = Weights.of(up, bias), gelu, Weights.of(down, other)
    fused = KERNELS[kernel].fused(*weights, UNIT, between)
    if fused is not None:
        assert (fused(hidden) - wanted).abs().max() <= 0.1
        assert KERNELS[kernel].fused(weights[0], torch.relu, weights[2], UNIT, between) is None


@pytest.mark.parametrize("kernel", USABLE)
def test_a_token_has_its_own_scale(kernel: str) -> None:
    weight, bias = linear()
    function = by_token(KERNELS[kernel], Weights.of(weight, bias))
    hidden = torch.randn((5, 32), generator=torch.Generator().manual_seed(0)) * torch.tensor(
        [[1e-3], [1], [1e3], [0], [1]]
    )
    found, wanted = function(hidden), hidden @ weight.t() + bias
    assert ((found - wanted).abs().amax(1) <= 0.03 * hidden.abs().amax(1) + 1e-6).all()
    assert (function(hidden[1:2]) - found[1]).abs().max() <= SAME


@pytest.mark.parametrize("kernel", USABLE)
def test_inputs_that_are_never_below_a_bound_are_finer(kernel: str) -> None:
    """What GELU answers lies on one side of 0, nearly: nearer to floats, and the largest products do not overflow."""
    drawn = torch.Generator().manual_seed(0)
    hidden = GELUActivation()(3 * torch.randn(40, 256, generator=drawn))
    weight, bias = torch.randn(32, 256, generator=drawn), torch.randn(32, generator=drawn)
    wanted = torch.nn.functional.linear(hidden, weight, bias)
    usual = by_token(KERNELS[kernel], Weights.of(weight, bias))(hidden)
    found = by_token_above(KERNELS[kernel], weight, bias, -0.17)(hidden)
    assert (found - wanted).pow(2).mean() < 0.75 * (usual - wanted).pow(2).mean()
    full, ones = torch.full((3, 256), 5.0), torch.ones(32, 256)
    assert (by_token_above(KERNELS[kernel], ones, None, 0.0)(full) - 256 * 5).abs().max() < 1.0


# Ranges


def test_outliers_do_not_take_the_precision_of_others() -> None:
    model, inputs = made(), batch(99, LENGTHS)
    layer: Any = model.walk.layers[0]
    with torch.no_grad():  # one channel a thousand times as large, and not heard
        layer.attention.output.LayerNorm.weight[5] *= 1000
        layer.intermediate.dense.weight[:, 5] /= 1000
    wanted = model.use("packed").answer(inputs, Plan()).logits
    backend = eight(model, True)
    assert list(backend.ranges.layers[0]["up"].outliers) == [5]
    with_care = (model.answer(inputs, Plan()).logits - wanted).abs().max()
    careless = {
        number: {name: Inputs(one.low, one.high, float("inf")) for name, one in maps.items()}
        for number, maps in backend.ranges.layers.items()
    }
    model.backend = Int8(model.walk, Ranges(careless), USABLE[0])
    assert with_care < (model.answer(inputs, Plan()).logits - wanted).abs().max()


def test_ranges_are_kept_as_json() -> None:
    model, inputs = made(), batch(99, LENGTHS)
    backend = eight(model, True)
    wanted = model.answer(inputs, Plan()).logits
    kept = Ranges.from_json(json.loads(json.dumps(backend.ranges.to_json())))
    assert kept == backend.ranges
    model.backend = Int8(model.walk, kept, USABLE[0])
    assert torch.equal(model.answer(inputs, Plan()).logits, wanted)
    for wrong in ({"0": {"qkv": {}}}, {"x": {}}, {"0": 3}, 7):
        with pytest.raises(BadSetting, match="ranges describe"):
            Ranges.from_json(wrong)  # type: ignore[arg-type]


def test_ranges_need_texts() -> None:
    with pytest.raises(BadSetting, match="ranges need texts"):
        ranges_in(made().walk, [])


@pytest.mark.parametrize("name", ["query", "dense"])
def test_new_weights_are_seen(name: str) -> None:
    model, inputs = made(), batch(99, LENGTHS)
    eight(model, False)
    before = model.answer(inputs, Plan()).logits
    layer: Any = model.walk.layers[1]
    part = layer.attention.self.query if name == "query" else layer.intermediate.dense
    with torch.no_grad():
        part.weight.mul_(3)
    after = model.answer(inputs, Plan()).logits
    assert not torch.equal(before, after)
    assert torch.equal(pickle.loads(pickle.dumps(model)).answer(inputs, Plan()).logits, after)


# Choosing


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("scores_at_once", [1, 2 * 70**2, 2**19])
def test_attention_in_bfloat16_is_near_to_that_in_floats(
    way: str, scores_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(half_attention, "AT_ONCE", scores_at_once)
    query, key, value = (one.transpose(1, 2) for one in torch.randn(3, 3, 70, 2, 8).unbind())
    before, hidden = query.clone(), torch.zeros(3, 1, 1, 70)
    hidden[1, ..., 50:] = HIDDEN
    for added in (None, hidden):
        exact = torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=added)
        for inputs in ((query, key, value), (query.bfloat16(), key.bfloat16(), value.bfloat16())):
            found = torch.empty_like(exact)
            WAYS[way].attend(*inputs, added, found)
            assert (found - exact).norm() < 0.01 * exact.norm()
    assert torch.equal(query, before)


def test_a_row_of_great_scores_leaves_others_as_they_are() -> None:
    """Rows that are computed together do not know each other, whoever needs smaller scores."""
    query, key, value = (one.transpose(1, 2) for one in torch.randn(3, 2, 9, 2, 8).unbind())
    alone, together = torch.empty_like(query), torch.empty_like(query)
    WAYS["products"].attend(query, key, value, None, alone)
    query[0], key[0] = 40.0, 40.0
    WAYS["products"].attend(query, key, value, None, together)
    assert together.isfinite().all() and torch.equal(together[1], alone[1]) and not torch.equal(together[0], alone[0])


@pytest.mark.parametrize("shift", [-200.0, 0.0, 200.0])
def test_scores_may_be_large(shift: float) -> None:
    """A softmax ignores what all scores share, but powers would be too large or small."""
    query, key, value = (one.transpose(1, 2) for one in torch.randn(3, 2, 9, 2, 8).unbind())
    query[0, ..., 0], key[0, ..., 0] = shift * 8**0.5, 1.0
    found, exact = torch.empty_like(query), torch.nn.functional.scaled_dot_product_attention(query, key, value)
    WAYS["products"].attend(query, key, value, None, found)
    assert found.isfinite().all() and (found[1] - exact[1]).norm() < 0.01 * exact[1].norm()
    assert (found[0] - exact[0]).norm() < 0.5 * exact[0].norm()  # scores of 200 are rounded to whole ones
    query[0, 0, 0] = torch.nan
    WAYS["products"].attend(query, key, value, None, found)
    assert found[0, 0, 0].isnan().all() and found[0, 1].isfinite().all() and found[1].isfinite().all()


@pytest.mark.parametrize("calibrated", [False, True])
@pytest.mark.parametrize("kernel", USABLE)
@pytest.mark.parametrize("way", [*WAYS, None])
def test_long_rows_are_attended_in_bfloat16(
    way: str | None, kernel: str, calibrated: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it is faster; neighbours make no difference, though rows of about one length are attended together."""
    asked: list[int] = []

    def noted(query: Tensor, *others: Any) -> None:
        asked.append(query.shape[2])
        WAYS[way].attend(query, *others)

    chosen = None if way is None else HalfAttention(noted, WAYS[way].joins)
    monkeypatch.setattr("paredown.runtime.int8.faster_in_half", lambda: chosen)
    model, long = made(max_position_embeddings=2 * LONG), [LONG + 3, LONG - 1, LONG]
    inputs = batch(99, long)
    wanted = model.use("packed").answer(inputs, Plan()).logits
    eight(model, calibrated, kernel)
    found = model.answer(inputs, Plan()).logits
    assert (found - wanted).abs().max() <= NEAR * max(1.0, wanted.abs().max().item())
    together = way == "products" and calibrated and kernel == "onednn"  # the one whose products have 16 bits
    assert set(asked) == (set() if way is None else {LONG + 4} if together else {LONG, LONG + 3})
    for row, length in enumerate(long):
        single = {name: value[row : row + 1, :length] for name, value in inputs.items()}
        assert (model.answer(single, Plan()).logits - found[row]).abs().max() <= SAME


@pytest.mark.parametrize("at_one_go", [True, False])
def test_values_become_bytes(at_one_go: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The nearest one, in torch's way and where a torch no longer has that."""
    monkeypatch.setattr("paredown.ranges._rounds_to_bytes", lambda: at_one_go)
    values = torch.tensor([[-9.0, -2.0, -1.99, 0.0], [0.011, 0.029, 2.99, 7.0]])
    inputs = Range(-2.0, 3.1)
    assert inputs.bytes_of(values).tolist() == [[0, 0, 0, 100], [101, 101, 250, 255]]
    assert inputs.bytes_of(values.t()).tolist() == inputs.bytes_of(values).t().tolist()


@pytest.mark.skipif(len(USABLE) < 2, reason="there is nothing to choose from")
def test_the_fastest_kernel_of_a_size_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(int8_choice, "known_seconds", lambda of, names, make: asked.append(of) or seconds)
    for wanted in USABLE:
        seconds = {name: 2.0 - (name == wanted) for name in USABLE}
        assert int8_choice.choose(32, 64).name == wanted
    assert set(asked) == {"int8 feed-forward 32x64"}


def test_kernels_are_measured() -> None:
    assert all(0 < seconds < 10 for seconds in measure(int8_choice.works(USABLE, 32, 64)).values())
    assert int8_choice.choose(32, 64).name in USABLE


def test_what_cannot_run_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadSetting, match="bert cannot run in int8: it needs weights in float32"):
        made().to(torch.bfloat16).use("int8")
    with pytest.raises(BadSetting, match="albert cannot run in int8: fast layers are known for"):
        made("albert").use("int8")
    with pytest.raises(BadSetting, match="there is no int8 kernel 'mine'"):
        made().use("int8:mine")
    model = made()
    for kernel in KERNELS.values():
        monkeypatch.setattr(type(kernel), "objection", lambda self: "not here")
    with pytest.raises(BadSetting, match="the int8 kernel fbgemm cannot be used: not here"):
        model.use("int8:fbgemm")
    with pytest.raises(BadSetting, match="no int8 kernel can be used"):
        model.use("int8")


def test_the_runtime_has_a_name() -> None:
    model = made().use(f"int8:{USABLE[0]}")
    assert isinstance(model.backend, Int8) and model.backend.kernel is KERNELS[USABLE[0]]
