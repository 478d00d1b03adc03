"""A replay answers what the model would answer, for every rule and kind; and it is fast."""

from __future__ import annotations

import math
import random
import time
from collections import Counter
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from benchmarks.replay import one_by_one
from paredown import AdaptiveModel, Plan
from paredown.answers import RULED_OUT, collate
from paredown.errors import BadInput, BadPlan
from paredown.evaluation import (
    SPEEDS,
    Bill,
    Cost,
    Record,
    Work,
    curve,
    metric_for,
    metric_named,
    record,
    replay,
    sweep,
)
from paredown.evaluation.metrics import answer_and_support_f1, span_f1
from paredown.exits import Entropy
from paredown.registry import answers, exits
from tests.evaluation.made import encoded, sst2
from tests.families import adaptive
from tests.properties.asked import own
from tests.properties.test_batch_invariance import CLOSE, hangs_by_a_hair, rules

LENGTH = st.integers(1, 8) | st.integers(1, 40)  # short texts are where rules for every token let rows leave
FAMILIES = ("bert", "albert", "modernbert")


class Padding:
    pad_token_id = 1


@cache
def model_of(family: str, kind: str) -> AdaptiveModel:
    return adaptive(family, kind, tokenizer=Padding(), num_hidden_layers=6)


@pytest.mark.parametrize(("kind", "rule"), rules())
def test_a_replay_is_the_answer(kind: str, rule: Any) -> None:
    depths: Counter = Counter()
    close = []

    @settings(max_examples=max(3, settings.default.max_examples // 50))
    @given(
        family=st.sampled_from(FAMILIES),
        speed=st.floats(0.05, 1),
        lengths=st.lists(LENGTH, min_size=1, max_size=12),
        seed=st.integers(0, 9999),
    )
    @example(family="bert", speed=1.0, lengths=list(range(1, 25)), seed=0)
    @example(family="albert", speed=1.0, lengths=list(range(1, 13)), seed=3)
    @example(family="bert", speed=0.3, lengths=list(range(1, 17)), seed=2)
    @example(family="modernbert", speed=0.5, lengths=list(range(1, 17)), seed=1)
    def check(family: str, speed: float, lengths: list[int], seed: int) -> None:
        model, at = model_of(family, kind), rule.at_speed(speed)
        rows = encoded(kind, lengths, seed)
        done = replay(record(model, rows, batch_size=5), at)
        batch = collate(rows, 1)
        batch.pop("labels")
        answer = model.answer(batch, Plan(exit=at))
        for row, length in enumerate(lengths):
            depths[done.layers[row].item()] += 1
            printed = (done.logits[row : row + 1], answer.logits[row : row + 1])
            ours, theirs = (own(model.kind, logits, rows[row].options, length) for logits in printed)
            same = done.layers[row] == answer.layers[row] and torch.allclose(ours, theirs, atol=CLOSE)
            if not same:
                alone = collate([replace(rows[row], label=None)], 1)
                assert hangs_by_a_hair(model, Plan(exit=at), alone), f"row {row} of {lengths} under {at}"
                close.append(row)

    check()
    assert len(close) <= 0.01 * depths.total()
    assert len(depths) >= (1 if rule.name == "never" else 3), depths


@cache
def recorded(kind: str) -> Record:
    """What six heads say of 40 rows, some much surer than others; two rows answer NaN on the way."""
    chance = torch.Generator().manual_seed(4)
    seen = record(model_of("bert", kind), encoded(kind, torch.randint(1, 9, (40,), generator=chance).tolist()))
    logits = {}
    for step, outputs in seen.logits.items():
        scale = torch.rand(40, generator=chance).mul(6).exp().view(-1, *[1] * (outputs.dim() - 1))
        logits[step] = torch.where(outputs == RULED_OUT, outputs, outputs * scale)
        if step < seen.stops[-1] and not seen.windows:  # what is NaN cannot be decoded
            logits[step][:2] = math.nan
    return replace(seen, logits=logits)


def metrics_of(kind: str) -> list[Any]:
    """The usual one, two that are no mean over answers, and one of one's own."""
    more = [metric_named(name) for name in ("f1", "accuracy_and_f1")] if kind == "single_label" else []
    if metric_for(answers.make(kind)) not in (span_f1, answer_and_support_f1):  # these compare texts
        more.append(lambda predicted, labels: float(predicted.sum() + 2 * labels.sum()))
    return [metric_for(answers.make(kind)), *more]


@pytest.mark.parametrize(("kind", "rule"), rules())
def test_all_thresholds_at_once_are_single_replays(kind: str, rule: Any) -> None:
    seen, chance = replace(recorded(kind)), random.Random(str(rule))
    many = [rule.at_speed(at) for at in (0.0, 1.0, 0.5, *(chance.random() ** 2 for _ in range(9)))]
    if rule.knob and type(rule).per_layer:
        many.insert(1, replace(rule, **{rule.knob: tuple(getattr(at, rule.knob) for at in many[4:10])}))
    done = [one_by_one(seen, at) for at in many]
    for at, wanted in zip(many, done, strict=True):
        found = replay(seen, at)
        assert torch.equal(found.layers, wanted.layers)
        assert torch.equal(found.logits.nan_to_num(), wanted.logits.nan_to_num())
    cost = Cost(Work(0, 7), tuple(Work(1, layer, 3) for layer in range(6)), Work(0, 0, 5), {})
    bill, alone = Bill(seen, cost), replace(seen)
    for metric in metrics_of(kind):
        for point, one in zip(curve(seen, many, metric, cost), done, strict=True):
            figures = {"score": alone.score(one.logits, metric), **bill.mean(one.layers)}
            assert {name: point[name] for name in figures} == pytest.approx(figures, rel=1e-12, nan_ok=True)


def test_a_certainty_is_computed_once_for_all_thresholds(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, entropy = [], Entropy.certainty
    monkeypatch.setattr(Entropy, "certainty", lambda *given: asked.append(given) or entropy(*given))
    seen, metric = sst2(50), metric_named("accuracy")
    curve(seen, [rule for _, rule in sweep(Entropy())], metric)
    replay(seen, Entropy(0.2))
    assert len(asked) == 11  # once for each head before the end


def test_a_thousand_thresholds_of_each_rule_take_a_second() -> None:
    seen, metric, cost = sst2(), metric_named("accuracy"), Cost.of(adaptive("bert", num_hidden_layers=12))
    wanted = [exits.make(name) for name in exits.names()]
    start = time.process_time()
    points = [curve(seen, [rule.at_speed(step / 1000) for step in range(1000)], metric, cost) for rule in wanted]
    seconds = time.process_time() - start
    print(f"{sum(map(len, points))} points in {seconds:.2f} s")
    assert sum(map(len, points)) == 1000 * len(wanted)
    assert seconds < 3  # about 0.6 on a core of its own; a pass for each would take 20


def test_points_say_score_and_cost() -> None:
    seen, metric = sst2(), metric_named("accuracy")
    (point,) = curve(seen, [exits.parse("at_layer:3")], metric)
    assert point == {
        "rule": "at_layer:3",
        "score": seen.scores(metric)[3],
        "layers": 3.0,
        "speedup": 4.0,
        "token_layers": pytest.approx(3 * seen.lengths.double().mean().item()),
    }
    (end,) = curve(seen, [None], metric)
    assert end["score"] == seen.scores(metric)[12] and end["rule"] == "full depth"


def test_a_sweep_leaves_out_speeds_without_a_difference() -> None:
    swept = sweep(exits.make("patience"))
    assert [rule.patience for _, rule in swept] == sorted({rule.patience for _, rule in swept}, reverse=True)
    assert len(sweep(exits.make("entropy"))) == len(SPEEDS) == 112
    assert SPEEDS[0] < 1e-5 and 1 - 1e-5 < SPEEDS[-2] < SPEEDS[-1] == 1  # fine steps where heads are sure, and unsure
    assert sweep(exits.make("never")) == [(SPEEDS[0], exits.make("never"))]


def test_without_heads_there_is_no_exit_to_replay() -> None:
    model = adaptive("bert", head=None, tokenizer=Padding())
    seen = record(model, encoded("single_label", [3, 9]))
    assert seen.stops == [4] and len(replay(seen, None).logits) == 2
    with pytest.raises(BadPlan, match="no exit"):
        replay(seen, exits.parse("entropy:0.5"))


def test_no_rows_and_no_labels_are_errors() -> None:
    with pytest.raises(BadInput, match="no rows"):
        record(model_of("bert", "single_label"), [])
    seen = sst2(10)
    with pytest.raises(BadInput, match="without labels"):
        type(seen)(seen.kind, seen.logits, {}, None, seen.lengths).scores(metric_named("accuracy"))
