"""Rows that share a batch although they came with other thresholds or in other batches answer as they would alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from paredown import AdaptiveModel, Plan
from paredown.engine import Answering, run_steps
from paredown.errors import BadInput, BadPlan
from paredown.registry import answers
from paredown.state import Answer, State
from tests.contracts.exit_settings import all_rules
from tests.contracts.reducer_settings import with_selectors
from tests.families import EVERY_TOKEN, EXACT, adaptive, batch, walked
from tests.grids import combinations
from tests.properties.asked import asked, own, picked

CLOSE = 1e-9  # in 64 bits
LENGTHS = [14, 3, 9, 1, 30, 8]
PLANS = [Plan(), Plan(exit="entropy:0.8"), Plan(exit="patience:1", reduce="selector:0.5")]
KINDS = [kind for kind in answers.names() if kind != "regression"]


def rules_for(kind: str) -> list[Any]:
    return [rule for rule in all_rules() if (getattr(rule, "tolerance", None) is not None) == (kind == "regression")]


def double(family: str, kind: str = "single_label", head: str = "pooler") -> AdaptiveModel:
    """In 64 bits other shapes hardly round otherwise, so that no decision hangs by a hair."""
    return adaptive(family, kind, head).double()


# Own bounds


@given(speeds=st.lists(st.floats(0, 1), min_size=len(LENGTHS), max_size=len(LENGTHS)), seed=st.integers(0, 99))
@pytest.mark.parametrize("rule", all_rules(), ids=str)
@settings(max_examples=max(5, settings.default.max_examples // 20))
def test_every_row_may_have_a_bound_of_its_own(rule: Any, speeds: list[float], seed: int) -> None:
    numbers = getattr(rule, "tolerance", None) is not None
    model = double("bert", "regression" if numbers else "single_label")
    inputs = batch(99, LENGTHS, seed=seed)
    plans = [Plan(exit=rule.at_speed(speed)) for speed in speeds]
    together = model.answer(inputs, plans)
    for row, (plan, length) in enumerate(zip(plans, LENGTHS, strict=True)):
        alone = model.answer({name: value[row : row + 1, :length] for name, value in inputs.items()}, plan)
        assert_same(alone, together, row)


@pytest.mark.parametrize("kind", KINDS)
def test_units_of_every_kind_may_have_bounds_of_their_own(kind: str) -> None:
    model = double("bert", kind)
    questions, inputs = asked(model.kind, len(LENGTHS), 1), batch(99, LENGTHS)
    plans = [Plan(exit=f"entropy:{(0.0, 1.5, 0.7)[number % 3]}") for number in range(len(questions))]
    together = model.answer(picked(model.kind, inputs, questions), plans)
    assert len(set(together.layers.tolist())) > 1
    for number, question in enumerate(questions):
        width = max(LENGTHS[row] for row in question)
        alone = model.answer(picked(model.kind, inputs, [question], width), plans[number])
        assert alone.layers.item() == together.layers[number] and alone.tokens.item() == together.tokens[number]
        logits = own(model.kind, together.logits[number : number + 1], question, width)
        assert (alone.logits - logits).abs().max() <= CLOSE


def test_rows_that_cannot_share_a_batch_are_refused() -> None:
    model, inputs = adaptive("bert"), batch(99, [3, 4])
    for other in (Plan(exit="confidence:0.5"), Plan((0, 1), "entropy:0.5"), Plan(), Plan(exit="entropy:(0.1,0.2,0.3)")):
        plans = [Plan(exit="entropy:0.5"), other]
        if str(other.exit).startswith("entropy:("):
            assert len(model.answer(inputs, plans).layers) == 2  # the same certainty
            continue
        with pytest.raises(BadPlan, match="differ in thresholds alone"):
            model.answer(inputs, plans)


# States of several batches


def joined_at(model: AdaptiveModel, plan: Plan, parts: list[dict[str, Tensor]], step: int) -> Answer:
    """Batches that run alone for some steps and together from then on."""
    route, first, states = model.route(plan), 0, []
    answering = Answering(model, route)
    for part in parts:
        state = model.embed(part, joinable=True, first=first)
        first += int(part["group"][-1]) + 1 if "group" in part else len(part["input_ids"])
        states.append(run_steps(model.walk, route.steps[:step], state, answering))
    if staying := [state for state in states if len(state)]:
        run_steps(model.walk, route.steps[step:], State.concat(staying), answering)
    return answering.answer()


def assert_same(alone: Answer, together: Answer, row: int) -> None:
    assert alone.layers.item() == together.layers[row] and alone.tokens.item() == together.tokens[row]
    assert (alone.logits[0] - together.logits[row]).abs().max() <= CLOSE


@pytest.mark.parametrize("family, plan", combinations(walked(EXACT), PLANS))
@torch.no_grad()
def test_rows_of_two_batches_go_on_together(family: str, plan: Plan) -> None:
    model = with_selectors(double(family))
    parts = [batch(99, [14, 3, 9], seed=1), batch(99, [5, 20], seed=2)]
    wanted = [model.answer(part, plan) for part in parts]
    for step in (1, 2):
        found = joined_at(model, plan, parts, step)
        assert torch.equal(found.layers, torch.cat([answer.layers for answer in wanted]))
        assert torch.equal(found.tokens, torch.cat([answer.tokens for answer in wanted]))
        assert (found.logits - torch.cat([answer.logits for answer in wanted])).abs().max() <= CLOSE


@pytest.mark.parametrize("family", walked(EVERY_TOKEN))
@torch.no_grad()
def test_families_that_keep_every_token_join_batches_of_one_width(family: str) -> None:
    model, plan = double(family), Plan(exit="entropy:0.8")
    parts = [batch(99, [14, 3, 9], width=20, seed=1), batch(99, [5, 20], width=20, seed=2)]
    wanted = [model.answer(part, plan) for part in parts]
    found = joined_at(model, plan, parts, 1)
    assert torch.equal(found.layers, torch.cat([answer.layers for answer in wanted]))
    assert (found.logits - torch.cat([answer.logits for answer in wanted])).abs().max() <= CLOSE


@given(
    lengths=st.lists(st.lists(st.integers(1, 24), min_size=1, max_size=4), min_size=2, max_size=3),
    step=st.integers(1, 3),
    seed=st.integers(0, 99),
)
@pytest.mark.parametrize("reduce", [None, "selector:0.5"])
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=max(4, settings.default.max_examples // 40))
@torch.no_grad()
def test_units_of_several_batches_go_on_together(
    kind: str, reduce: str | None, lengths: list[list[int]], step: int, seed: int
) -> None:
    model, rule = with_selectors(double("bert", kind)), rules_for(kind)[seed % len(rules_for(kind))]
    plan, parts, alone = Plan(exit=rule, reduce=reduce), [], []
    for number, part in enumerate(lengths):
        questions = asked(model.kind, len(part), seed + number)
        inputs = picked(model.kind, batch(99, part, seed=seed + number), questions)
        parts.append(inputs)
        answer = model.answer(inputs, plan)
        alone += [
            (answer.layers[at], answer.tokens[at], own(model.kind, answer.logits[at : at + 1], question, max(part)))
            for at, question in enumerate(questions)
        ]
    found = joined_at(model, plan, parts, step)
    for at, (layers, tokens, logits) in enumerate(alone):
        assert (layers, tokens) == (found.layers[at], found.tokens[at])
        shown = found.logits[at : at + 1][tuple(slice(size) for size in logits.shape)]
        assert (logits - shown).abs().max() <= CLOSE


def test_states_that_do_not_fit_are_refused() -> None:
    model, inputs = adaptive("bert"), batch(99, [5, 5])
    state = model.embed(inputs, joinable=True)
    with pytest.raises(BadInput, match=r"after the same step only, not after \[0, 1\]"):
        State.concat([state, run_steps(model.walk, model.route(Plan()).steps[:1], state)])
    with pytest.raises(BadInput, match="joinable=True"):
        State.concat([state, model.embed(inputs)])
    with pytest.raises(BadInput, match="do not carry the same facts"):
        State.concat([state, replace(state, bounds=torch.zeros(2, 4))])


def test_the_control_notices_a_state_that_mixes_up_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = State.concat
    turned = staticmethod(lambda states: replace(usual(states), hidden=usual(states).hidden.flip(0), filled={}))
    monkeypatch.setattr(State, "concat", turned)
    with pytest.raises(AssertionError):
        test_rows_of_two_batches_go_on_together("bert", Plan())
