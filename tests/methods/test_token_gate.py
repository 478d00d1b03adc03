"""Gates: soft masks are as good as cutting out, gradients are those of attention times the gate, targets are met."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from paredown import AdaptiveModel, Plan
from paredown.encoders import arguments
from paredown.engine import Observer
from paredown.errors import BadSetting
from paredown.evaluation import metric_named, record
from paredown.methods import SelfDistill, TokenGate, token_gate
from paredown.methods._stage import Progress
from paredown.methods._targets import PRICE, REACH, STIFF, price_of
from paredown.methods._teacher import teacher_logits, update_teacher
from paredown.methods.token_gate import gate_of, soft_masked, takes_soft_masks
from paredown.registry import answers
from paredown.training import train
from tests.families import EXACT, adaptive, batch, outputs, walked
from tests.grids import halved
from tests.methods.test_token_policy import kept_share
from tests.placement import agree
from tests.training.tiny import Steps, bits, rows, stage, tiny
from tests.walking import through

QUICK = {"epochs": 0, "gate_epochs": 2, "gate_lr": 1e-3, "batch_size": 8}
LENGTHS = [14, 3, 30, 1, 9]
REDUCED = Plan(reduce="selector:0.5")


def opinionated(family: str, kind: str = "single_label", head: str | None = None, **changes: Any) -> AdaptiveModel:
    """Selectors that drop some tokens before each layer."""
    model = adaptive(family, kind, head, **changes)
    model.grow_selectors()
    torch.manual_seed(3)
    with torch.no_grad():
        for parameter in model.selectors.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.4)
    return model.eval()


@pytest.mark.parametrize("family", walked(EXACT))
@torch.no_grad()
def test_soft_masked_tokens_are_as_good_as_dropped(family: str) -> None:
    model, inputs = opinionated(family), batch(99, LENGTHS)
    TokenGate().check(model)
    answer = model.answer(inputs, REDUCED)
    trace, share = soft_masked(model, inputs)
    assert torch.allclose(trace.final, answer.logits, atol=1e-4, rtol=0)
    assert torch.allclose(torch.tensor(LENGTHS) * (1 + 3 * share), answer.tokens.float())  # one layer of four is full
    assert answer.tokens.sum() < 4 * sum(LENGTHS)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize(
    ("kind", "head"),
    [("single_label", "linear:pool=mean"), ("single_label", "attention"), ("single_label", "linear:pool=max")]
    + [(kind, head) for kind in answers.names() if answers.make(kind).per_token for head in ("linear", "attention")],
)
@torch.no_grad()
def test_soft_masked_answers_are_those_of_dropping(kind: str, head: str, attention: str) -> None:
    model = opinionated("bert", kind, head, attn_implementation=attention, num_labels=outputs(kind))
    inputs = batch(99, LENGTHS)
    for layers, logits in soft_masked(model, inputs)[0].logits.items():
        dropped = model.answer(inputs, REDUCED.but(exit=f"at_layer:{layers + 1}")).logits
        real = inputs["attention_mask"].bool() if model.kind.per_token else slice(None)
        assert torch.allclose(logits[real], dropped[real], atol=1e-4, rtol=0)


def test_gradients_are_those_of_attention_multiplied_by_the_gate() -> None:
    """By finite differences in 64 bits: at an open, a half open and a closed gate."""
    walk = adaptive("bert", head=None, attn_implementation="eager").double().walk
    start = walk.embed(batch(99, [6, 4]), joinable=True)

    def summed(gate: Tensor) -> Tensor:
        return (through(walk, start.soft_masked(gate), [0]).hidden[:, 0] * torch.arange(64.0).view(2, 32).sin()).sum()

    gate = torch.ones(2, 6, dtype=torch.double)
    gate[0, 2], gate[0, 3], gate[1, 1] = 0.5, 1e-3, 0.0
    (gradient,) = torch.autograd.grad(summed(gate.requires_grad_()), gate)
    assert gradient[:, 0].abs().max() == 0 and gradient[1, 4:].abs().max() == 0  # the first stays, padding is none
    for index in ((0, 1), (0, 2), (0, 3), (1, 1)):
        nudge = torch.zeros_like(gate)
        nudge[index] = 1e-5
        there, here = summed(gate.detach() + nudge), summed(gate.detach() - (gate[index].item() > 0) * nudge)
        slope = (there - here) / (1e-5 * (1 + (gate[index].item() > 0)))
        assert slope.item() == pytest.approx(gradient[index].item(), rel=1e-3) and slope.abs() > 1e-6


def test_a_step_is_hard_and_its_gradient_soft() -> None:
    logits = torch.tensor([-2.0, -0.1, 0.0, 3.0], requires_grad=True)
    gate = gate_of(logits, noise=0.0)
    assert gate.tolist() == [0.0, 0.0, 1.0, 1.0]
    (gradient,) = torch.autograd.grad(gate.sum(), logits)
    torch.testing.assert_close(gradient, (logits.sigmoid() * (1 - logits.sigmoid())).detach())
    torch.manual_seed(0)
    often = gate_of(torch.full((20_000,), 1.0), noise=1.0).mean()  # logistic noise: open as often as the chance says
    assert often.item() == pytest.approx(torch.tensor(1.0).sigmoid().item(), abs=0.015)


def test_all_that_can_learn_has_gradients() -> None:
    method = TokenGate(target_keep=0.5)
    model = adaptive("bert")
    method.grow(model)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(method.stages(model)[1].trains(name))
    inputs = batch(99, LENGTHS)
    method._gates(model, inputs, Progress(3, 10)).backward()
    touched = {name for name, parameter in model.named_parameters() if parameter.grad is not None}
    assert touched >= {name for name, _ in model.named_parameters() if name.startswith(("selectors.", "heads."))}
    assert not any(name.startswith(("companions.teacher.", "error_probability.")) for name in touched)


def test_tokens_are_kept_at_first_and_trained_selectors_stay_as_they_are() -> None:
    model = adaptive("bert", head=None)
    TokenGate(start=2.0).grow(model)
    assert [selector.out.bias.item() for selector in model.selectors.values()] == [2.0, 2.0]
    assert model.answer(batch(99, LENGTHS), REDUCED).tokens.tolist() == [4 * length for length in LENGTHS]
    before = bits(model)
    TokenGate(start=3.0).grow(model)
    assert bits(model) == before


def test_the_price_by_hand() -> None:
    model = adaptive("bert", head=None)
    TokenGate().grow(model)
    learned = model.get_parameter(PRICE)
    with torch.no_grad():
        learned.fill_(0.0015)
    price, learning = price_of(model, torch.tensor(0.7), 0.5, Progress(0, 200), 1e-3)
    assert price.item() == pytest.approx(0.0015 * REACH / (1e-3 * 200) + STIFF * 0.2) and learning.item() == 0
    learning.backward()
    assert learned.grad is not None and learned.grad.item() < 0  # too many are kept, so descent makes the price rise


def test_the_teacher_answers_without_dropout_and_reaches_no_bundle(tmp_path: Path) -> None:
    model, inputs = tiny(dropout=0.5), batch(20, LENGTHS)
    TokenGate().grow(model)
    assert model.companions.keys() == {"teacher", "token_price"}
    first = teacher_logits(model.eval(), inputs)
    assert torch.equal(teacher_logits(model.train(), inputs), first)
    with torch.no_grad():
        for parameter in model.stock.parameters():
            parameter.mul_(0.5)
    assert torch.equal(teacher_logits(model, inputs), first)
    update_teacher(model)
    assert not torch.equal(teacher_logits(model, inputs), first)
    model.save_pretrained(tmp_path)
    names = load_file(tmp_path / "paredown.safetensors").keys()
    assert {name.split(".")[0] for name in names} == {"selectors"} and not any("price" in name for name in names)
    assert not AdaptiveModel.from_pretrained(tmp_path).companions


def test_companions_go_with_their_method(tmp_path: Path) -> None:
    model, seen = tiny(), []

    def look(model: AdaptiveModel, inputs: Any, progress: Progress) -> Any:
        seen.append(set(model.companions))
        return model.trace(inputs).final.sum()

    token = TokenGate(epochs=0, gate_epochs=1, batch_size=8)
    train(model, [token, Steps([stage("after", look)])], rows(16), output=tmp_path)
    assert seen and not any(seen) and not model.companions


def test_the_target_falls_from_one(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(token_gate, "price_of", lambda *args: seen.append(args[2]) or price_of(*args))
    model, inputs = adaptive("bert", head=None), batch(99, LENGTHS)
    method = TokenGate(target_speedup=1.6, anneal=0.5, select_before=(1,))  # 1 + 3 / 2 of 4
    method.grow(model)
    for at in (0, 25, 50, 100):
        method._gates(model, inputs, Progress(at, 100))
    assert seen == pytest.approx([1.0, 0.75, 0.5, 0.5])


@pytest.mark.parametrize("keep", halved([0.25, 0.6]))
def test_the_kept_share_comes_to_the_target_whatever_dev_rows_say(keep: float, tmp_path: Path) -> None:
    model = tiny(layers=4, dropout=0.0)
    settings = {**QUICK, "gate_epochs": 8, "batch_size": 16}
    train(model, TokenGate(**settings, target_keep=keep), rows(400), rows(16), output=tmp_path)
    assert kept_share(model) == pytest.approx(keep, abs=0.05)


@pytest.mark.parametrize("exits_first", [True, False])
def test_gates_and_exits_compose(exits_first: bool, tmp_path: Path) -> None:
    model = tiny(layers=4)
    exits = SelfDistill(epochs=1, exit_epochs=1, lr=1e-3, batch_size=8, rule="entropy:0.9", teacher="stock")
    gates = TokenGate(**QUICK)
    chain = [exits, gates] if exits_first else [replace(gates, epochs=1), replace(exits, epochs=0)]
    train(model, chain, rows(24), rows(8), output=tmp_path)
    assert str(model.plan.exit) == "entropy:0.9" and str(model.plan.reduce) == "selector:0.5"
    again = AdaptiveModel.from_pretrained(tmp_path / "model")
    texts = [row["text"] for row in rows(8)]
    assert agree(again.predict(texts), model.predict(texts)) and again.plan == model.plan


def test_attention_without_soft_masks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = adaptive("bert", head=None, attn_implementation="eager")
    assert takes_soft_masks(model)
    monkeypatch.setattr(arguments, "TRACE", 0.2)
    assert not takes_soft_masks(model)
    monkeypatch.undo()
    for path, axes in model.walk.axes.items():
        model.walk.axes[path] = replace(axes, masked=None if axes.masked is None else 0.0)
    with pytest.raises(BadSetting, match="takes no soft mask; token_policy"):
        TokenGate().check(model)


@pytest.mark.parametrize("settings", [{"anneal": 1.0}, {"anneal": -0.1}, {"gate_epochs": 0}])
def test_bad_settings_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(BadSetting, match="anneal"):
        TokenGate(**settings)


class DropsNothing(Observer):
    drops_tokens = True


@pytest.mark.parametrize("reducer", ["selector:0.5", "fixed_share:0.5", "fixed_share:share=0.6,score=attention"])
def test_what_learns_sees_the_tokens_that_the_plan_leaves(reducer: str) -> None:
    model = opinionated("bert", head="attention")
    model.plan = Plan(reduce=reducer)
    inputs = batch(99, LENGTHS)
    trace = model.trace(inputs)
    torch.testing.assert_close(trace.final, model.answer(inputs).logits)
    assert not torch.allclose(trace.final, model.trace(inputs, observer=DropsNothing()).final, atol=1e-4)


def test_exits_after_tokens_are_trained_and_judged_with_the_tokens_that_stay(tmp_path: Path) -> None:
    model, dev = tiny(layers=4), rows(30)
    chain = [TokenGate(**QUICK, target_keep=0.5), SelfDistill(epochs=0, exit_epochs=1)]
    report = train(model, chain, rows(60), dev, output=tmp_path, progress=False)
    assert str(model.plan.reduce) == "selector:0.5" and model.plan.exit is not None
    coded = model.encode(dev)
    accuracy = metric_named("accuracy")
    last = report.stages[-1]
    best = next(entry for entry in last.evaluations if entry.step == last.best_step)
    assert best.scores == record(model, coded, plan=REDUCED).scores(accuracy)
