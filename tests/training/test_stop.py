"""Promises 13, 14 and 15: signals save and stop, NaN stops at once, a full disk is a clear error."""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from paredown import AdaptiveModel
from paredown.encoders.dtype import non_finite
from paredown.errors import CannotSave, Interrupted, NonFiniteLoss, NonFiniteWeights, ParedownError
from paredown.system.saving import sha256, write_json
from paredown.training import train
from paredown.training.checkpoint import Checkpoints
from paredown.training.learner import Learner
from tests.training.tiny import Steps, bits, final_loss, rows, stage, tiny

children = multiprocessing.get_context(
    "forkserver"
)  # one import of torch for all children, in a process without threads
children.set_forkserver_preload(["tests.training.tiny", "paredown.training"])
STOPPED = 100  # exit code of a child that was asked to stop and did, before the number of the signal is added


def learn(output: Path, seen: Any = None, delay: float = 0.0, **settings: Any) -> AdaptiveModel:
    def loss(model: AdaptiveModel, batch: dict[str, Tensor], progress: Any) -> Tensor:
        if seen is not None:
            seen.value += 1
        time.sleep(delay)
        return final_loss(model, batch, progress)

    torch.set_num_threads(1)
    model = tiny()
    train(model, Steps([stage(loss=loss, epochs=4)]), rows(40), rows(8), output=output, **settings)
    return model


def child(output: Path, seen: Any, delay: float) -> None:
    try:
        learn(output, seen, delay)
    except Interrupted as error:
        os._exit(STOPPED + error.signal)


def started(output: Path, steps: int, delay: float) -> Any:
    """A child that has begun so many steps."""
    seen = children.Value("i", 0)
    process = children.Process(target=child, args=(output, seen, delay))
    process.start()
    limit = time.monotonic() + 60
    while seen.value < steps:
        assert process.is_alive() and time.monotonic() < limit
        time.sleep(0.01)
    return process


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_and_the_run_goes_on_to_the_same_bits(sent: int, tmp_path: Path) -> None:
    process = started(tmp_path / "stopped", steps=7, delay=0.05)
    os.kill(process.pid, sent)
    process.join(10)
    assert process.exitcode == STOPPED + sent
    found = Checkpoints(tmp_path / "stopped").newest()
    assert found is not None and found.step >= 7 and found.step % 5 != 0
    assert bits(learn(tmp_path / "stopped")) == bits(learn(tmp_path / "whole"))


def test_the_second_signal_stops_at_once(tmp_path: Path) -> None:
    process = started(tmp_path, steps=1, delay=30)
    os.kill(process.pid, signal.SIGTERM)
    time.sleep(0.3)
    assert process.is_alive()  # it would finish its step
    os.kill(process.pid, signal.SIGTERM)
    process.join(10)
    assert process.exitcode == -signal.SIGTERM


def test_a_signal_does_not_wait_for_an_evaluation(tmp_path: Path) -> None:
    calls = 0

    def metric(predicted: np.ndarray, labels: np.ndarray) -> float:
        nonlocal calls
        calls += 1
        if calls == 2:
            signal.raise_signal(signal.SIGTERM)
            raise AssertionError("the evaluation went on")
        return float((predicted == labels).mean())

    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Interrupted, match="after step 10 of 20"):
        learn(tmp_path / "stopped", metric=metric)
    assert signal.getsignal(signal.SIGTERM) is before
    assert bits(learn(tmp_path / "stopped", metric=metric)) == bits(learn(tmp_path / "whole", metric=metric))
    assert calls == 2 + 4 + 5  # a run that ends scores its plan once more


def test_training_in_a_thread_sets_no_handlers(tmp_path: Path) -> None:
    thread = threading.Thread(target=learn, args=(tmp_path,))
    thread.start()
    thread.join()
    assert (tmp_path / "model").is_dir()


def poisoned(at: int, loss: float) -> Any:
    """A loss that is not finite from a step on, for rows with the word `awful`."""
    awful = tiny().tokenizer.convert_tokens_to_ids("awful")

    def failing_loss(model: AdaptiveModel, batch: dict[str, Tensor], progress: Any) -> Tensor:
        bad = progress.step >= at and bool((batch["input_ids"] == awful).any())
        return final_loss(model, batch, progress) * (loss if bad else 1.0)

    return failing_loss


@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
def test_nan_names_stage_step_and_rows(loss: float, tmp_path: Path) -> None:
    data, model = rows(24), tiny()
    with pytest.raises(NonFiniteLoss) as caught:
        train(model, Steps([stage("poisoned", poisoned(2, loss))]), data, output=tmp_path, checkpoint_every=1)
    message = str(caught.value)
    assert "stage poisoned, step 3 of 6" in message
    named = [int(row) for row in message.split("rows [")[1].split("]")[0].split(",")]
    assert named and all("awful" in data[row]["text"] for row in named)
    found = Checkpoints(tmp_path).newest()
    assert found is not None and found.step == 2
    after = bits(model)
    found.load_model(model)
    assert bits(model) == after  # the poisoned step has not touched a weight


def test_a_nan_weight_is_named(tmp_path: Path) -> None:
    model = tiny()
    with torch.no_grad():
        model.stock.bert.pooler.dense.weight[0, 0] = float("nan")
    with pytest.raises(NonFiniteLoss, match=r"step 1 .*; stock.bert.pooler.dense.weight holds NaN"):
        train(model, Steps([stage()]), rows(16), output=tmp_path)


def good(output: Path, step: int) -> None:
    """The newest checkpoint is of that step, and all of it is finite."""
    found = Checkpoints(output).newest()
    assert found is not None and found.step == step and not list(output.glob("model"))
    assert not non_finite(load_file(found.path / "model.safetensors") | found.optimizer())


def touched(monkeypatch: pytest.MonkeyPatch, at: int, touch: Callable[[Learner], None]) -> None:
    """Let something happen to a learner before one of its steps."""
    step = Learner.step

    def stepping(self: Learner, number: int) -> float:
        if number == at:
            with torch.no_grad():
                touch(self)
        return step(self, number)

    monkeypatch.setattr(Learner, "step", stepping)


POOLER = "stock.bert.pooler.dense.weight"
UNUSED = "stock.bert.embeddings.position_embeddings.weight"  # rows are shorter than its table: no loss shows its end


def moment(what: str) -> Callable[[Learner], Tensor]:
    return lambda learner: learner.optimizer.state[learner.trained[POOLER]][what]


def weight(name: str) -> Callable[[Learner], Tensor]:
    return lambda learner: learner.trained[name]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize(
    "found, message",
    [
        (weight(POOLER), f"{POOLER} holds"),
        (weight(UNUSED), f"after the step {UNUSED} holds"),
        (moment("exp_avg"), f"after the step {POOLER} holds"),
        (moment("exp_avg_sq"), "after the step .*exp_avg_sq:stock.bert.pooler.dense.weight holds"),
    ],
    ids=["weight", "weight that no row uses", "first moment", "second moment"],
)
def test_what_is_not_finite_stops_the_run_at_its_step(
    found: Any, message: str, value: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    touched(monkeypatch, 2, lambda learner: found(learner).view(-1)[-1:].fill_(value))
    with pytest.raises((NonFiniteLoss, NonFiniteWeights), match=f"stage learn, step 3 of 6: .*{message}"):
        train(tiny(), Steps([stage()]), rows(24), output=tmp_path, checkpoint_every=1)
    good(tmp_path, 2)


def test_a_step_that_overflows_stops_the_run(tmp_path: Path) -> None:
    """Loss and gradients are finite; what the step makes of the weights is not."""

    def loss(model: AdaptiveModel, batch: dict[str, Tensor], progress: Any) -> Tensor:
        return model.stock.classifier.bias[0] * 1e-3

    only = stage(loss=loss, trains=lambda name: name == "stock.classifier.bias", lr=3e37, epochs=20)
    with pytest.raises(NonFiniteWeights, match=r"after the step stock.classifier.bias holds infinity") as caught:
        train(tiny(), Steps([only]), rows(24), output=tmp_path, checkpoint_every=1)
    stopped = int(str(caught.value).split("step ")[1].split()[0])
    good(tmp_path, stopped - 1)


def test_frozen_weights_are_checked_before_a_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = UNUSED.removesuffix(".weight")
    touched(monkeypatch, 2, lambda learner: learner.model.get_submodule(table).weight[-1].fill_(float("nan")))
    only = stage(trains=lambda name: name.startswith("stock.classifier"))
    with pytest.raises(NonFiniteWeights, match=f"step-00000003 is not written: {UNUSED} holds NaN"):
        train(tiny(), Steps([only]), rows(24), rows(8), output=tmp_path, checkpoint_every=1)
    good(tmp_path, 2)


def test_a_checkpoint_that_is_not_finite_is_passed_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As earlier versions wrote them: complete, with the right checksums, and of no use."""
    checkpoints, model = Checkpoints(tmp_path), torch.nn.Linear(3, 3)
    for step in (1, 2, 3):
        checkpoints.save(step, model, {"exp_avg:weight": torch.ones(3)}, {"step": step}, None)
    for file, tensors in (
        ("step-00000003/model.safetensors", {"weight": torch.full((3, 3), float("nan")), "bias": torch.ones(3)}),
        ("step-00000002/optimizer.safetensors", {"exp_avg:weight": torch.full((3,), float("inf"))}),
    ):
        path = tmp_path / "checkpoints" / file
        save_file(tensors, path)
        manifest = path.parent / "manifest.json"
        facts = json.loads(manifest.read_text())
        facts["sha256"][path.name] = sha256(path)
        manifest.write_text(json.dumps(facts))
    assert checkpoints.newest() is None
    assert "step-00000003 is of no use: weight holds NaN" in caplog.text
    assert "step-00000002 is of no use: exp_avg:weight holds infinity" in caplog.text


def test_a_gradient_that_is_not_finite_stops_too(tmp_path: Path) -> None:
    def loss(model: AdaptiveModel, batch: dict[str, Tensor], progress: Any) -> Tensor:
        final = final_loss(model, batch, progress)
        return final + (model.stock.classifier.bias * 0).sum().sqrt()  # 0, with gradient 0 / 0

    with pytest.raises(NonFiniteLoss, match="the gradient norm is nan; no row gives it alone"):
        train(tiny(), Steps([stage(loss=loss)]), rows(16), output=tmp_path)


def test_a_full_disk_is_a_clear_error_and_costs_nothing(tmp_path: Path) -> None:
    model = torch.nn.Linear(300, 300)
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, model, {}, {}, None)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
        with pytest.raises(CannotSave, match=r"step-00000002 \(361,200 bytes\).*intact"):
            checkpoints.save(2, model, {}, {}, None)
        with pytest.raises(CannotSave, match=r"metrics\.json"):
            write_json(tmp_path / "metrics.json", ["much" * 40_000])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    found = checkpoints.newest()
    assert found is not None and found.step == 1
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_dir()) == ["checkpoints", "step-00000001"]


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file where a folder should be")
    with pytest.raises(ParedownError, match="taken"):
        learn(tmp_path / "taken")


def save_for_ever(output: Path, done: Any) -> None:
    torch.set_num_threads(1)
    model = torch.nn.Linear(500, 500)
    for step in range(1, 10**6):
        Checkpoints(output).save(step, model, {"exp_avg:weight": model.weight}, {"step": step}, None)
        done.value = step


def test_20_kills_leave_20_checkpoints(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    halves = 0
    for kill in range(20):
        output, done = tmp_path / str(kill), children.Value("i", 0)
        process = children.Process(target=save_for_ever, args=(output, done))
        process.start()
        while not done.value:
            assert process.is_alive()
            time.sleep(0.001)
        time.sleep(random.uniform(0, 0.1))
        process.kill()
        process.join()
        halves += len(list((output / "checkpoints").glob(".step-*")))
        found = Checkpoints(output).newest()
        assert found is not None and found.step >= done.value and found.state() == {"step": found.step}
        found.load_model(torch.nn.Linear(500, 500))
        Checkpoints(output).clean()
        assert not list((output / "checkpoints").glob(".*"))
    assert halves >= 5  # most kills came in the middle of a save
