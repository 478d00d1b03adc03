"""Certainty above bound decides to the bit as each rule's documented comparison does, for ties, NaN and masks too."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from paredown.answers import Kind
from paredown.exits.entropy import entropy, normalised_entropy
from paredown.registry import answers, exits
from paredown.state import Evidence, Memory
from tests.contracts.exit_settings import all_rules
from tests.contracts.test_exits import ASKED, HEADS, PAIRS, RULES, accepts, decide, story

Formula = Callable[[Any, Evidence, Memory, float], Tensor]  # [rows, items] True where the documented comparison holds


def _top_entropy(rule: Any, seen: Evidence, before: Memory, knob: float) -> Tensor:
    top = seen.log_probs.topk(min(rule.top, seen.log_probs.shape[-1])).values
    most = min(rule.top, seen.classes) if isinstance(seen.classes, int) else seen.classes.clamp(max=rule.top)
    return normalised_entropy(top.log_softmax(-1), most) < knob


def _margin(rule: Any, seen: Evidence, before: Memory, knob: float) -> Tensor:
    first, second = F.pad(seen.log_probs.exp(), (0, 1)).topk(2).values.unbind(-1)
    return first - second > knob


def _ensemble(rule: Any, seen: Evidence, before: Memory, knob: float) -> Tensor:
    return seen.with_logits(rule.answer(seen, before).float()).log_probs.amax(-1).exp() > knob


def _confirmed(rule: Any, seen: Evidence, before: Memory, knob: float) -> Tensor:
    probs = seen.log_probs.exp()
    total, heads = (before["total"], before["heads"]) if before else (0, 0)
    so_far = (probs + total) / torch.as_tensor(heads + 1).view(-1, 1, 1)
    own, chosen = probs.max(-1)
    both = own.logit() + so_far.gather(-1, chosen.unsqueeze(-1)).squeeze(-1).logit()
    return (both / 2).sigmoid() > knob


def _patience(rule: Any, seen: Evidence, before: Memory, knob: float) -> Tensor:
    agreed = torch.zeros_like(seen.predicted, dtype=torch.long)
    if before:
        moved = (seen.predicted - before["predicted"]).abs()
        agreed = (before["agreed"] + 1) * (moved == 0 if rule.tolerance is None else moved < rule.tolerance)
    return agreed >= knob


def _vote(rule: Any, seen: Evidence, before: Memory, knob: float) -> Tensor:
    tally = F.one_hot(seen.predicted, seen.log_probs.shape[-1]) + (before["tally"] if before else 0)
    return tally.gather(-1, seen.predicted.unsqueeze(-1)).squeeze(-1) >= knob


def _everyone(seen: Evidence, leave: bool) -> Tensor:
    return torch.full((len(seen.logits), 1), leave)


DOCUMENTED: dict[str, Formula] = {
    "at_layer": lambda rule, seen, before, knob: _everyone(seen, seen.step >= knob),
    "confidence": lambda rule, seen, before, knob: seen.log_probs.amax(-1).exp() > knob,
    "confirmed": _confirmed,
    "ensemble": _ensemble,
    "entropy": lambda rule, seen, before, knob: normalised_entropy(seen.log_probs, seen.classes) < knob,
    "entropy_nats": lambda rule, seen, before, knob: entropy(seen.log_probs) < knob,
    "learned": lambda rule, seen, before, knob: seen.error_probability < knob,  # type: ignore[operator]
    "margin": _margin,
    "never": lambda rule, seen, before, knob: _everyone(seen, False),
    "patience": _patience,
    "top_entropy": _top_entropy,
    "vote": _vote,
}


def documented(rule: Any, seen: Evidence, before: Memory) -> Tensor:
    """[rows] True where every item that counts satisfies the rule's comparison."""
    knob = getattr(rule, rule.knob) if rule.knob else 0.0
    sure = DOCUMENTED[rule.name](rule, seen, before, knob[seen.step - 1] if isinstance(knob, tuple) else knob)
    if seen.answer_mask is not None and seen.kind.per_word and rule.name not in ("at_layer", "never"):
        sure = sure | ~seen.answer_mask
    return sure.all(1)


def with_oddities(heads: list[Evidence]) -> list[Evidence]:
    """Some rows answer NaN, are exactly undecided, or are answered nowhere."""
    found = []
    for head in heads:
        logits, error_probability, answer_mask = head.logits.clone(), head.error_probability, head.answer_mask
        assert error_probability is not None
        logits[0], error_probability[0] = math.nan, math.nan
        logits[1], error_probability[1] = 0.0, 0.5
        if head.kind.per_word:
            assert answer_mask is not None
            logits[2, -1], error_probability[2, -1] = math.nan, math.nan  # one item of several
            answer_mask = answer_mask.clone()
            answer_mask[2], answer_mask[3] = True, False
        found.append(
            dataclasses.replace(head, logits=logits, error_probability=error_probability, answer_mask=answer_mask)
        )
    return found


def ties(rule: Any, heads: list[Evidence]) -> list[Any]:
    """The rule with its threshold exactly on certainties that occur."""
    if rule.knob != "threshold":
        return []
    value = rule.certainty(heads[0], {})[0].abs()
    return [dataclasses.replace(rule, threshold=min(one, 1.0)) for one in value[value.isfinite()][:6].tolist()]


@pytest.mark.parametrize("rule, kind", PAIRS)
def test_decides_as_documented(rule: Any, kind: Kind) -> None:
    heads = with_oddities(story(kind, rows=200, seed=7))
    settings = [rule, *(rule.at_speed(speed) for speed in (0, 0.01, 0.3, 0.5, 0.9, 1)), *ties(rule, heads)]
    left = 0
    for one in settings:
        memory: Memory = {}
        for head in heads[:-1]:
            leave, after = decide(one, head, memory)
            assert torch.equal(leave, documented(one, head, memory)), (str(one), head.step)
            left, memory = left + int(leave.sum()), after
    assert left or rule.name == "never"


@pytest.mark.parametrize("name", [name for name in exits.names() if exits[name].knob == "threshold"])  # type: ignore[attr-defined]
def test_a_threshold_that_is_met_exactly_keeps_the_row(name: str) -> None:
    head = story(answers.make("single_label"), rows=1)[0]
    (met, *_) = ties(exits.make(name), [head])
    assert not decide(met, head)[0]


def test_items_that_do_not_count_are_surest_and_nan_stays() -> None:
    answer_mask = torch.tensor([[True, True, False], [True, False, True], [False, False, False], [True, True, True]])
    seen = Evidence(answers.make("token_label"), torch.zeros(4, 3, 2), 1, answer_mask)
    values = torch.tensor([[3.0, 2.0, 1.0], [3.0, math.nan, 4.0], [1.0, 1.0, math.nan], [1.0, math.nan, 2.0]])
    assert seen.least(values).tolist() == pytest.approx([2.0, 3.0, math.inf, math.nan], nan_ok=True)


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_the_key_is_all_but_the_knob(rule: Any) -> None:
    keys = {rule.at_speed(speed).certainty_key for speed in (0, 0.5, 1)} | {rule.certainty_key}
    assert len(keys) == 1
    kind = next(kind for kind in map(answers.make, answers.names()) if accepts(rule, kind))
    for seen in story(kind, rows=5)[:1]:  # one key, one certainty
        values = [rule.at_speed(speed).certainty(seen, {})[0] for speed in (0, 0.5, 1)]
        assert torch.equal(values[0], values[1]) and torch.equal(values[0], values[2])


def test_other_settings_and_other_rules_have_other_keys() -> None:
    distinct = {(type(rule), getattr(rule, "tolerance", None), getattr(rule, "top", None)) for rule in all_rules()}
    assert len({rule.certainty_key for rule in all_rules()}) == len(distinct)


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_one_bound_for_each_step(rule: Any) -> None:
    assert len(rule.bounds(ASKED)) == HEADS - 1
    assert rule.bounds(ASKED)[2:5] == rule.bounds((3, 4, 5))
