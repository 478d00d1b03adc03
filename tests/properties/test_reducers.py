"""Every reducer of the catalogue, on every kind of answer and with every other axis: no row sees its neighbours, no
state is lost, no work is miscounted."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from paredown import AdaptiveModel, Answer, Plan
from paredown.answers import collate
from paredown.encoders.padded import PaddedState
from paredown.encoders.walk import Walk
from paredown.engine import run_steps
from paredown.evaluation import record, replay
from paredown.reducers import FixedShare
from paredown.registry import answers, methods
from tests import placement
from tests.contracts.reducer_settings import all_reducers, choosing, with_selectors
from tests.evaluation.made import encoded
from tests.families import adaptive, batch
from tests.grids import combinations
from tests.properties.asked import asked, own, picked
from tests.properties.test_tokens import LENGTHS, row

CLOSE = 1e-4  # how much a logit may move between rows alone and in a batch
NUDGE = 3e-6  # what rounding may do to a state; a choice that this turns is a close call
FAMILIES = ("bert", "distilbert", "modernbert", "mpnet", "roberta")
SHOWN = ("bert", "distilbert", "modernbert", "roberta")  # whose attention can be watched
RULES = {"regression": ("patience:1,tolerance=0.5",), "": ("entropy:0.6", "patience:1", "ensemble:0.6")}


KINDS = answers.names()


def close(model: AdaptiveModel, ours: Answer, theirs: Answer) -> bool:
    """The same layers, tokens and labels, and logits that moved by no more than rounding does."""
    same = ours.layers.item() == theirs.layers.item() and ours.tokens.item() == theirs.tokens.item()
    labels = model.kind.numeric or torch.equal(*map(model.kind.predicted, (ours.logits, theirs.logits)))
    return same and labels and bool((ours.logits - theirs.logits).abs().max() <= CLOSE)


def hangs_by_a_hair(model: AdaptiveModel, plan: Plan, alone: dict[str, Tensor]) -> bool:
    """True where moving the states, and the attention, by as much as rounding may turns a choice or an exit."""
    still, usual = model.answer(alone, plan), Walk.run
    for seed in range(24):
        generator = torch.Generator().manual_seed(seed)

        def nudged(value: Tensor) -> Tensor:
            return value + NUDGE * torch.randn(value.shape, generator=generator).sign()  # noqa: B023

        def step(*call: Any) -> Any:
            state = usual(*call)
            received = None if state.received is None else nudged(state.received)
            return replace(state, hidden=nudged(state.hidden), received=received)

        with mock.patch.object(Walk, "run", step):
            if not close(model, still, model.answer(alone, plan)):
                return True
    return False


@dataclass
class Compared:
    """Rows alone against the same rows shuffled, together and with more padding."""

    rows: int = 0
    left: list[float] = field(default_factory=list)  # the share of the work that was done
    faults: list[str] = field(default_factory=list)
    close_calls: list[str] = field(default_factory=list)

    def compare(self, model: AdaptiveModel, plan: Plan, lengths: list[int], padding: int, seed: int) -> Compared:
        inputs, questions = batch(99, lengths, max(lengths) + padding, seed), asked(model.kind, len(lengths), seed)
        order = torch.randperm(len(questions), generator=torch.Generator().manual_seed(seed)).tolist()
        shuffled = model.answer(picked(model.kind, inputs, [questions[at] for at in order]), plan)
        for index, at in enumerate(order):
            rows = questions[at]
            length = max(lengths[row] for row in rows)
            alone = picked(model.kind, inputs, [rows], length)
            ours = model.answer(alone, plan)
            theirs = Answer(*(getattr(shuffled, name)[index : index + 1] for name in ("logits", "layers", "tokens")))
            theirs.logits = own(model.kind, theirs.logits, rows, length)
            if not close(model, ours, theirs):
                found = self.close_calls if hangs_by_a_hair(model, plan, alone) else self.faults
                found.append(f"rows {rows} of {lengths}, {ours.tokens.item()} or {theirs.tokens.item()} tokens, {plan}")
            self.left.append(ours.tokens.item() / (sum(lengths[row] for row in rows) * ours.layers.item()))
            self.rows += 1
        return self


@pytest.mark.parametrize("kind", answers.names())
@pytest.mark.parametrize("reducer", all_reducers(), ids=str)
def test_tokens_are_chosen_without_neighbours(reducer: Any, kind: str) -> None:
    seen = Compared()

    @settings(max_examples=max(3, settings.default.max_examples // 30))
    @given(
        family=st.sampled_from(SHOWN if reducer.reads_attention else FAMILIES),
        exit=st.none() | st.sampled_from(RULES.get(kind, RULES[""])),
        lengths=st.lists(st.integers(1, 8) | st.integers(1, 64), min_size=2, max_size=8),
        padding=st.integers(0, 8),
        seed=st.integers(0, 9999),
    )
    def check(family: str, exit: str | None, lengths: list[int], padding: int, seed: int) -> None:
        seen.compare(choosing(family, kind), Plan(exit=exit, reduce=reducer), lengths, padding, seed)
        assert not seen.faults, seen.faults[:5]

    check()
    print(f"{seen.rows} rows, {len(seen.close_calls)} close calls, {sum(seen.left) / seen.rows:.2f} of the work")
    assert len(seen.close_calls) <= max(1, 0.01 * seen.rows), seen.close_calls
    assert sum(seen.left) / seen.rows < 0.95, "tokens must go, or nothing was tested"


def control(model: AdaptiveModel, plan: Plan) -> list[str]:
    """A fixed batch for which a fault must show."""
    return Compared().compare(model, plan, [40, 3, 17, 9, 1, 28], 5, seed=1).faults


def test_the_check_sees_one_count_for_the_whole_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    model, plan = choosing("bert"), Plan(reduce="fixed_share:0.5")
    assert not control(model, plan)
    fair = FixedShare.kept_of
    monkeypatch.setattr(FixedShare, "kept_of", lambda self, tokens: fair(self, tokens.max().expand_as(tokens)))
    assert control(model, plan)


def test_the_check_sees_states_added_where_they_should_be_put(monkeypatch: pytest.MonkeyPatch) -> None:
    model, plan = choosing("bert", "token_label"), Plan(reduce="selector:0.5")
    assert not control(model, plan)

    def added(self: PaddedState) -> Tensor:
        if self.parked is None:
            return self.hidden
        return self.parked.scatter_add(1, self.position.unsqueeze(-1).expand_as(self.hidden), self.hidden)

    monkeypatch.setattr(PaddedState, "full_sequence", added)
    assert control(model, plan)
    with pytest.raises(AssertionError):
        test_what_a_reducer_drops_keeps_its_last_state(all_reducers()[-1], "bert")


@pytest.mark.parametrize("family", ["bert", "modernbert"])
@pytest.mark.parametrize("reducer", all_reducers(), ids=str)
@torch.no_grad()
def test_what_a_reducer_drops_keeps_its_last_state(reducer: Any, family: str) -> None:
    model, plan, inputs = choosing(family), Plan(reduce=reducer), batch(99, LENGTHS)
    state = model.embed(inputs, joinable=True)
    last, alive = state.full_sequence(), state.mask
    for step in model.route(plan).steps:
        before, state = state.full_sequence(), run_steps(model.walk, [step], state)
        still = torch.zeros_like(alive)
        for at, positions in enumerate(state.position):
            still[at, positions[state.mask[at]]] = True
        last = torch.where((alive & ~still).unsqueeze(-1), before, last)  # as they were when they were dropped
        alive = still
    back, dropped = state.full_sequence(), inputs["attention_mask"].bool() & ~alive
    assert bool(dropped.any()) and torch.equal(back[dropped], last[dropped])
    assert torch.equal(back[alive], state.hidden[state.mask])


@pytest.mark.parametrize("reducer", all_reducers(), ids=str)
def test_work_is_counted_as_it_is_done(reducer: Any) -> None:
    """Hooks see how many tokens every layer and every selector really gets."""
    model, ran, chosen = with_selectors(adaptive("bert")), [], []
    for layer in model.walk.layers:
        layer.register_forward_hook(lambda module, args, output: ran.append(args[0].shape[1]))
    for selector in model.selectors.values():
        selector.register_forward_hook(lambda module, args, output: chosen.append(args[0].shape[1]))
    inputs, plan = batch(99, LENGTHS), Plan(exit="patience:1", reduce=reducer)
    together = model.answer(inputs, plan)
    for index, length in enumerate(LENGTHS):
        ran.clear(), chosen.clear()
        alone = model.answer(row(inputs, index, length), plan)
        assert (len(ran), sum(ran)) == (alone.layers.item(), alone.tokens.item())
        assert together.tokens[index] == alone.tokens.item()
        before = [
            ran[at - 1] for at in reducer.layers_of(model, model.depth) if at < len(ran) and not reducer.reads_attention
        ]
        assert chosen == before  # a selector looks at all that the layer before had


@pytest.mark.parametrize("reducer, kind", combinations(all_reducers(), answers.names(), times=2))
def test_replaying_a_record_is_answering(reducer: Any, kind: str, tokenizer: Any) -> None:
    model = with_selectors(adaptive("bert", kind, tokenizer=tokenizer))
    rows = encoded(kind, LENGTHS)
    for exit in RULES.get(kind, RULES[""]):
        plan = Plan(depth=(0, 1, 2, 3), exit=exit, reduce=reducer)
        seen = record(model, rows, batch_size=2, plan=plan)
        done = replay(seen, plan.exit)
        for index, one in enumerate(rows):
            inputs = collate([one], 1)
            inputs.pop("labels")
            answer = model.answer(inputs, plan)
            outputs = done.logits[index : index + 1]
            assert answer.layers.item() == done.layers[index]
            assert answer.tokens.item() == seen.summed(seen.tokens)[index, : answer.layers.item()].sum()
            assert torch.allclose(answer.logits, own(model.kind, outputs, one.options, len(one)), atol=CLOSE)


# All axes at once


def with_successors(tokenizer: Any = None) -> AdaptiveModel:
    """Three layers grown beside the six, with heads and selectors of their own."""
    model = adaptive("bert", head=None, tokenizer=tokenizer, num_hidden_layers=6)
    methods.of("module_replacing:layers=(0,2,4)").grow(model)
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in model.grown.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
        model.grow_heads("pooler")
        for parameter in model.heads.parameters():
            parameter.copy_(torch.randn_like(parameter) * parameter.shape[-1] ** -0.5)
    return with_selectors(model)


REDUCERS = ("selector:0.5", "fixed_share:0.5", "fixed_share:0.5,score=attention", "attention:1")


@pytest.mark.parametrize("reducer, depth", combinations(REDUCERS, (None, (0, 1, 3), (6, 7, 8), (0, 7, 4, 8)), times=2))
def test_depth_exit_and_tokens_compose(
    reducer: str, depth: tuple[int, ...] | None, tmp_path: Path, tokenizer: Any
) -> None:
    model = (
        with_successors(tokenizer)
        if depth and depth[-1] == 8
        else with_selectors(adaptive("bert", tokenizer=tokenizer))
    )
    plan = Plan(depth, "entropy:0.3", reduce=reducer)
    seen = Compared().compare(model, plan, [40, 3, 17, 9, 1, 28], 5, seed=1)
    assert not seen.faults and not seen.close_calls and sum(seen.left) / seen.rows < 0.95
    inputs = batch(99, LENGTHS)
    answer, full = model.answer(inputs, plan), model.answer(inputs, plan.but(exit=None, reduce=None))
    assert bool((answer.layers <= full.layers).all()) and bool((answer.tokens < full.tokens).any())
    assert not torch.equal(answer.logits, full.logits)
    model.plan = plan
    model.save_pretrained(tmp_path / "bundle")
    again = AdaptiveModel.from_pretrained(tmp_path / "bundle")
    assert again.plan == plan and placement.close(again.answer(inputs).logits, answer.logits)
