"""Promise 17: frozen means frozen. No gradient, eval mode, no weight decay, not in the norm that is clipped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import paredown.methods  # noqa: F401  registers them
from paredown import AdaptiveModel
from paredown.methods._stage import Stage
from paredown.registry import methods
from paredown.training import train
from paredown.training.guard import freeze
from paredown.training.learner import Learner
from tests.grids import thorough
from tests.training.test_resume import short
from tests.training.tiny import Steps, bits, final_loss, rows, stage, tiny


def exits_loss(model: AdaptiveModel, batch: dict[str, Tensor], progress: Any) -> Tensor:
    return torch.stack([model.kind.loss(logits, batch["labels"]) for logits in model.trace(batch).exits.values()]).sum()


def is_head(name: str) -> bool:
    return name.startswith("heads.")


@pytest.mark.parametrize("name", [*methods.names(), *thorough(methods.aliases())])
def test_exactly_the_named_parameters_change(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny()
    seen: list[tuple[Stage, dict[str, bytes]]] = []
    init = Learner.__init__

    def noting(self: Learner, model: AdaptiveModel, stage: Stage, *args: Any, **kwargs: Any) -> None:
        seen.append((stage, bits(model)))
        init(self, model, stage, *args, **kwargs)

    monkeypatch.setattr(Learner, "__init__", noting)
    train(model, short(name), rows(24), output=tmp_path)
    states = [state for _, state in seen] + [bits(model)]
    for (now, before), after in zip(seen, states[1:], strict=True):
        changed = {key for key in before if before[key] != after[key]}
        assert changed and all(now.trains(key) for key in changed)
        still = {key for key in before if now.trains(key)} - changed
        # Nothing reads the pooler behind a head, and softmax forgets a bias that all keys share.
        assert all(
            "pooler" in key or key.endswith(("key.bias", "classifier.weight", "classifier.bias")) for key in still
        )


def test_frozen_modules_are_in_eval_mode(tmp_path: Path) -> None:
    def loss(model: AdaptiveModel, batch: dict[str, Tensor], progress: Any) -> Tensor:
        assert not any(module.training for module in model.stock.bert.modules())
        assert all(module.training for module in model.heads.modules())
        assert model.stock.bert.embeddings.word_embeddings.weight.grad is None
        return exits_loss(model, batch, progress)

    model = tiny()
    train(model, Steps([stage(loss=loss, trains=is_head)], heads=True), rows(16), rows(8), output=tmp_path)
    assert not any(module.training for module in model.modules())
    assert all(parameter.requires_grad and parameter.grad is None for parameter in model.parameters())


def test_modules_without_parameters_follow_their_parent() -> None:
    model = tiny(heads=True)
    freeze(model, stage(trains=lambda name: name == "stock.bert.encoder.layer.1.output.dense.weight"))
    layers = model.stock.bert.encoder.layer
    assert layers[1].output.dropout.training and layers[1].training and model.stock.bert.encoder.training
    assert not layers[1].attention.self.dropout.training
    assert not any(module.training for module in layers[0].modules())
    assert not any(module.training for module in model.heads.modules())


def test_only_trained_parameters_are_clipped_and_decayed() -> None:
    from paredown.training.batches import Batches, Data
    from paredown.training.processes import Processes

    model = tiny(heads=True)
    data = Data.read(model, rows(8), None, None, None)
    batches = Batches([len(row) for row in data.train], 8, (0, 0))
    learner = Learner(model, stage(loss=final_loss, trains=is_head), data.train, batches, Processes(Path("unused")))
    assert learner.trained.keys() == {name for name, _ in model.named_parameters() if is_head(name)}
    decayed, plain = learner.optimizer.param_groups
    assert {value.ndim for value in decayed["params"]} == {2} and decayed["weight_decay"] == 0.01
    assert {value.ndim for value in plain["params"]} == {1} and plain["weight_decay"] == 0.0


def test_learning_rate_rises_and_falls() -> None:
    learner = Learner.__new__(Learner)
    learner.steps, learner.stage, learner._peak = 20, stage(warmup=0.25), 1.0
    rates = [learner.lr(step) for step in range(20)]
    assert rates[:6] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0, 1.0])
    assert rates[6:] == sorted(rates[6:], reverse=True) and rates[-1] == pytest.approx(1 / 15)
