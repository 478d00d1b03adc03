"""An answer does not depend on its neighbours, on padding or on the order of the batch (promise 2)."""

from __future__ import annotations

import dataclasses
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from paredown import AdaptiveModel, Plan, exits, heads
from paredown.answers import Kind
from paredown.encoders.padded import PaddedTokens
from paredown.errors import BadPlan
from paredown.exits.entropy import normalised_entropy
from paredown.registry import answers
from paredown.registry import exits as exit_rules
from paredown.registry import heads as head_specs
from paredown.state import Evidence
from tests.families import adaptive, batch
from tests.placement import unaligned
from tests.properties.asked import asked, own, picked

CLOSE = 1e-4  # how much a logit may move, and so how close a decision may be before it may turn
LAYERS = 6
FAMILIES = ("bert", "deberta-v2", "modernbert", "albert")
EXAMPLES = max(4, settings.default.max_examples // 20)  # of every rule and kind; some 40 of every kind
LENGTH = st.integers(1, 8) | st.integers(1, 64)  # short texts are where rules for every token let rows leave
ANY_BATCH = {
    "lengths": st.integers(1, 10).flatmap(lambda rows: st.lists(LENGTH, min_size=rows, max_size=rows)),
    "padding": st.integers(0, 8),
    "seed": st.integers(0, 9999),
}


@dataclass
class Comparison:
    """What differs between rows alone and the same rows in a batch."""

    rows: int = 0
    faults: list[str] = field(default_factory=list)
    close_calls: list[str] = field(default_factory=list)  # a decision turned, but it was within CLOSE of turning
    depths: Counter = field(default_factory=Counter)

    def compare(self, model: AdaptiveModel, plan: Plan, lengths: list[int], padding: int, seed: int) -> Comparison:
        """Answer the rows shuffled, together and with extra padding; then each alone."""
        together, questions = batch(99, lengths, max(lengths) + padding, seed), asked(model.kind, len(lengths), seed)
        order = torch.randperm(len(questions), generator=torch.Generator().manual_seed(seed)).tolist()
        shuffled = model.answer(picked(model.kind, together, [questions[at] for at in order]), plan)
        for index, at in enumerate(order):
            rows = questions[at]
            length = max(lengths[row] for row in rows)
            alone = picked(model.kind, together, [rows], length)
            answer = model.answer(alone, plan)
            theirs = own(model.kind, shuffled.logits[index : index + 1], rows, length)
            what = f"rows {rows} of {len(lengths)}, {length} tokens, under {plan}"
            outputs = (answer.layers.item(), model.kind.predicted(answer.logits))
            turned = not same(model.kind, outputs, (shuffled.layers[index].item(), model.kind.predicted(theirs)))
            if turned and hangs_by_a_hair(model, plan, alone):
                self.close_calls.append(what)
            elif turned:
                self.faults.append(
                    f"{what}: left after {outputs[0]} layers alone, {shuffled.layers[index]} in the batch"
                )
            elif (moved := (answer.logits - theirs).abs().max().item()) > CLOSE:
                self.faults.append(f"{what}: logits moved by {moved:.1e}")
            self.depths[outputs[0]] += 1
            self.rows += 1
        return self


def same(kind: Kind, ours: tuple[int, Tensor], theirs: tuple[int, Tensor]) -> bool:
    """Same depth, same labels; numbers are compared as logits."""
    return ours[0] == theirs[0] and (kind.numeric or torch.equal(ours[1], theirs[1]))


@torch.no_grad()
def hangs_by_a_hair(model: AdaptiveModel, plan: Plan, alone: dict[str, Tensor]) -> bool:
    """True where moving the logits by CLOSE turns a decision; the rule is replayed on the heads' logits."""
    trace = model.trace(alone)
    printed = [(run, trace.logits[run - 1], trace.error_probability.get(run - 1)) for run in range(1, model.layers)]
    printed.append((model.layers, trace.final, None))
    answer_mask = trace.answer_mask if model.kind.per_token or model.kind.grouped else None

    def decide(nudge: float, generator: torch.Generator) -> tuple[int, Tensor]:
        memory: Any = {}
        for run, logits, estimate in printed:
            moved = logits + nudge * torch.randn(logits.shape, generator=generator).sign()
            if estimate is not None:
                estimate = estimate + nudge * torch.randn(estimate.shape, generator=generator).sign()
            evidence = Evidence(model.kind, moved, run, answer_mask, estimate)
            predictions = plan.exit.answer(evidence, memory)
            if run == model.layers:
                break
            certainty, memory = plan.exit.certainty(evidence, memory)
            if bool(certainty > plan.exit.bounds((run,))[0]):
                break
        return run, model.kind.predicted(predictions)

    still = decide(0.0, torch.Generator())
    return not all(same(model.kind, still, decide(CLOSE, torch.Generator().manual_seed(turn))) for turn in range(32))


@cache
def model_of(family: str, kind: str, head: str) -> AdaptiveModel:
    return adaptive(family, kind, head, num_hidden_layers=LAYERS)


def rules() -> list[Any]:
    """Every exit rule of the catalogue with every kind of answer it can judge."""
    found = []
    for kind in map(answers.make, answers.names()):
        for name in exit_rules.names():
            fields = {field.name for field in dataclasses.fields(exit_rules[name])}
            tolerance = {"tolerance": 0.5} if kind.numeric and "tolerance" in fields else {}
            rule = exit_rules.make(name, **tolerance)
            try:
                rule.check(kind, tuple(range(1, LAYERS)), True)
            except BadPlan:
                continue
            found.append(pytest.param(kind.name, rule, id=f"{kind.name}-{name}"))
    return found


@pytest.mark.parametrize(("kind", "rule"), rules())
def test_rows_do_not_see_their_neighbours(kind: str, rule: Any) -> None:
    seen = Comparison()

    @settings(max_examples=EXAMPLES)
    @given(
        family=st.sampled_from(FAMILIES),
        head=st.sampled_from(head_specs.names()),
        speed=st.sampled_from((0.1, 0.2, 0.4, 0.6, 0.8, 1.0)),
        **ANY_BATCH,
    )
    @example(family="bert", head="linear", speed=0.8, lengths=list(range(1, 13)), padding=3, seed=0)
    @example(family="modernbert", head="linear", speed=0.2, lengths=list(range(1, 13)), padding=3, seed=0)
    @example(family="modernbert", head="pooler", speed=0.4, lengths=list(range(1, 13)), padding=3, seed=0)
    @example(family="bert", head="pooler", speed=0.9, lengths=list(range(1, 11)), padding=3, seed=0)
    @example(family="bert", head="linear", speed=0.2, lengths=list(range(1, 9)), padding=3, seed=0)
    def check(family: str, head: str, speed: float, lengths: list[int], padding: int, seed: int) -> None:
        plan = Plan(exit=rule.at_speed(speed))
        seen.compare(model_of(family, kind, head), plan, lengths, padding, seed)
        assert not seen.faults, seen.faults[:5]

    check()
    print(f"{kind} {rule}: {seen.rows} rows, {len(seen.close_calls)} close calls, depths {dict(seen.depths)}")
    assert len(seen.close_calls) <= max(1, 0.005 * seen.rows), seen.close_calls
    # Rows must really leave at different layers, or nothing was tested.
    assert len(seen.depths) >= (1 if rule.name == "never" else 3), seen.depths


def control(model: AdaptiveModel, plan: Plan) -> Comparison:
    """A fixed batch for which a fault must show."""
    return Comparison().compare(model, plan, [40, 3, 17, 9, 1, 28], 5, seed=1)


@pytest.mark.parametrize("family", ["bert", "modernbert"])
def test_neighbours_are_not_seen_wherever_weights_lie(family: str) -> None:
    model = unaligned(adaptive(family, num_hidden_layers=LAYERS))
    seen = control(model, Plan(exit=exits.Entropy(0.2)))
    assert not seen.faults and len(seen.depths) > 1


def test_the_check_sees_a_decision_of_the_whole_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    model, plan = model_of("bert", "single_label", "pooler"), Plan(exit=exits.Entropy(0.2))
    fair = control(model, plan)
    assert not fair.faults and len(fair.depths) > 1
    alone = exits.Entropy.certainty

    def when_all_agree(self: Any, evidence: Evidence, memory: Any) -> Any:
        certainty, memory = alone(self, evidence, memory)
        return certainty.amin().expand(len(certainty)), memory

    monkeypatch.setattr(exits.Entropy, "certainty", when_all_agree)
    assert any("left after" in fault for fault in control(model, plan).faults)


def test_the_check_sees_padding_leak_into_a_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    model, plan = adaptive("bert", head=heads.Pooler("mean")), Plan(exit=exits.AtLayer(2))
    assert not control(model, plan).faults
    monkeypatch.setattr(PaddedTokens, "pooled", lambda self, pool: self.hidden.mean(1))
    assert any("logits moved" in fault for fault in control(model, plan).faults)


@torch.no_grad()
def test_only_a_close_call_is_excused() -> None:
    model, row = model_of("bert", "single_label", "pooler"), batch(99, [12])
    turning = normalised_entropy(model.kind.log_probs(model.trace(row).logits[0]), 3).item()
    assert hangs_by_a_hair(model, Plan(exit=exits.Entropy(turning)), row)
    assert not hangs_by_a_hair(model, Plan(exit=exits.Entropy(turning + 0.01)), row)
