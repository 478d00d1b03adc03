"""What every reducer promises, tried on every reducer in the catalogue; then each one's own arithmetic, by hand."""

from __future__ import annotations

import json
import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from paredown import AdaptiveModel, Plan
from paredown.encoders.padded import PaddedState
from paredown.engine import kept as engine_kept
from paredown.engine import run_steps
from paredown.errors import BadPlan, BadSetting
from paredown.registry import reducers
from tests.contracts.reducer_settings import all_reducers, choosing, with_selectors
from tests.families import EVERY_TOKEN, EXACT, adaptive, batch, tiny, walked
from tests.grids import combinations
from tests.walking import through

LENGTHS = [14, 3, 30, 1, 9]
SPEEDS = [step / 20 for step in range(21)]
REDUCERS = all_reducers()
each_reducer = pytest.mark.parametrize("reducer", REDUCERS, ids=str)


@torch.no_grad()
def asked(reducer: Any, inputs: dict[str, Tensor], model: AdaptiveModel | None = None) -> tuple[PaddedState, Tensor]:
    """A state as the reducer sees it the first time it is asked, and what it keeps."""
    model = model or choosing()
    steps = model.route(Plan(reduce=reducer)).steps
    first = next(step for step in steps if step.reducer is not None)
    state = run_steps(model.walk, steps[: first.number - 1], model.embed(inputs, joinable=True))
    return state, engine_kept(state, first)


# Every reducer


@each_reducer
def test_says_of_every_token_whether_it_stays(reducer: Any) -> None:
    state, keep = asked(reducer, batch(99, LENGTHS, width=33))
    assert keep.shape == state.mask.shape and keep.dtype == torch.bool
    kept, dropped = keep & state.mask, ~keep & state.mask
    assert bool(kept.any()) and bool(dropped.any()), "the settings should tell tokens apart"


@each_reducer
def test_a_larger_speed_never_keeps_more(reducer: Any) -> None:
    ladder = [asked(reducer.at_speed(speed), batch(99, LENGTHS)) for speed in SPEEDS]
    kept = torch.stack([keep & state.mask for state, keep in ladder])  # [speeds, rows, tokens]
    assert torch.equal(kept[0], ladder[0][0].mask), "at speed 0 a token is dropped"
    assert bool((kept.int().diff(dim=0) <= 0).all())
    assert kept[-1].sum() <= len(LENGTHS), "at speed 1 more than a token stays"


@each_reducer
def test_speed_0_is_the_full_model(reducer: Any) -> None:
    inputs = batch(99, LENGTHS)
    full, careful = (choosing().answer(inputs, Plan(reduce=one)) for one in (None, reducer.at_speed(0)))
    assert torch.allclose(full.logits, careful.logits, atol=1e-5, rtol=0) and torch.equal(full.tokens, careful.tokens)


@each_reducer
def test_is_json_and_short_text(reducer: Any) -> None:
    for same in (reducer, *(reducer.at_speed(speed) for speed in SPEEDS)):
        assert reducers.from_json(json.loads(json.dumps(reducers.to_json(same), allow_nan=False))) == same
        assert reducers.parse(str(same)) == same
        assert hash(reducers.parse(str(same))) == hash(same)
        assert Plan.from_json(json.dumps(Plan(reduce=same).to_json())) == Plan(reduce=str(same))


@each_reducer
@pytest.mark.parametrize("speed", [-0.1, 1.1, math.nan])
def test_refuses_a_speed_outside_0_to_1(reducer: Any, speed: float) -> None:
    with pytest.raises(BadSetting, match="speed"):
        reducer.at_speed(speed)


@pytest.mark.parametrize("name", reducers.names())
@given(knob=st.floats(0, 1) | st.integers(0, 9) | st.floats(-2, -0.1) | st.just(math.inf))
def test_any_knob_it_takes_is_read_back(name: str, knob: Any) -> None:
    cls: Any = reducers[name]
    try:
        reducer = reducers.make(name, **{cls.knob: knob})
    except BadSetting as error:
        assert f"{name}.{cls.knob}" in str(error) and not 0 <= knob <= 1
        return
    assert reducers.parse(str(reducer)) == reducer


@each_reducer
def test_refuses_families_that_cannot_drop_tokens(reducer: Any) -> None:
    for family in walked(EVERY_TOKEN):
        with pytest.raises(BadPlan, match="none can be dropped"):
            choosing(family).answer(batch(99, LENGTHS), Plan(reduce=reducer))


@each_reducer
def test_chooses_where_it_says(reducer: Any) -> None:
    model, depth = choosing(), (0, 1, 2, 3)
    chosen = reducer.layers_of(model, depth)
    assert chosen and set(chosen) <= set(depth)
    assert reducer.layers is not None or chosen == (1, 2)


@pytest.mark.parametrize("family, dtype", combinations(walked(EXACT), (torch.float16, torch.bfloat16)))
def test_tokens_go_from_models_that_were_made_shorter_too(family: str, dtype: torch.dtype) -> None:
    model, plan = with_selectors(adaptive(family)), Plan(reduce="fixed_share:0.5")
    inputs = batch(99, LENGTHS)
    expected = model.answer(inputs, plan)
    outputs = model.to(dtype).answer(inputs, plan)
    assert outputs.tokens.tolist() == expected.tokens.tolist() and outputs.logits.isfinite().all()


# Refusals


def test_models_without_selectors_are_refused_with_a_remedy() -> None:
    with pytest.raises(BadPlan, match=r"it has none; train some, or choose by attention"):
        adaptive("bert").route(Plan(reduce="selector:0.5"))
    with pytest.raises(BadPlan, match=r"before layers \[1, 2\], and the plan runs none"):
        choosing().route(Plan(depth=(0, 3), reduce="selector:0.5"))
    with pytest.raises(BadPlan, match=r"a selector before layer 3, but its selectors sit before layers \[1, 2\]"):
        choosing().route(Plan(reduce="fixed_share:0.5,layers=(3,)"))


@pytest.mark.parametrize("reducer", ["attention:0.5", "fixed_share:0.5,score=attention"])
def test_attention_needs_a_layer_before(reducer: str) -> None:
    model = adaptive("bert")
    with pytest.raises(BadPlan, match="before layer 2 none runs"):
        model.route(Plan(depth=(2,), reduce=reducer))
    with pytest.raises(BadPlan, match=r"before layer 3, but the plan runs \[0, 1\]"):
        model.route(Plan(depth=(0, 1), reduce=reducers.of(reducer).__class__(0.5, layers=(3,))))
    with pytest.raises(BadPlan, match="it is empty"):
        model.route(Plan(reduce=f"{reducer},layers=()"))


def test_attention_that_is_computed_otherwise_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paredown.encoders.attention.SOFTMAX", ())
    assert adaptive("bert").walk.shows_attention  # by scaled_dot_product_attention
    hidden = AdaptiveModel(tiny("bert", attn_implementation="eager"), None, adaptive("bert").kind)
    with pytest.raises(BadPlan, match=r"bert: its attention cannot be watched.*train selectors"):
        hidden.route(Plan(reduce="attention:0.5"))


# Watching attention


def test_the_usual_families_show_their_attention() -> None:
    for family in ("bert", "distilbert", "modernbert", "roberta", "albert", "electra"):
        assert adaptive(family, head=None).walk.shows_attention


@pytest.mark.parametrize("family, attention", combinations(walked(EXACT), ("sdpa", "eager")))
@torch.no_grad()
def test_a_watched_layer_says_what_it_always_says(family: str, attention: str) -> None:
    usual = adaptive(family, head=None)
    if not usual.walk.shows_attention or not (usual.stock._supports_sdpa or attention == "eager"):
        return
    walk = adaptive(family, head=None, attn_implementation=attention).walk
    state = walk.embed(batch(99, LENGTHS, width=33), joinable=True)
    for layer in range(len(walk.layers)):
        plain, state = through(walk, state, [layer]), through(walk, state, [layer], watch=True)
        assert torch.equal(plain.hidden, state.hidden) and plain.received is None
        received = state.received
        assert received is not None and not received[~state.mask].any()
        assert torch.allclose(received.sum(1), torch.tensor(LENGTHS).float(), atol=1e-4)  # 1 is average


@torch.no_grad()
def test_what_is_received_is_what_transformers_tells() -> None:
    model = tiny("bert", attn_implementation="eager")
    inputs = batch(99, LENGTHS)
    attentions = model(**inputs, output_attentions=True).attentions
    for implementation in ("eager", "sdpa"):
        walk = adaptive("bert", head=None, attn_implementation=implementation).walk
        state = walk.embed(inputs)
        for layer, probabilities in enumerate(attentions):
            state = through(walk, state, [layer], watch=True)
            real = inputs["attention_mask"]
            wanted = (probabilities.mean(1) * real.unsqueeze(-1)).sum(1)
            assert state.received is not None
            assert torch.allclose(state.received, wanted, atol=1e-5)


def test_only_the_layer_before_a_choice_is_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    model, seen = choosing(), []
    usual = model.walk.run
    monkeypatch.setattr(model.walk, "run", lambda state, step: (seen.append(step), usual(state, step))[1])
    for reducer, layers in (("attention:0.9", (0, 1)), ("attention:0.9,layers=(3,)", (2,)), ("selector:0.5", ())):
        seen.clear()
        model.answer(batch(99, LENGTHS), Plan(reduce=reducer))
        assert [step.layer for step in seen if step.watch] == list(layers)


def test_threads_that_watch_do_not_disturb_others() -> None:
    model, plans = choosing(), [Plan(reduce="attention:1"), Plan(), Plan(reduce="fixed_share:0.5,score=attention")]
    tasks = [(plan, batch(99, LENGTHS, seed=seed)) for seed in range(20) for plan in plans]
    wanted = [model.answer(inputs, plan) for plan, inputs in tasks]
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda task: model.answer(task[1], task[0]), tasks))
    for ours, theirs in zip(found, wanted, strict=True):
        assert torch.equal(ours.logits, theirs.logits) and torch.equal(ours.tokens, theirs.tokens)


def test_what_was_received_goes_with_rows_and_tokens() -> None:
    state, _ = asked(reducers.parse("attention:0.9"), batch(99, LENGTHS))
    assert state.received is not None
    third = state.take(torch.tensor([False, False, True, False, False]))
    assert third.received is not None and torch.equal(third.received[0], state.received[2])
    cut = third.drop(third.position % 2 == 0)
    assert cut.received is not None and torch.equal(cut.received[0], state.received[2, ::2])


# By hand


def made(scores: list[list[float]], lengths: list[int], protected: list[list[int]] | None = None) -> PaddedState:
    """A state whose tokens received so much attention."""
    received = torch.tensor(scores)
    mask = torch.arange(received.shape[1]) < torch.tensor(lengths).unsqueeze(1)
    position = torch.arange(received.shape[1]).expand_as(received)
    rows, hidden = torch.arange(len(scores)), torch.zeros(*received.shape, 2)
    state = PaddedState(hidden=hidden, mask=mask, row=rows, position=position, received=received)
    if protected is None:
        return state
    held = torch.tensor([[index in positions for index in range(received.shape[1])] for positions in protected])
    return replace(state, protected=held)


def kept(reducer: str, state: PaddedState) -> list[list[int]]:
    assert state.received is not None
    keep = reducers.parse(reducer).keep(state, state.received) & state.mask
    return [row.nonzero().flatten().tolist() for row in keep]


def test_attention_by_hand() -> None:
    state = made([[0.1, 0.5, 2.0, 0.49, 1.0], [0.1, 1.5, 9.0, 9.0, 9.0]], [5, 2])
    assert kept("attention:0.5", state) == [[1, 2, 4], [1]]
    assert state.drop(state.received >= 0.5).position[0].tolist() == [0, 1, 2, 4]  # type: ignore[operator]


def test_a_fixed_share_by_hand() -> None:
    share = "fixed_share:0.5,score=attention"
    state = made([[0.1, 0.5, 2.0, 0.4, 1.0], [0.1, 1.5, 9.0, 9.0, 9.0]], [5, 2])
    assert kept(share, state) == [[0, 2, 4], [0]]  # the first always stays, and takes its part
    assert kept(share, made([[1.0] * 6, [1.0] * 6], [6, 5])) == [[0, 1, 2], [0, 1, 2]]  # equals: the earlier ones
    protected = made([[0.1, 3.0, 2.0, 0.4, 1.0, 0.0]] * 2, [6, 6], [[5], [2, 3, 4, 5]])
    assert kept(share, protected) == [[0, 1, 5], [0, 2, 3]]
    stays = protected.drop(reducers.parse(share).keep(protected, protected.received))
    assert stays.position[1].tolist() == [0, 2, 3, 4, 5]  # more are protected than the share has room for


@pytest.mark.parametrize("tokens, share, left", [(30, 0.1, 3), (7, 0.5, 4), (1, 0.01, 1), (10, 0.0, 0), (9, 1.0, 9)])
def test_shares_are_rounded_up(tokens: int, share: float, left: int) -> None:
    assert reducers.make("fixed_share", share=share).kept_of(torch.tensor([tokens])).item() == left


@torch.no_grad()
def test_selectors_by_hand() -> None:
    model, reducer = choosing(), reducers.parse("selector:0.7")
    state, keep = asked(reducer, batch(99, LENGTHS))
    assert torch.equal(keep, torch.sigmoid(model.keep_logits(1, state.hidden)) >= 0.7)
    best = asked(reducers.parse("fixed_share:0.3"), batch(99, LENGTHS))[1]
    logits = model.keep_logits(1, state.hidden)
    assert bool((logits[2][state.free[2] & best[2]].min() > logits[2][state.free[2] & ~best[2]].max()).all())
    assert best[2, :30].sum() == 9
