"""`paredown train`: data in, a bundle with exits out."""

from __future__ import annotations

import dataclasses
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.table import Table

from paredown.calibration import Calibrated
from paredown.cli import _options as options
from paredown.cli._app import app, people, print_facts, print_json, results
from paredown.cli._certifying import Certifying, held_out, promise_of
from paredown.cli._data import RowFlags, facts_of, metric_of
from paredown.cli._held_out import HeldOut
from paredown.cli._loading import device_named, method_settled, model_for
from paredown.cli.calibrate import Risk, certificate_lines
from paredown.evaluation import Cost, Worth, metric_named, record, worth
from paredown.evaluation.elue import static_point
from paredown.evaluation.plots import save_depths
from paredown.model import AdaptiveModel
from paredown.system.saving import write_json
from paredown.training import train as run
from paredown.training.batches import Batches, lengths
from paredown.training.batches import Data as TrainingData
from paredown.training.guard import freeze
from paredown.training.processes import check_trackers
from paredown.training.report import Report
from paredown.training.settings import Settings

Option = typer.Option


@app.command()
@options.grouped
def train(
    model: Annotated[str, typer.Argument(help="A Hugging Face folder, hub id or weights file, or a bundle.")],
    *,
    output: options.RunFolder,
    method: Annotated[
        list[str] | None, Option("--method", "-m", help="auto (the default), fastbert, joint:distill=1.0, …")
    ] = None,
    depth: Annotated[list[int] | None, Option(min=1, help="So many first layers; several: a model of each.")] = None,
    head: options.HeadName = None,
    reduce: options.Reduce = None,
    tokenizer: options.Tokenizer = None,
    task: options.TaskName = None,
    data: options.Data = None,
    train: Annotated[str | None, Option(help="File or Hub dataset with labelled rows.")] = None,
    dev: Annotated[str | None, Option(help="The same, to choose the best weights by.")] = None,
    test: Annotated[
        str | None, Option(help="The same, to report on at the end; with --task also one of its splits: test, …")
    ] = None,
    unlabelled: Annotated[str | None, Option(help="More text without labels, for stages that need none.")] = None,
    flags: RowFlags,
    epochs: options.Epochs = None,
    lr: options.LearningRate = None,
    max_drop: Annotated[
        float | None, Option(help="What the plan may cost of the score, 0.01 is a point; default of auto: 0.005.")
    ] = None,
    confidence: Annotated[
        float | None, Option(help="Certify that with this confidence, on rows that nothing else saw.")
    ] = None,
    risk: Risk = "score",
    calibration: Annotated[
        str | None, Option(help="File with these rows; default: a fifth of the training rows, 4,000 at most.")
    ] = None,
    batch_size: options.BatchSize = None,
    max_length: options.MaxLength = None,
    precision: options.Precision = "auto",
    save_dtype: Annotated[str | None, Option(help="Of the bundle: float32 (default), float16 or bfloat16.")] = None,
    seed: int = 42,
    device: options.Device = "auto",
    compile: options.CompileLayers = False,
    evaluate_every: Annotated[int | None, Option(min=1, help="Steps between dev scores; default: an epoch.")] = None,
    save_every: Annotated[int | None, Option(min=1, help="Steps between checkpoints; default: an epoch.")] = None,
    keep_checkpoints: Annotated[
        bool, Option("--keep-checkpoints", help="Keep the model of every checkpoint, as a bundle in OUTPUT/kept.")
    ] = False,
    tracker: options.Trackers = None,
    dry_run: options.DryRun = False,
    as_json: options.AsJson = False,
    config: options.Config = None,
) -> None:
    """Train a model so that its rows can leave early. The same command goes on with a run that was stopped."""
    check_trackers(tracker or ())
    device_named(device)
    Settings(
        seed, batch_size, precision=precision, save_dtype=save_dtype
    )  # wrong ones are refused before data are read
    files = {name: path for name, path in (("train", train), ("dev", dev)) if path}
    source = flags.source(task, data, files, max_length, flags.kind)
    found, held, more = source.training(unlabelled)
    settled = {"head": head, "epochs": epochs, "lr": lr, "max_drop": max_drop}
    chosen = [method_settled(text, **settled) for text in method or ["auto"]]
    promise = promise_of(chosen[-1].max_drop, confidence, risk, calibration)
    learnt, unseen = (found.rows, []) if promise is None or calibration else held_out(found.rows)
    folders = _folders(output, sorted(set(depth or ()), reverse=True))
    new = partial(model_for, model, found, seed, reduce=reduce, max_length=max_length, tokenizer=tokenizer)
    first = new(depth=next(iter(folders)))
    models = chain([first], (new(depth=each) for each in [*folders][1:]))
    extra = more.rows if more else None
    hold_out = chosen[-1].max_drop is not None
    # Once for all depths.
    ready = TrainingData.read(first, learnt, extra, held.rows if held else None, max_length, hold_out)
    judged = HeldOut.read(source, test, first, max_length, found) if test else None
    if dry_run:
        stages = [_foresee(each, chosen, ready, batch_size) for each in models]
        return _show_stages([stage for its in stages for stage in its], facts_of(found, first, max_length), as_json)
    metric = metric_of(held or found, ready)
    made = Made(metric, ready, judged)
    if promise is not None:
        given = calibration and HeldOut.read(source, calibration, first, max_length, found, "--calibration").encoded
        judged_by = metric_named(found.metric, found.groups)
        made.certifying = Certifying(promise, given or first.encode(unseen, max_length), judged_by, ready.dev)
        made.certifying.check(first.kind)
    for folder, adaptive in zip(folders.values(), models, strict=True):
        report = run(
            adaptive,
            chosen,
            ready.train,
            ready.dev,
            output=folder,
            unlabelled=ready.extra,
            metric=metric,
            seed=seed,
            batch_size=batch_size,
            precision=precision,
            evaluate_every=evaluate_every,
            checkpoint_every=save_every,
            keep_checkpoints=keep_checkpoints,
            trackers=tracker or (),
            compile=compile,
            cpu=device == "cpu",
            save_dtype=save_dtype,
            progress=not as_json,
        )
        made.add(folder / "model", adaptive, report)
    if len(folders) == 1:
        return made.show(as_json)
    made.compare(output, as_json)


def _folders(output: Path, depths: list[int]) -> dict[int | None, Path]:
    """The folders by depth; one model is the run itself."""
    if len(depths) > 1:
        return {depth: output / f"depth_{depth}" for depth in depths}
    return {depths[0] if depths else None: output}


@dataclasses.dataclass
class Made:
    """The bundles of one command: one, or one for every depth."""

    metric: Any
    rows: TrainingData
    judged: HeldOut | None
    certifying: Certifying | None = None
    certified: Calibrated | None = None
    runs: list[dict[str, Any]] = dataclasses.field(default_factory=list)

    def add(self, bundle: Path, model: AdaptiveModel, report: Report) -> None:
        self.model, self.report, self.certified = model, report, None
        if self.certifying is not None:
            self._certify(self.certifying, bundle)
        self.tested = self.judged.of(model) if self.judged else None
        facts = {"bundle": str(bundle), "layers_kept": len(model.depth), "parameters": used_parameters(model)}
        if self.rows.dev:
            plan = model.plan.but(exit=None)
            facts |= static_point(record(model, self.rows.dev, plan=plan), self.metric, Cost.of(model, plan))
        if self.tested:
            facts["test"] = self.tested.to_json()
        if self.certifying is not None:
            facts["certificate"] = self.certified and self.certified.certificate.to_json()
        self.runs.append(facts)

    def _certify(self, certifying: Certifying, bundle: Path) -> None:
        """Put a certified plan in the place of the one that dev rows chose."""
        self.model.plan, self.certified, problem = certifying.certify(bundle, self.model.device)
        if problem is not None:
            people.print(f"warning: {problem}", highlight=False, soft_wrap=True)
            self.report.warnings.append(problem)
        if self.rows.dev:
            self.report.worth = worth(self.model, self.rows.dev, self.metric).to_json()

    def show(self, as_json: bool) -> None:
        (made,) = self.runs
        if as_json:
            more = {name: made[name] for name in ("test", "certificate") if name in made}
            return print_json({"bundle": made["bundle"], **self.report.to_json(), **more})
        if self.model.scores:
            results.print(score_table(self.model.scores))
        if self.report.worth:
            results.print(Worth.from_json(self.report.worth).table("dev"))
        if self.tested:
            results.print(*self.tested.tables())
        for line in certificate_lines(self.certified.certificate) if self.certified else []:
            results.print(line, highlight=False, markup=False, soft_wrap=True)
        results.print(f"The bundle is in {made['bundle']}, its plan: {self.model.plan}", highlight=False)

    def compare(self, output: Path, as_json: bool) -> None:
        """Write every depth in a table, as JSON and as a picture."""
        metric = getattr(self.metric, "__name__", "")
        write_json(output / "depths.json", {"metric": metric, "depths": self.runs})
        if as_json:
            return print_json({"metric": metric, "depths": self.runs})
        tested = ["test (%)"] if self.judged else []
        table = Table("layers", "parameters", f"dev {metric} (%)", "MFLOPs", "speed-up", *tested)
        for made in self.runs:
            scored = ["", "", ""]
            if "score" in made:
                speedup = f"{made['flops_speedup']:.2f}×"
                scored = [f"{100 * made['score']:.2f}", f"{made['flops'] / 1e6:,.1f}", speedup]
            scored += [f"{100 * made['test']['score']:.2f}"] if self.judged else []
            table.add_row(str(made["layers_kept"]), f"{made['parameters']:,}", *scored)
        results.print(table)
        results.print(f"The bundles are in {output}/depth_N/model.", highlight=False, soft_wrap=True)
        if self.rows.dev:
            for path in save_depths(self.runs, metric, output):
                results.print(f"written: {path}", highlight=False)


def used_parameters(model: AdaptiveModel) -> int:
    """Parameters that the plan puts to use."""
    idle = model.idle(model.depth)
    return sum(value.numel() for name, value in model.named_parameters() if name not in idle)


def score_table(scores: dict[str, Any]) -> Table:
    table = Table("layers run", f"dev {scores['metric']} (%)", title="what every layer knows", title_justify="left")
    for layers, score in scores["per_layer"].items():
        table.add_row(layers, f"{100 * score:.2f}")
    return table


def _foresee(model: AdaptiveModel, chosen: list[Any], data: TrainingData, batch_size: int | None) -> list[Any]:
    """The stages that would run: steps, what they train, and the work in FLOPs."""
    stages = []
    for method in chosen:
        method.check(model)
        method.grow(model)
        cost = Cost.of(model)
        for stage in method.stages(model):
            rows, depth = data.rows(stage), stage.depth or model.depth
            used = torch.from_numpy(lengths(model.kind.encoder_rows(rows))).long()
            trained = freeze(model, stage)
            whole = any(name in trained for name in model.body)
            heads = sum(cost.heads[layer](used) for layer in depth if layer in cost.heads)
            forward = int((cost.full(used, depth) + heads).sum())
            size = batch_size or stage.batch_size
            batches = Batches(lengths(rows), size, (0,))
            steps = batches.steps(stage.epochs, stage.least_steps)
            stages.append(
                {
                    "method": method.name,
                    "stage": stage.name,
                    "layers": len(depth),
                    "rows": len(rows),
                    "steps": steps,
                    "batch_size": size,
                    "trained_parameters": sum(parameter.numel() for parameter in trained.values()),
                    # A backward pass costs two forward passes; through a frozen encoder there is none.
                    "flops": int(forward * steps / batches.per_epoch * (3 if whole else 1)),
                }
            )
        model.companions.clear()
    return stages


def _show_stages(stages: list[dict[str, Any]], rows: dict[str, Any], as_json: bool) -> None:
    if as_json:
        return print_json({"rows": rows, "stages": stages})
    print_facts(rows)
    table = Table("method", "stage", "layers", "rows", "steps", "rows per step", "trained parameters", "TFLOPs")
    for entry in stages:
        method, stage, *numbers, flops = entry.values()
        table.add_row(method, stage, *[f"{number:,}" for number in numbers], f"{flops / 1e12:,.1f}")
    results.print(table, "Nothing was run.")
