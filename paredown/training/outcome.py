"""What a trained model is worth on dev rows: the plan that is chosen there, its figures, and its speeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from paredown.answers import Encoded
from paredown.encoders.probing import evaluating
from paredown.evaluation.choosing import ChosenRule, choose, speeds
from paredown.evaluation.cost import Bill, Cost
from paredown.evaluation.metrics import Metric
from paredown.evaluation.record import record
from paredown.evaluation.worth import Worth, worth
from paredown.model import AdaptiveModel
from paredown.plan import Plan

LITTLE = 1.05  # times fewer FLOPs; exits that save less than this are not worth their heads
REMEDY = "a larger learning rate or more epochs may help; do the labels belong to their texts?"


@dataclass(frozen=True)
class Outcome:
    plan: Plan
    worth: Worth
    speeds: list[dict[str, Any]]  # of the plan's exit rule; none where it has no knob to turn
    warning: str | None = None


def conclude(
    model: AdaptiveModel, dev: Sequence[Encoded], metric: Metric, max_drop: float | None, batch_size: int
) -> Outcome:
    """`max_drop`: the share of the score that the exit rule may cost; None: the plan's own rule stays."""
    with evaluating(model):
        return _conclude(model, dev, metric, max_drop, batch_size)


def _conclude(
    model: AdaptiveModel, dev: Sequence[Encoded], metric: Metric, max_drop: float | None, batch_size: int
) -> Outcome:
    plan, chosen = model.plan, ChosenRule(model.plan.exit, [])
    if any(str(layer) in model.heads for layer in model.depth[:-1]):
        seen = record(model, dev, batch_size, plan, hashed=False)
        bill = Bill(seen, Cost.of(model, plan))
        if max_drop is not None:
            chosen = choose(seen, metric, bill, max_drop)
        elif plan.exit is not None and plan.exit.knob:
            chosen = ChosenRule(plan.exit, speeds(seen, plan.exit, metric, bill))
        plan = plan.but(exit=chosen.rule)
    found = worth(model, dev, metric, plan, batch_size)
    return Outcome(plan, found, chosen.speeds, _idle(found, chosen, max_drop))


def _idle(found: Worth, chosen: ChosenRule, max_drop: float | None) -> str | None:
    if max_drop is not None and chosen.speeds and chosen.rule is None:
        lost = f"at most {100 * max_drop:g} points of the dev score"
        return f"no exit saves work for {lost}, so every row runs to the end; --max-drop allows more"
    if chosen.rule is not None and found.flops_speedup < LITTLE:
        return f"hardly any dev row leaves early under {chosen.rule} ({found.flops_speedup:.2f}x fewer FLOPs)"
    return None


def judge(scores: dict[int, float], by: str) -> float:
    """One number from the scores at every exit: the final one, or a mean over the exits before it, or over all."""
    final = max(scores)
    counted = {"final": [final], "exits": [layers for layers in scores if layers != final], "all": list(scores)}[by]
    counted = counted or [final]  # no exits before the end
    return sum(scores[layers] for layers in counted) / len(counted)
