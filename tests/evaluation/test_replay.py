"""A replay answers what the model would answer, for every rule and kind; and it is fast."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from paredown import AdaptiveModel, Plan
from paredown.answers import collate
from paredown.errors import BadInput, BadPlan
from paredown.evaluation import SPEEDS, Cost, curve, metric_named, record, replay, sweep
from paredown.registry import exits
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

    @settings(max_examples=max(5, settings.default.max_examples // 50))
    @given(
        family=st.sampled_from(FAMILIES),
        speed=st.floats(0.05, 1),
        lengths=st.lists(LENGTH, min_size=1, max_size=12),
        seed=st.integers(0, 9999),
    )
    @example(family="bert", speed=1.0, lengths=list(range(1, 25)), seed=0)
    @example(family="albert", speed=1.0, lengths=list(range(1, 25)), seed=3)
    @example(family="bert", speed=0.5, lengths=list(range(1, 17)), seed=1)
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
            heard = (done.logits[row : row + 1], answer.logits[row : row + 1])
            ours, theirs = (own(model.kind, logits, rows[row].options, length) for logits in heard)
            same = done.layers[row] == answer.layers[row] and torch.allclose(ours, theirs, atol=CLOSE)
            if not same:
                alone = collate([replace(rows[row], label=None)], 1)
                assert hangs_by_a_hair(model, Plan(exit=at), alone), f"row {row} of {lengths} under {at}"
                close.append(row)

    check()
    assert len(close) <= 0.01 * depths.total()
    assert len(depths) >= (1 if rule.name == "never" else 3), depths


def test_a_sweep_takes_under_two_seconds() -> None:
    seen, metric, cost = sst2(), metric_named("accuracy"), Cost.of(adaptive("bert", num_hidden_layers=12))
    wanted = [exits.make(name) for name in ("entropy", "confidence", "margin", "ensemble", "learned", "top_entropy")]
    start = time.process_time()
    points = [curve(seen, [rule.at_speed(speed) for speed in SPEEDS], metric, cost) for rule in wanted]
    seconds = time.process_time() - start
    print(f"{sum(map(len, points))} points in {seconds:.2f} s")
    assert sum(map(len, points)) == 600
    assert seconds < 2


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
    assert len(sweep(exits.make("entropy"))) == len(SPEEDS) == 100
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
