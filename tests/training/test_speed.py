"""What makes training fast on a GPU changes nothing of what is learnt, and nothing of what is promised."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

import paredown.methods  # noqa: F401  registers them
from paredown import AdaptiveModel
from paredown.answers import Encoded, collate
from paredown.errors import NonFiniteLoss, NonFiniteWeights
from paredown.evaluation.metrics import metric_named
from paredown.runtime.packed import Packed
from paredown.training import Report, cpu, train
from paredown.training.batches import Batches, Data, Unlabelled, lengths
from paredown.training.device import Ways
from paredown.training.feed import Feed
from paredown.training.graphs import StepGraphs
from paredown.training.halves import Halves
from paredown.training.judging import DevRows, backend_for
from paredown.training.learner import Learner
from paredown.training.processes import Processes
from paredown.training.settings import Settings
from tests.grids import thorough
from tests.training.test_resume import assert_same, short
from tests.training.test_stop import UNUSED, good, moment, touched, weight
from tests.training.tiny import Steps, bits, final_loss, rows, stage, tiny

CPU = torch.device("cpu")
gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def working(monkeypatch: pytest.MonkeyPatch, precision: str = "no", **ways: Any) -> None:
    """Let runs work in other ways than a CPU suggests."""
    monkeypatch.setattr(Ways, "on", lambda *unused: Ways(precision, **ways))


def learnt(output: Path, **settings: Any) -> tuple[AdaptiveModel, Report]:
    model = tiny()
    return model, train(model, Steps([stage(repeats=1)]), rows(44), rows(9), output=output, **settings)


def stop_before(patch: pytest.MonkeyPatch, at: int) -> None:
    step = Learner.step

    def stopping(self: Learner, number: int) -> None:
        if number == at:
            raise KeyboardInterrupt
        step(self, number)

    patch.setattr(Learner, "step", stopping)


def losses(outcome: tuple[AdaptiveModel, Report]) -> list[float]:
    return [loss for entry in outcome[1].stages for loss in entry.losses]


# Batches


@pytest.mark.parametrize("kind", ["single_label", "multi_label", "regression", "token_label"])
@pytest.mark.parametrize("multiple", [1, 16])
def test_batches_are_those_that_collate_makes(kind: str, multiple: int) -> None:
    model = tiny(kind)
    data = Data.read(model, rows(20, kind), None, None, None)
    for source in (data.train, Unlabelled((data.train, data.train[:5])), tuple(data.train)):
        feed = Feed(source, 7, CPU, multiple)
        for indexes in ([3], [5, 0, 19, 2], list(range(20))):
            wanted = collate([source[index] for index in indexes], 7, None, multiple)
            found = feed.batch(indexes)
            assert list(found) == list(wanted)
            assert all(torch.equal(found[name], wanted[name]) for name in wanted)
            assert all(found[name].dtype == wanted[name].dtype for name in wanted)


class Corpus(Sequence[Encoded]):
    """Rows that are made when asked for."""

    def __init__(self) -> None:
        self.made: list[int] = []

    def __len__(self) -> int:
        return 9

    def __getitem__(self, index: Any) -> Any:
        self.made.append(index)
        return Encoded({"input_ids": [5] * 4})


def test_rows_that_are_made_when_asked_for_are_not_all_made() -> None:
    corpus = Corpus()
    assert Feed(corpus, 0, CPU).batch([4, 2])["input_ids"].shape == (2, 4)
    assert corpus.made == [4, 2]


# Losses that are read later


def test_steps_that_do_not_wait_learn_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = learnt(tmp_path / "plain")
    for every in (4, 100):
        working(monkeypatch, read_every=every)
        found = learnt(tmp_path / str(every))
        assert losses(found) == pytest.approx(losses(plain), abs=1e-5)
        assert [each.step for each in found[1].stages[0].evaluations] == [6, 12]
        monkeypatch.undo()


def test_runs_that_do_not_wait_resume_to_the_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    working(monkeypatch, read_every=4)
    whole = learnt(tmp_path / "whole", checkpoint_every=5)
    with monkeypatch.context() as patch:
        stop_before(patch, 7)
        with pytest.raises(KeyboardInterrupt):
            learnt(tmp_path / "stopped", checkpoint_every=5)
    assert_same(whole, learnt(tmp_path / "stopped", checkpoint_every=5))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize(
    "found, message",
    [
        (weight(UNUSED), f"after the step {UNUSED} holds"),
        (moment("exp_avg_sq"), "after the step .*exp_avg_sq:stock.bert.pooler.dense.weight holds"),
    ],
    ids=["weight", "moment"],
)
def test_what_is_not_finite_is_found_at_its_step_later(
    found: Any, message: str, value: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    working(monkeypatch, read_every=100)
    touched(monkeypatch, 3, lambda learner: found(learner).view(-1)[-1:].fill_(value))
    with pytest.raises(NonFiniteWeights, match=f"stage learn, step 4 of 6: .*{message}"):
        train(tiny(), Steps([stage()]), rows(24), output=tmp_path, checkpoint_every=2)
    good(tmp_path, 2)


MASK = 4  # the id of a token that no row has


def spoilt(model: AdaptiveModel, batch: dict[str, Tensor], progress: Any) -> Tensor:
    """A loss that is not finite where a row has a certain token."""
    nan = torch.where((batch["input_ids"] == MASK).any(), torch.nan, 0.0)
    return final_loss(model, batch, progress) + nan


def test_no_weight_moves_from_a_loss_that_is_not_finite_on() -> None:
    """The rows that gave it are named, although later steps have been taken when it is found."""
    model = tiny()
    data = Data.read(model, rows(24), None, None, None)
    ids = {name: [*values, MASK if name == "input_ids" else 0] for name, values in data.train[7].ids.items()}
    data.train[7] = replace(data.train[7], ids=ids)  # type: ignore[index]
    batches = Batches(lengths(data.train), 8, (0, 0))
    learner = Learner(model, stage(loss=spoilt, epochs=4), data.train, batches, alone(), read_every=100)
    first = next(step for step in range(learner.steps) if 7 in batches.at(step))
    states = []
    for step in range(first + 3):
        learner.step(step)
        states.append((bits(model), {name: value.clone() for name, value in learner.state().items()}))
    if first:
        assert states[first][0] == states[first - 1][0]
    assert states[first][0] == states[-1][0]
    assert all(torch.equal(value, states[-1][1][name]) for name, value in states[first][1].items())
    with pytest.raises(NonFiniteLoss, match=rf"step {first + 1} of 12: the loss is nan; rows \[7\] of the data"):
        learner.losses()


def alone() -> Processes:
    processes = Processes.__new__(Processes)
    processes.device, processes.rank, processes.count, processes.writes = CPU, 0, 1, True
    return processes


# Graphs


@pytest.fixture
def graphs_on_cpu(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Graphs that do their work again when they are replayed; the list has an entry for each."""
    made: list[int] = []

    def recorded(self: StepGraphs, work: Any) -> Any:
        made.append(1)
        return SimpleNamespace(replay=work)

    monkeypatch.setattr(StepGraphs, "_aside", lambda self, work: work())
    monkeypatch.setattr(StepGraphs, "_record", recorded)
    monkeypatch.setattr(StepGraphs, "_recover", lambda self: None)
    return made


def run_method(output: Path, method: Any, **settings: Any) -> tuple[AdaptiveModel, Report]:
    model = tiny()
    return model, train(model, method, rows(44), rows(9), output=output, **settings)


@pytest.mark.usefixtures("deterministic")
@pytest.mark.parametrize("precision", ["no", "bf16"])
@pytest.mark.parametrize(
    "name", ["self_distill", "joint", "alternating", "module_replacing", *thorough(["auto", "two_stage"])]
)
def test_graphs_learn_what_steps_learn(
    name: str, precision: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, graphs_on_cpu: list[int]
) -> None:
    """In 16 bits, linear maps have weights that are cast all at once."""
    working(monkeypatch, precision, width_multiple=8)
    plain = run_method(tmp_path / "plain", short(name))
    assert not graphs_on_cpu
    working(monkeypatch, precision, width_multiple=8, graphs=True)
    graphs = run_method(tmp_path / "graphs", short(name))
    assert graphs_on_cpu
    if precision == "no":
        assert bits(graphs[0]) == bits(plain[0])
    assert losses(graphs) == pytest.approx(losses(plain), abs=0.0 if precision == "no" else 1e-4)


@pytest.mark.usefixtures("deterministic")
@pytest.mark.parametrize("micro_batch", [None, 3])
def test_graphs_resume_to_the_bit(
    micro_batch: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, graphs_on_cpu: list[int]
) -> None:
    working(monkeypatch, width_multiple=8, graphs=True)
    given = {"checkpoint_every": 2, "micro_batch": micro_batch}
    whole = learnt(tmp_path / "whole", **given)
    with monkeypatch.context() as patch:
        stop_before(patch, 5)
        with pytest.raises(KeyboardInterrupt):
            learnt(tmp_path / "stopped", **given)
    assert_same(whole, learnt(tmp_path / "stopped", **given))


def test_a_graph_is_made_once_for_every_shape_of_full_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, graphs_on_cpu: list[int]
) -> None:
    working(monkeypatch, width_multiple=64, graphs=True)
    train(tiny(), Steps([stage(repeats=1, epochs=3)]), rows(44), output=tmp_path)
    assert len(graphs_on_cpu) == 1


def test_what_runs_before_a_capture_is_what_is_captured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, graphs_on_cpu: list[int]
) -> None:
    """An encoder would leave its mask out of a batch without padding, and be captured with it."""
    padded: list[bool] = []

    def loss(model: AdaptiveModel, batch: dict[str, Tensor], progress: Any) -> Tensor:
        padded.append(not batch["attention_mask"].all())
        return final_loss(model, batch, progress)

    working(monkeypatch, graphs=True)
    alike = [{"text": "the plot was good", "label": index % 2} for index in range(16)]
    found = train(tiny(), Steps([stage(loss=loss, repeats=1, epochs=1)]), alike, output=tmp_path / "graphs")
    assert padded == [True, False, False]  # before the capture, which does nothing here; then the two steps
    working(monkeypatch)
    plain = train(tiny(), Steps([stage(epochs=1)]), alike, output=tmp_path / "plain")
    assert found.stages[0].losses == plain.stages[0].losses


@pytest.mark.parametrize(
    "kind, made", [("single_label", {}), ("token_label", {"repeats": 1})], ids=["turns vary", "tokens are answered"]
)
def test_what_may_wait_for_the_device_is_no_graph(
    kind: str, made: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, graphs_on_cpu: list[int]
) -> None:
    working(monkeypatch, graphs=True)
    train(tiny(kind), Steps([stage(**made)]), rows(24, kind), output=tmp_path)
    assert not graphs_on_cpu


def test_a_capture_that_fails_costs_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, graphs_on_cpu: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    plain = learnt(tmp_path / "plain")

    def failing(self: StepGraphs, work: Any) -> Any:
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(StepGraphs, "_record", failing)
    working(monkeypatch, graphs=True)
    assert losses(learnt(tmp_path / "graphs")) == losses(plain)
    assert caplog.text.count("a step cannot be a CUDA graph") == 1


def test_out_of_memory_makes_smaller_graphs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, graphs_on_cpu: list[int]
) -> None:
    def loss(model: AdaptiveModel, batch: dict[str, Tensor], progress: Any) -> Tensor:
        if len(batch["input_ids"]) > 4:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return final_loss(model, batch, progress)

    model = tiny(dropout=0.0)
    plain = train(tiny(dropout=0.0), Steps([stage()]), rows(24), output=tmp_path / "plain")
    working(monkeypatch, graphs=True)
    found = train(model, Steps([stage(loss=loss, repeats=1)]), rows(24), output=tmp_path / "graphs")
    assert found.stages[0].losses == pytest.approx(plain.stages[0].losses, abs=1e-5)
    assert graphs_on_cpu


@pytest.mark.parametrize("shared", [False, True])
def test_weights_in_16_bits_get_the_gradients_that_autocast_gives(shared: bool) -> None:
    """Linear maps alone have them; a weight that something else reads too keeps its 32 bits."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Embedding(9, 9), torch.nn.Linear(9, 9), torch.nn.LayerNorm(9))
    if shared:
        model[1].weight = model[0].weight
    ids = torch.arange(6).view(2, 3)

    def gradients(halves: Halves | None) -> list[Tensor]:
        with torch.autocast("cpu", torch.bfloat16):
            graphs = StepGraphs(model.parameters(), lambda batch, number: model(ids).square().mean(), CPU, halves)
            graphs.share.fill_(0.5)
            found = graphs._differentiated({}, 0)[1]
        return [sum((part[one] for part in found if one in part), torch.zeros(1)) for one in model.parameters()]

    halves = Halves(model, torch.bfloat16)
    assert set(halves.of) == {model[1].bias} | (set() if shared else {model[1].weight})
    before = [one.clone() for one in model.parameters()]
    for found, wanted in zip(gradients(halves), gradients(None), strict=True):
        torch.testing.assert_close(found, wanted)
    assert all(map(torch.equal, before, model.parameters()))


# Compiled layers


def test_layers_that_cannot_be_compiled_run_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from torch._dynamo.exc import TorchDynamoException

    def failing(*args: Any, **kwargs: Any) -> Any:
        raise TorchDynamoException("no compiler is here\nmore")

    working(monkeypatch, width_multiple=16)
    monkeypatch.setattr(cpu, "FASTER", {})  # which draws other numbers, and compiled layers do without
    plain = learnt(tmp_path / "plain")
    monkeypatch.setattr(torch, "compile", lambda forward, dynamic: failing)
    found = learnt(tmp_path / "compiled", compile=True)
    assert losses(found) == pytest.approx(losses(plain), abs=1e-5)
    assert caplog.text.count("layers cannot be compiled here, so they run as they are: no compiler is here") == 1


# What suits the device


def test_precision_suits_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    device = torch.device("cuda")
    for able, wanted in ((True, "bf16"), (False, "no")):
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation, able=able: able)
        assert Ways.on(device, Settings(), width=32).precision == wanted
        assert Ways.on(device, Settings(precision="fp16"), width=32).precision == "fp16"


@pytest.mark.parametrize(
    ("flags", "width", "wanted"),
    [
        ({"avx512_bf16": True}, 384, "bf16"),
        ({"amx_bf16": True}, 384, "bf16"),
        ({"avx512_bf16": True}, 64, "no"),  # casts would take longer than products save
        ({"avx512_vnni": True, "avx512_bf16": False}, 384, "no"),
    ],
)
def test_precision_suits_a_cpu(flags: dict[str, bool], width: int, wanted: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: flags)
    assert Ways.on(CPU, Settings(), width) == Ways(wanted)
    assert Ways.on(CPU, Settings(precision="bf16"), width).precision == "bf16"
    assert Ways.on(CPU, Settings(precision="no"), width).precision == "no"


def test_a_run_of_automatic_precision_goes_on_with_one_that_named_it(tmp_path: Path) -> None:
    one = learnt(tmp_path, precision="no")
    assert_same(one, learnt(tmp_path, precision="auto"))


# Dev rows


@pytest.mark.parametrize("heads", [False, True])
def test_dev_scores_of_the_packed_backend(heads: bool) -> None:
    model = tiny(heads=heads)
    dev = Data.read(model, rows(4), None, rows(40), None).dev
    judge = DevRows(model, dev, metric_named("accuracy"), 16)
    assert isinstance(judge.backend, Packed)
    packed, suspicious = judge.scores(stage())
    judge.backend = model.walk
    assert judge.scores(stage()) == (pytest.approx(packed, abs=1e-5), suspicious)
    assert model.backend is model.walk


def test_dev_rows_of_an_encoder_without_fast_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny()
    assert isinstance(backend_for(model), Packed)
    monkeypatch.setattr(model.walk, "family", "unheard-of")
    assert backend_for(model) is model.walk


# On a GPU


@gpu
@pytest.mark.parametrize("name", ["finetune", "self_distill", "joint", "alternating", "module_replacing"])
def test_graphs_on_a_gpu_learn_what_steps_learn(name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    found = {}
    for graphs in (False, True):
        with pytest.MonkeyPatch.context() as patch:
            working(patch, width_multiple=16, read_every=4, graphs=graphs)
            found[graphs] = run_method(tmp_path / str(graphs), short(name))
    assert "cannot be a CUDA graph" not in caplog.text
    assert losses(found[True]) == pytest.approx(losses(found[False]), abs=1e-3)


@gpu
def test_a_capture_that_fails_on_a_gpu_leaves_random_numbers_as_they_were(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def waiting(model: AdaptiveModel, batch: dict[str, Tensor], progress: Any) -> Tensor:
        loss = final_loss(model, batch, progress)
        assert loss.item() > 0
        return loss

    found = train(tiny(), Steps([stage(loss=waiting, repeats=1)]), rows(44), rows(9), output=tmp_path / "waiting")
    plain = train(tiny(), Steps([stage()]), rows(44), rows(9), output=tmp_path / "plain")
    assert "cannot be a CUDA graph" in caplog.text
    assert found.stages[0].losses == pytest.approx(plain.stages[0].losses, abs=1e-2)
