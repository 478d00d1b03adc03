"""Module replacing against Theseus' paper and tool: draws, schedules, who learns, and what is left at the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from paredown.encoders.prune import pruned
from paredown.errors import BadSetting
from paredown.methods import ModuleReplacing, SelfDistill
from paredown.methods._stage import Progress
from paredown.plan import Plan
from paredown.registry import methods
from paredown.training import train
from tests.families import adaptive, batch
from tests.placement import agree
from tests.training.tiny import bits, rows, tiny

SHORT = {"epochs": 1, "replacing_epochs": 2, "successor_epochs": 1, "lr": 1e-3, "replacing_lr": 1e-3, "batch_size": 8}


def made(**settings: Any) -> tuple[ModuleReplacing, Any]:
    model = adaptive("bert", head=None, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    method = ModuleReplacing(**settings)
    method.check(model)
    method.grow(model)
    with torch.no_grad():
        for parameter in model.grown.parameters():
            parameter.mul_(1.1)
    return method, model


def rates(method: ModuleReplacing, steps: list[int], of: int = 10_000) -> list[float]:
    return [method.rate(Progress(step, of)) for step in steps]


def test_schedules_of_the_original_tool() -> None:
    linear = ModuleReplacing(replacing_rate=0.3, scheduler_linear_k=0.0006)
    assert rates(linear, [0, 500, 1166, 1167, 9000]) == pytest.approx([0.3, 0.6, 0.9996, 1.0, 1.0])
    constant = ModuleReplacing(replacing_rate=0.5, schedule="constant", steps_for_replacing=2500)
    assert rates(constant, [0, 2499, 2500, 9999]) == [0.5, 0.5, 1.0, 1.0]
    for steps, slope in ((1000, 0.0009), (30_000, 0.00003)):  # the paper's grid
        assert rates(ModuleReplacing(replacing_rate=0.1, steps_for_replacing=steps), [500]) == pytest.approx(
            [0.1 + 500 * slope]
        )


def test_the_alias_is_the_original_tools_example() -> None:
    published: Any = methods.make("theseus")
    assert (published.batch_size, published.lr, published.epochs) == (32, 2e-5, 4.0)  # of the predecessor
    assert (published.replacing_lr, published.replacing_epochs, published.successor_epochs) == (2e-5, 15.0, 0.0)
    assert (published.warmup, published.weight_decay, published.clip, published.start) == (0.0, 0.0, 1.0, "first")
    assert rates(published, [0, 500, 1167]) == pytest.approx([0.3, 0.6, 1.0])
    _, model = made()
    assert [stage.name for stage in published.stages(model)] == ["finetune", "replacing"]
    constant = methods.parse("theseus:schedule=constant,steps_for_replacing=2500,scheduler_linear_k=none")
    assert rates(constant, [2499, 2500]) == [0.3, 1.0]


def test_too_few_steps_to_replace_everything_are_noticed(caplog: pytest.LogCaptureFixture) -> None:
    _, model = made()
    for name, heard in (("theseus", "100 steps end with a replacing rate of 0.36"), ("module_replacing", "")):
        caplog.clear()
        methods.make(name)._replace(model, batch(99, [4, 6]) | {"labels": torch.tensor([0, 1])}, Progress(0, 100))
        assert heard in caplog.text and bool(caplog.records) == bool(heard)


def test_schedules_by_share_of_the_steps() -> None:
    assert rates(ModuleReplacing(replacing_rate=0.2, until=0.5), [0, 25, 50, 99], 100) == pytest.approx(
        [0.2, 0.6, 1.0, 1.0]
    )
    constant = ModuleReplacing(replacing_rate=0.2, until=0.5, schedule="constant")
    assert rates(constant, [0, 49, 50], 100) == [0.2, 0.2, 1.0]
    assert rates(ModuleReplacing(), [0], 1) == [0.3]  # even a single step


@pytest.mark.parametrize(
    "settings",
    [
        {"replacing_rate": 0.0},
        {"replacing_rate": 1.5},
        {"until": 0.0},
        {"steps_for_replacing": 0},
        {"scheduler_linear_k": 0.0},
        {"scheduler_linear_k": 0.1, "schedule": "constant"},
        {"scheduler_linear_k": 0.1, "steps_for_replacing": 5},
        {"replacing_epochs": 0},
    ],
)
def test_no_setting_disables_replacing(settings: dict[str, Any]) -> None:
    with pytest.raises(BadSetting):
        ModuleReplacing(**settings)


def test_draws_are_fair_and_the_same_in_every_process() -> None:
    method = ModuleReplacing(replacing_rate=0.3, schedule="constant", until=1.0)
    draws = [method.draw(Progress(0, 10, draw), 6) for draw in range(4000)]
    assert draws == [method.draw(Progress(0, 10, draw), 6) for draw in range(4000)]
    shares = torch.tensor(draws, dtype=torch.float).mean(0)
    assert torch.allclose(shares, torch.full((6,), 0.3), atol=4 * (0.21 / 4000) ** 0.5)
    assert all(method.draw(Progress(9, 10, draw), 6) for draw in range(5)) and method.rate(Progress(10, 10)) == 1.0


@pytest.mark.parametrize(
    ("into", "modules"),
    [(2, ((0, 1), (2, 3))), (3, ((0,), (1,), (2, 3))), (1, ((0, 1, 2, 3),)), (None, ((0, 1), (2, 3)))],
)
def test_modules_are_runs_of_layers(into: int | None, modules: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    method, model = made(into=into)
    assert f"layers {modules[0]} -> 4" in caplog.text
    assert method._modules(model) == modules
    assert model.depth == tuple(range(4, 4 + len(modules)))


def test_bad_modules_are_refused() -> None:
    for settings in ({"into": 0}, {"into": 4}, {"modules": ((0, 1), (3,))}, {"modules": ((0, 1, 2, 3),), "into": 2}):
        with pytest.raises(BadSetting):
            made(**settings)
    with pytest.raises(BadSetting, match="before exits are grown"):
        ModuleReplacing().check(adaptive("bert"))
    with pytest.raises(BadSetting, match="export"):
        ModuleReplacing().check(adaptive("bert", head=None, plan=Plan(depth=(0, 1))))


@pytest.mark.parametrize(("start", "like"), [("first", (0, 1)), ("spread", (0, 2)), ("last", (2, 3))])
def test_successors_begin_as_the_chosen_layers(start: Any, like: tuple[int, ...]) -> None:
    model = adaptive("bert", head=None)
    ModuleReplacing(start=start).grow(model)
    assert model.grown_like == like
    for layer, source in zip(model.grown, like, strict=True):
        for ours, theirs in zip(layer.parameters(), model.walk.layers[source].parameters(), strict=True):
            assert torch.equal(ours, theirs) and ours is not theirs


def test_no_draw_is_the_predecessor_and_all_are_the_exported_model() -> None:
    method, model = made()
    inputs = batch(99, [12, 7, 3])
    assert method.depth(model, [False, False]) == (0, 1, 2, 3) and method.depth(model, [True, False]) == (4, 2, 3)
    with torch.no_grad():
        old = model.train().trace(inputs, method.depth(model, [False, False])).final
        torch.testing.assert_close(old, model.stock.eval()(**inputs).logits, rtol=0, atol=1e-6)
        new = model.train().trace(inputs, method.depth(model, [True, True])).final
        torch.testing.assert_close(new, model.eval().answer(inputs).logits, rtol=0, atol=1e-6)
        torch.testing.assert_close(new, pruned(model)(**inputs).logits, rtol=0, atol=1e-6)
        assert not torch.allclose(new, old)


def test_only_successors_learn_while_modules_are_replaced(tmp_path: Path) -> None:
    model = tiny()
    before = bits(model)
    train(model, ModuleReplacing(**{**SHORT, "epochs": 0}), rows(24), rows(8), output=tmp_path)
    after = bits(model)
    assert {name for name in before if before[name] != after[name]} == set()
    assert all(name.startswith("grown.") for name in after.keys() - before.keys())
    assert model.plan.depth == model.depth == tuple(range(model.walk.num_base_layers, model.layers))


def test_successors_begin_as_the_finetuned_layers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    copy = ModuleReplacing._copy
    monkeypatch.setattr(ModuleReplacing, "_copy", lambda self, model: (copy(self, model), seen.append(bits(model)))[0])
    model = tiny()
    train(model, ModuleReplacing(**SHORT), rows(24), output=tmp_path)
    (state,) = seen
    grown = {name.removeprefix("grown.0."): value for name, value in state.items() if name.startswith("grown.0.")}
    source = {name.removeprefix("stock.bert.encoder.layer.0."): value for name, value in state.items()}
    assert grown and all(source[name] == value for name, value in grown.items())


def test_exits_grow_on_the_successors_and_a_bundle_remembers_them(tmp_path: Path) -> None:
    model = tiny(layers=4)
    exits = SelfDistill(epochs=1, exit_epochs=1, teacher="stock", head="pooler", rule="entropy:0.9", batch_size=8)
    train(model, [ModuleReplacing(**SHORT), exits], rows(24), rows(8), output=tmp_path)
    assert model.head_layers == (4,) and model.plan.depth == (4, 5) and str(model.plan.exit) == "entropy:0.9"
    again = type(model).__mro__[1].from_pretrained(tmp_path / "model")
    texts = [row["text"] for row in rows(8)]
    assert agree(again.predict(texts), model.predict(texts)) and again.plan == model.plan
    assert {predicted.layers for predicted in again.predict(texts)} <= {1, 2}


def test_everything_may_learn_in_the_end_and_imitation_may_help(tmp_path: Path) -> None:
    model = tiny()
    before = bits(model)
    settings = {**SHORT, "epochs": 0, "distill": 1.0, "temperature": 2.0, "successor_trains": "everything"}
    train(model, ModuleReplacing(**settings), rows(24), output=tmp_path)
    after = bits(model)
    changed = {name for name in before if before[name] != after[name]}
    assert any("embeddings" in name for name in changed) and any("classifier" in name for name in changed)
    assert not any(".encoder.layer." in name for name in changed)
