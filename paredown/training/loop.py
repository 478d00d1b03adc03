"""train(): methods in order, their stages in turn, each resumable at every step."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch

from paredown.errors import BadSetting, Interrupted
from paredown.evaluation.metrics import Metric, metric_for, metric_named
from paredown.methods._stage import Method, Stage
from paredown.model import AdaptiveModel, Reading
from paredown.plan import Plan
from paredown.registry import methods as method_registry
from paredown.runtime.watching import learn_ranges
from paredown.system.attention import without_plans
from paredown.system.saving import saving, write_json
from paredown.system.signals import Signals
from paredown.training.batches import Batches, Data, lengths
from paredown.training.centre import centre
from paredown.training.checkpoint import KEPT, Checkpoint, Checkpoints, step_name
from paredown.training.device import Ways
from paredown.training.display import Display
from paredown.training.guard import seed_everything, widen
from paredown.training.judging import DevRows
from paredown.training.learner import Learner
from paredown.training.outcome import REMEDY, judge
from paredown.training.processes import Processes, check_trackers
from paredown.training.report import DevEvaluation, Report, StageReport
from paredown.training.settings import Settings, described

PERFECT = 1.0  # a score that cannot be beaten: of weights that have it, those that learned longest stay
log = logging.getLogger("paredown.training")


def train(
    model: AdaptiveModel,
    methods: Sequence[Method | str] | Method | str,
    train_rows: Any,
    dev_rows: Any = None,
    *,
    output: str | Path,
    unlabelled: Any = None,
    metric: Metric | str | None = None,
    seed: int = 42,
    batch_size: int | None = None,
    micro_batch: int | None = None,
    max_length: int | None = None,
    precision: str = "auto",
    evaluate_every: int | None = None,
    checkpoint_every: int | None = None,
    keep_checkpoints: bool = False,
    trackers: Iterable[Any] = (),
    compile: bool = False,
    cpu: bool = False,
    save_dtype: str | torch.dtype | None = None,
    progress: bool = True,
    resume: bool = True,
) -> Report:
    """Train a model by one or several methods and save it as a bundle in output/model.

    A run that was stopped goes on where it was when train() is called again with the same arguments. `unlabelled` is
    more text for the stages that need no labels; `trackers` are accelerate's (tensorboard, wandb, …); `cpu` leaves a
    GPU alone; see `Settings` for the numbers. Parameters are trained in 32 bits: those of a model in 16 are widened.
    """
    every = (evaluate_every, checkpoint_every)
    settings = Settings(seed, batch_size, micro_batch, precision, *every, compile, keep_checkpoints, save_dtype)
    check_trackers(trackers := list(trackers))
    chosen = [methods] if isinstance(methods, str) or hasattr(methods, "stages") else list(methods)
    entries: list[Any] = [
        method_registry.of(method) if isinstance(method, (str, dict)) else method for method in chosen
    ]
    if not entries:
        raise BadSetting("there is no method to train by")
    for entry in entries:
        entry.check(model)
    measure = metric_named(metric) if isinstance(metric, str) else metric or metric_for(model.kind)
    model.reading = Reading(max_length).over(model.reading)
    hold_out = entries[-1].max_drop is not None
    data = Data.read(model, train_rows, unlabelled, dev_rows, max_length, hold_out)
    if narrow := widen(model):
        log.info("parameters in %s are widened to 32 bits to be trained", ", ".join(map(str, narrow)))
    processes = Processes(Path(output), trackers, cpu)
    learning = {name: parameter.requires_grad for name, parameter in model.named_parameters()}
    try:
        with Display(progress and processes.writes) as display:
            return Run(model, entries, data, measure, Path(output), settings, processes, display).go(resume)
    finally:
        model.companions.clear()  # also of a run that was stopped
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(learning.get(name, True))
            parameter.grad = None
        model.eval()
        processes.end_trackers()


class Run:
    """One call of train(): where it stands and what it writes."""

    # The stage at work
    method: Any
    stage: Stage
    learner: Learner
    entry: StageReport
    number: int  # of the stage, from 0
    offset: int  # steps of the stages before
    began: float  # when, less what it took before it was stopped

    def __init__(
        self,
        model: AdaptiveModel,
        methods: list[Any],
        data: Data,
        metric: Metric,
        output: Path,
        settings: Settings,
        processes: Processes,
        display: Display,
    ):
        self.model, self.methods, self.data, self.metric = model, methods, data, metric
        self.output, self.settings, self.processes, self.display = output, settings, processes, display
        self.checkpoints = Checkpoints(output)
        self.signals = Signals()
        self.report = Report()
        self.ways = Ways.on(processes.device, settings, model.walk.width)
        self.facts = self._facts()
        self.chosen = model.plan.exit  # by the user

    def go(self, resume: bool) -> Report:
        """Run all stages, then save the bundle with the plan that the methods propose."""
        found = self._found(resume)
        first = 0 if found is None else found.state()["stage"]
        self.model.scores = self.model.certificate = self.model.ranges = None  # those of an earlier run
        self.processes.start_trackers(self.facts)
        self.model.to(self.processes.device)
        self.dev = DevRows(self.model, self.data.dev, self.metric, self.ways.dev_batch)
        number = 0
        with self.signals, without_plans(self.processes.device):
            for index, method in enumerate(self.methods):
                seed_everything(self.settings.seed, "grow", index)
                known = set(self.model.heads)
                self.method = method
                method.grow(self.model)
                self.model.align()
                centre(self.model, self.data.train, set(self.model.heads) - known)
                for stage in method.stages(self.model):
                    if number >= first:
                        resumed = found is not None and number == first
                        self._begin(number, stage, fresh=not resumed)
                        self._run(self._restore(found) if found is not None and resumed else 0)
                    number += 1
                self.model.plan = method.plan(self.model)  # what comes next learns as the model will be used
                self.model.companions.clear()
            self.model.plan = self._plan()
            self._finish()
        return self.report

    # A stage

    def _begin(self, number: int, stage: Stage, fresh: bool) -> None:
        if fresh and stage.begin is not None:
            stage.begin(self.model)
        self.processes.same_start(self.model)
        rows = self.data.rows(stage)
        size = self.settings.batch_size or stage.batch_size
        batches = Batches(lengths(rows), size, (self.settings.seed, number))
        self.learner = Learner(
            self.model,
            stage,
            rows,
            batches,
            self.processes,
            micro_batch=self.settings.micro_batch,
            precision=self.ways.precision,
            width_multiple=self.ways.width_multiple,
            read_every=self.ways.read_every,
            graphs=self.ways.graphs,
            compile=self.settings.compile,
        )
        self.number, self.stage, self.offset = number, stage, self.report.done()
        self.entry = StageReport(stage.name, self.learner.steps)
        self.report.stages.append(self.entry)

    def _run(self, done: int) -> None:
        self.began = time.monotonic() - self.entry.seconds
        self.display.stage(self.stage.name, self.learner.steps, done)
        if self._owes_evaluation(done) and not self._evaluate(done):
            self._interrupt()
        for step in range(done, self.learner.steps):
            if self._is_settled(step):
                break
            self.learner.step(step)
            self._pause(step + 1)
        if self.entry.best_step is not None:
            self.processes.wait()
            self.checkpoints.load_best(self.offset + self.entry.best_step, dict(self.learner.trained))
        for found in self.entry.evaluations:
            if found.step == self.entry.best_step and found.suspicion:
                self._warn(f"stage {self.stage.name}: {found.suspicion}; {REMEDY}")

    def _warn(self, message: str) -> None:
        self.report.warnings.append(message)
        log.warning("warning: %s", message)

    def _pause(self, done: int) -> None:
        """Between two steps: evaluate, save, or stop; never with weights that nobody has checked."""
        stop = self._asked_to_stop()
        evaluates, saves = (
            self._due(done, every) for every in (self.settings.evaluate_every, self.settings.checkpoint_every)
        )
        if stop or evaluates or saves or done % self.learner.read_every == 0:
            self._read_losses()
        if not stop and evaluates:
            stop = not self._evaluate(done) or self._asked_to_stop()
        if stop or saves:
            self._save(done)
        if stop:
            self._interrupt()

    def _read_losses(self) -> None:
        """Note and show how the last steps went; raises where one of them was not finite."""
        for loss in self.learner.losses():
            step = len(self.entry.losses)
            self.entry.losses.append(loss)
            self.entry.seconds = time.monotonic() - self.began
            self.display.step(step + 1, loss, len(self.learner.batches.at(step)))
            facts = {f"{self.stage.name}/loss": loss, f"{self.stage.name}/lr": self.learner.lr(step)}
            self.processes.log(facts, self.offset + step + 1)

    def _due(self, done: int, every: int | None) -> bool:
        return done == self.learner.steps or done % (every or self.learner.batches.per_epoch) == 0

    def _asked_to_stop(self) -> bool:
        return bool(self.processes.sums(self.signals.asked is not None)[0])

    def _interrupt(self) -> None:
        raise Interrupted(
            f"stopped in stage {self.stage.name} after step {len(self.entry.losses)} of {self.learner.steps}; "
            f"all is saved in {self.checkpoints.folder}, the same call goes on from there",
            self.signals.asked,
        )

    def _is_settled(self, done: int) -> bool:
        """True where the last dev evaluations brought no new best: the stage ends early, but not in its first half."""
        if self.stage.patience is None or self.entry.best_step is None or 2 * done < self.entry.steps:
            return False
        later = [found for found in self.entry.evaluations if found.step > self.entry.best_step]
        return len(later) >= self.stage.patience

    # Choosing the best

    def _owes_evaluation(self, done: int) -> bool:
        """True where a run was stopped between a step and the evaluation after it."""
        seen = [evaluation.step for evaluation in self.entry.evaluations]
        return done > 0 and done not in seen and self._due(done, self.settings.evaluate_every)

    def _evaluate(self, done: int) -> bool:
        """Score the dev rows and keep the weights if they are the best; False: dropped, because the run must stop."""
        if not self.data.dev:
            return True
        found: list[tuple[dict[int, float], str | None]] = []
        if self.processes.count > 1:  # the others could not know that one of them dropped it
            found.append(self.dev.scores(self.stage))
        elif not self.signals.finish(lambda: found.append(self.dev.scores(self.stage))):
            return False
        scores, suspicious = self.processes.broadcast(found[0])
        value = judge(scores, self.stage.judged_by)
        self.entry.evaluations.append(DevEvaluation(done, value, scores, suspicious))
        best = -math.inf if self.entry.best is None else self.entry.best
        if self.stage.keeps_last or value > best or value == best == PERFECT:
            self.entry.best, self.entry.best_step = value, done
            if self.processes.writes:
                self.checkpoints.save_best(self.offset + done, dict(self.learner.trained))
        self.display.evaluated(value)
        named = {f"{self.stage.name}/dev after {layers} layers": score for layers, score in scores.items()}
        self.processes.log({f"{self.stage.name}/dev": value, **named}, self.offset + done)
        self._write_report()
        return True

    # Writing and resuming

    def _save(self, done: int) -> None:
        if self.processes.writes:
            state = {
                "stage": self.number,
                "step": done,
                "micro_batch": self.learner.micro_batch,
                "scaler": self.learner.scaler.state_dict(),
                "report": self.report.to_json(),
                "run": self.facts,
            }
            best = None if self.entry.best_step is None else self.offset + self.entry.best_step
            self.checkpoints.save(self.offset + done, self.model, self.learner.state(), state, best)
            if self.settings.keep_checkpoints:
                self._keep(done)
        self._write_report()

    def _keep(self, done: int) -> None:
        """The model as it is now, as a bundle with the plan and the scores that it would have if the run ended here."""
        path = self.output / KEPT / step_name(self.offset + done)
        plan, before = self.model.plan, self.model.scores
        self.model.plan, self.model.scores = self._plan(), self._scores_of(done)
        try:
            with saving(path):
                self.model.save_pretrained(path, self.settings.save_dtype)
        finally:
            self.model.plan, self.model.scores = plan, before

    def _plan(self) -> Plan:
        """What the method at work proposes; an exit rule the user chose stays."""
        plan = self.method.plan(self.model)
        return plan if self.chosen is None else plan.but(exit=self.chosen)

    def _scores_of(self, step: int | None) -> dict[str, Any] | None:
        """The dev scores seen after a step of this stage, as a bundle holds them."""
        seen = [found for found in self.entry.evaluations if found.step == step]
        if not seen:
            return None
        per_layer = {str(layers): score for layers, score in seen[0].scores.items()}
        return {"metric": self.facts["metric"], "per_layer": per_layer}

    def _found(self, resume: bool) -> Checkpoint | None:
        """The checkpoint to go on from; an error where that would mix two runs."""
        found = self.checkpoints.newest() if self.processes.writes else None
        if self.processes.writes:
            self.checkpoints.clean()
        found = self.processes.broadcast(found)
        if found is None:
            return None
        where = self.checkpoints.folder
        if not resume:
            raise BadSetting(f"{where} holds a run; resume=True goes on with it; to start anew, delete {self.output}")
        before = found.state()["run"]
        changed = [name for name in self.facts if before.get(name) != self.facts[name]]
        if changed:
            changes = "; ".join(
                f"{name} was {before.get(name)!r:.200}, now {self.facts[name]!r:.200}" for name in changed
            )
            raise BadSetting(f"{where} holds another run: {changes}; choose another output, or delete {self.output}")
        log.info("resuming from %s", found.path)
        return found

    def _restore(self, found: Checkpoint) -> int:
        """Restore everything as it was at the checkpoint; returns the steps done in its stage."""
        state = found.state()
        found.load_model(self.model)
        self.learner.restore(found.optimizer())
        self.learner.scaler.load_state_dict(state["scaler"])
        self.learner.micro_batch = min(self.learner.micro_batch, state["micro_batch"])
        self.report = Report.from_json(state["report"])
        self.entry = self.report.stages[-1]
        self.offset = self.report.done() - len(self.entry.losses)
        return state["step"]

    def _facts(self) -> dict[str, Any]:
        """What must be the same for a run to be resumed."""
        walk = self.model.walk
        return {
            "methods": [described(method) for method in self.methods],
            "seed": self.settings.seed,
            "batch_size": self.settings.batch_size,
            "precision": self.ways.precision,
            "metric": getattr(self.metric, "__name__", str(self.metric)),
            "model": f"{walk.family}, width {walk.width}, labels {', '.join(self.model.labels)}",
            "depth": list(self.model.depth),
            "reduce": None if self.model.plan.reduce is None else str(self.model.plan.reduce),
            "rows": {name: len(getattr(self.data, name)) for name in ("train", "extra", "dev")},
            "data": self.data.digest(),
        }

    def _write_report(self) -> None:
        if self.processes.writes:
            write_json(self.output / "metrics.json", {"run": self.facts, **self.report.to_json()})

    def _finish(self) -> None:
        """The bundle."""
        self.model.scores = self._scores_of(self.entry.best_step)
        if self.data.dev:
            self._conclude()
        self._write_report()
        self.model.eval()
        self.model.ranges = learn_ranges(self.model, self.data.train)
        if self.processes.writes:
            with saving(self.output / "model"):
                self.model.save_pretrained(self.output / "model", self.settings.save_dtype)
        self.processes.wait()

    def _conclude(self) -> None:
        """The plan as dev rows choose it, unless the user named an exit rule, and what it is worth there."""
        drop = self.methods[-1].max_drop if self.chosen is None else None
        outcome = self.processes.broadcast(self.dev.conclude(drop))
        self.model.plan, self.report.worth = outcome.plan, outcome.worth.to_json()
        self.model.scores = {**(self.model.scores or {}), "worth": self.report.worth, "speeds": outcome.speeds}
        if outcome.warning:
            self._warn(outcome.warning)
