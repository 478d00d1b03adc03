"""Dropping tokens is an axis of its own: it needs no model code, no other axis, and no neighbours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from paredown import Plan
from paredown.encoders.walk import Walk
from paredown.errors import BadPlan
from paredown.registry import reducers
from tests.families import EVERY_TOKEN, EXACT, adaptive, batch, tiny, walked
from tests.walking import through

DROPPING = ("albert", "bert", "distilbert", "electra", "modernbert", "mpnet", "roberta")
LENGTHS = [14, 3, 30, 1, 9]


@dataclass(frozen=True)
class Sieve:
    """Drops about every third token, other ones in every row and never the first."""

    layers: tuple[int, ...] = (1, 3)

    reads_attention = False

    def check(self, network: Any, depth: tuple[int, ...]) -> None:
        pass

    def layers_of(self, network: Any, depth: tuple[int, ...]) -> tuple[int, ...]:
        return self.layers

    def keep(self, state: Any, scores: Any) -> Tensor:
        mixed = state.position * (1 + state.mask.sum(1, keepdim=True)) + state.steps
        return (mixed % 3 != 0) | (state.position == 0)


@pytest.fixture(autouse=True)
def sieve(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the catalogue for one test only: contract tests run over what is in it."""
    monkeypatch.setattr(Sieve, "name", "sieve", raising=False)
    monkeypatch.setitem(reducers._classes, "sieve", Sieve)


def row(inputs: dict[str, Tensor], index: int, length: int) -> dict[str, Tensor]:
    return {name: value[index : index + 1, :length] for name, value in inputs.items()}


def hidden_in_the_middle() -> dict[str, Tensor]:
    inputs = batch(99, [14, 9, 12])
    inputs["attention_mask"][0, 4:7] = 0
    inputs["attention_mask"][1, [2, 5]] = 0
    return inputs


@pytest.mark.parametrize("family", DROPPING)
@pytest.mark.parametrize("exit", [None, "patience:1"])
def test_rows_do_not_see_their_neighbours(family: str, exit: str | None) -> None:
    model, plan = adaptive(family), Plan(exit=exit, reduce="sieve")
    inputs = batch(99, LENGTHS, width=33)
    together = model.answer(inputs, plan)
    for index, length in enumerate(LENGTHS):
        alone = model.answer(row(inputs, index, length), plan)
        assert (alone.layers.item(), alone.tokens.item()) == (together.layers[index], together.tokens[index])
        assert torch.allclose(alone.logits[0], together.logits[index], atol=1e-4, rtol=0)
    assert not torch.allclose(together.logits, model.answer(inputs, Plan(exit=exit)).logits, atol=1e-4)


@pytest.mark.parametrize("family", walked(EXACT))
@torch.no_grad()
def test_dropping_what_is_hidden_changes_nothing(family: str) -> None:
    walk, inputs = Walk(tiny(family)), hidden_in_the_middle()
    hidden, cut = walk.embed(inputs), walk.embed(inputs, joinable=True)
    cut = cut.drop(cut.mask)
    assert cut.hidden.shape[1] < hidden.hidden.shape[1]
    hidden, cut = (through(walk, state, range(len(walk.layers))) for state in (hidden, cut))
    assert torch.allclose(hidden.hidden[hidden.mask], cut.hidden[cut.mask], atol=1e-5, rtol=0)
    assert torch.allclose(hidden.hidden[hidden.mask], cut.full_sequence()[hidden.mask], atol=1e-5, rtol=0)
    ours, theirs = (walk.stock_logits(state.hidden, state.mask) for state in (cut, hidden))
    assert torch.allclose(ours, theirs, atol=1e-5, rtol=0)


@pytest.mark.parametrize("family", walked(EVERY_TOKEN))
def test_families_that_cannot_drop_tokens_say_so(family: str) -> None:
    model = adaptive(family)
    with pytest.raises(BadPlan, match="none can be dropped"):
        model.answer(batch(99, LENGTHS), Plan(reduce="sieve"))


@pytest.mark.parametrize("family", DROPPING)
@torch.no_grad()
def test_dropped_tokens_come_back_as_they_were(family: str) -> None:
    walk = Walk(tiny(family))
    state = walk.embed(batch(99, [12, 7]), joinable=True)
    states = []
    for layer, dropped in enumerate([(3, 5), (1,), ()]):
        keep = torch.ones_like(state.mask)
        for index in dropped:
            keep &= state.position != index
        states.append(state.full_sequence())
        state = through(walk, state.drop(keep), [layer])
    back = state.full_sequence()
    assert state.position[0, :9].tolist() == [0, 2, 4, 6, 7, 8, 9, 10, 11]
    assert torch.equal(back[:, [3, 5]], states[0][:, [3, 5]])
    assert torch.equal(back[:, 1], states[1][:, 1])
    assert torch.equal(back[0, state.position[0, :9]], state.hidden[0, :9])
    assert not torch.equal(back[:, 0], states[1][:, 0])


def test_every_token_is_answered_though_some_were_dropped() -> None:
    model = adaptive("bert", "token_label")
    inputs = batch(99, LENGTHS)
    answer = model.answer(inputs, Plan(reduce="sieve"))
    assert answer.logits.shape == (len(LENGTHS), max(LENGTHS), 3)
    for index, length in enumerate(LENGTHS):
        alone = model.answer(row(inputs, index, length), Plan(reduce="sieve"))
        assert torch.allclose(alone.logits[0], answer.logits[index, :length], atol=1e-4, rtol=0)


def test_reported_tokens_are_the_real_ones_of_every_layer() -> None:
    model, plan = adaptive("bert"), Plan(exit="patience:1", reduce="sieve")
    inputs = batch(99, LENGTHS)
    answer = model.answer(inputs, plan)
    for index, length in enumerate(LENGTHS):
        left, work = list(range(length)), 0
        for layer in range(int(answer.layers[index])):
            if layer in plan.reduce.layers:
                left = [at for at in left if (at * (1 + len(left)) + layer) % 3 != 0 or at == 0]
            work += len(left)
        assert answer.tokens[index] == work
    assert answer.tokens.sum() < (answer.layers * torch.tensor(LENGTHS)).sum()


def test_protected_tokens_stay_and_the_first_always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sieve, "keep", lambda self, state, scores: torch.zeros_like(state.mask))
    monkeypatch.setattr(Sieve, "layers_of", lambda self, network, depth: depth)
    model, inputs = adaptive("bert", head=None), batch(99, LENGTHS)
    answer = model.answer(inputs, Plan(reduce="sieve"))
    assert answer.tokens.tolist() == [4] * len(LENGTHS)  # one token in each of four layers
    inputs["protected"] = torch.zeros_like(inputs["attention_mask"], dtype=torch.bool)
    inputs["protected"][:, 2:4] = True
    answer = model.answer(inputs, Plan(reduce="sieve"))
    assert answer.tokens.tolist() == [4 * (1 + min(max(length - 2, 0), 2)) for length in LENGTHS]


@pytest.mark.parametrize("family", ["bert", "albert", "deberta-v2", "modernbert"])
@torch.no_grad()
def test_any_depth_runs(family: str) -> None:
    model, inputs = adaptive(family), batch(99, LENGTHS)
    trace = model.trace(inputs, depth=(0, 1))
    truncated = model.answer(inputs, Plan(depth=(0, 1)))
    assert torch.equal(truncated.logits, trace.logits[1]) and truncated.layers.tolist() == [2] * len(LENGTHS)
    assert torch.equal(trace.logits[1], model.trace(inputs).logits[1])
    for depth in ((0, 2, 3), (3, 1), (2,)):
        state = through(model.walk, model.walk.embed(inputs), depth)
        answer = model.answer(inputs, Plan(depth=depth))
        assert answer.layers.tolist() == [len(depth)] * len(LENGTHS)
        assert answer.tokens.tolist() == [len(depth) * length for length in LENGTHS]
        if depth[-1] == 3:  # no head after the last layer: the model's own classifier speaks
            assert torch.equal(answer.logits, model.walk.stock_logits(state.hidden, state.mask))
    with pytest.raises(BadPlan, match="layers 0 to 3"):
        model.answer(inputs, Plan(depth=(0, 4)))
