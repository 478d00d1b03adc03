"""Plan: one value, comparable, hashable, printable, JSON; whatever does not fit is a BadPlan."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paredown import Plan, exits
from paredown.errors import BadPlan, BadSetting, ParedownError
from tests.families import adaptive, batch
from tests.test_registry import JSON, NEARLY

PLANS = [
    Plan(),
    Plan(depth=(0, 1, 5)),
    Plan(exit="entropy:0.3"),
    Plan(depth=(2, 0), exit=exits.Patience(2)),
    Plan(exit={"name": "confidence", "threshold": [0.9, 0.8, 0.7]}),
]


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_json_and_back(plan: Plan) -> None:
    assert Plan.from_json(json.dumps(plan.to_json())) == plan == Plan.from_json(plan.to_json()) == Plan.of(plan)
    assert hash(plan) == hash(Plan.from_json(plan.to_json()))


def test_a_plan_is_a_value() -> None:
    plan = Plan(exit="entropy:0.3")
    assert plan == Plan(exit=exits.Entropy(0.3)) == Plan.of("entropy:0.3") == Plan.of({"exit": "entropy:0.3"})
    assert Plan.of(None) == Plan() and len({*PLANS, *PLANS}) == len(PLANS)
    assert plan.but(depth=(0, 1)) == Plan((0, 1), "entropy:0.3") and plan.depth is None
    assert str(plan.but(depth=(0, 2))) == "layers 0,2 · entropy:0.3" and str(Plan()) == "all layers"
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan.depth = (1,)  # type: ignore[misc]


@pytest.mark.parametrize("depth", [(), [], (-1,), (0.5,), ("1",), (True,)])
def test_depth_names_layers(depth: Any) -> None:
    with pytest.raises(BadPlan, match="depth"):
        Plan(depth=depth)


@pytest.mark.parametrize(
    "data",
    ["", "[", "[]", "7", '{"deep": 1}', '{"depth": 3}', '{"depth": "01"}', '{"exit": "nothing"}', '{"exit": {}}']
    + ['{"exit": {"name": "entropy", "self": 1}}', '{"exit": {"name": "entropy", "threshold": "x"}}']
    + ['{"exit": ["entropy"]}', '{"reduce": 5}', "[" * 100_000],
    ids=lambda data: data[:40],
)
def test_bad_json_is_a_bad_plan(data: str) -> None:
    with pytest.raises(BadPlan):
        Plan.from_json(data)


AXES = {"depth": JSON | st.lists(st.integers(-2, 9)), "exit": JSON | NEARLY, "reduce": JSON}


@given(st.fixed_dictionaries({}, optional=AXES) | JSON | st.text().map(json.dumps))
def test_any_json_is_a_plan_or_a_bad_plan(data: Any) -> None:
    try:
        plan = Plan.from_json(data)
    except BadPlan:
        return
    assert Plan.from_json(json.loads(json.dumps(plan.to_json()))) == plan


def test_a_plan_must_fit_its_model() -> None:
    model, inputs = adaptive("bert"), batch(99, [4])
    for plan, message in {
        Plan(depth=(4,)): "layers 0 to 3",
        Plan(depth=(3,), exit="entropy:0.3"): "no layer on its way has a head",
        Plan(exit=exits.Entropy((0.1, 0.2))): "has 2 values",
    }.items():
        with pytest.raises(BadPlan, match=message):
            model.answer(inputs, plan)
    bare = adaptive("bert", head=None)
    with pytest.raises(BadPlan, match="train exits first"):
        bare.answer(inputs, Plan(exit="entropy:0.3"))
    with pytest.raises(ParedownError):
        adaptive("bert", "regression").answer(inputs, Plan(exit="entropy:0.3"))
    with pytest.raises(BadSetting, match="drop_heads"):
        model.grow_heads("pooler", [0])
