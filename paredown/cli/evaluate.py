"""`paredown evaluate`: what a bundle is worth, as a table, JSON, CSV and pictures, or in the files of others."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from paredown.answers import Encoded, flat
from paredown.cli import _options as options
from paredown.cli._app import app, people, print_forecast, print_json, results
from paredown.cli._asked import ASKED, BATCH, Asked
from paredown.cli._checkpoints import FILE, Kept, kept_bundles
from paredown.cli._data import RowFlags, facts_of
from paredown.cli._loading import changed, check_same_kind, device_named, load_bundle
from paredown.cli._originals import OriginalFiles, OriginalSettings, split_of
from paredown.errors import BadInput
from paredown.evaluation import Cost, Evaluation, metric_named, sweep
from paredown.evaluation import evaluate as judge
from paredown.evaluation.plots import can_draw
from paredown.evaluation.report import fitting_rules
from paredown.model import AdaptiveModel
from paredown.plan import Plan

PICTURES = ("score_by_layer", "score_against_cost", "exits")  # the last two need a rule

Option = typer.Option


@app.command()
@options.grouped
def evaluate(
    bundle: Annotated[str, typer.Argument(help="A bundle; with --checkpoints the folder of a run.")],
    *,
    rows: options.LabelledRows = None,
    output: Annotated[Path | None, Option("--output", "-o", help="Folder for all files.")] = None,
    task: options.TaskName = None,
    data: options.Data = None,
    split: Annotated[str | None, Option(help="Of the task; default dev, test for submissions.")] = None,
    flags: RowFlags,
    rule: options.Rules = None,
    max_drop: Annotated[
        float | None, Option(min=0, max=1, help="Score that may be lost at the chosen points; default 0.01, a point.")
    ] = None,
    metric: options.MetricName = None,
    paper: Annotated[str | None, Option(help="Count FLOPs as fastbert or elasticbert did.")] = None,
    timed_batch: Annotated[list[int] | None, Option(help="Batch sizes to measure time at.")] = None,
    max_length: options.MaxLength = None,
    exit: options.ExitRule = None,
    reduce: options.Reduce = None,
    dtype: options.Dtype = None,
    runtime: options.Runtime = "auto",
    write: Annotated[
        list[str] | None,
        Option(help="Instead of the report: files as deebert or elasticbert write, a submission to glue or elue."),
    ] = None,
    threshold: Annotated[list[float] | None, Option(help="With --write: entropy in nats; default: theirs.")] = None,
    patience: Annotated[list[int] | None, Option(help="With --write: likewise; 0 is full depth.")] = None,
    tolerance: Annotated[float | None, Option(help="With --write: within which numbers agree.")] = None,
    checkpoints: Annotated[
        bool, Option("--checkpoints", help="Instead of the report: a line for every kept checkpoint of a run.")
    ] = False,
    record: options.RecordFolder = None,
    device: options.Device = "auto",
    dry_run: options.DryRun = False,
    as_json: options.AsJson = False,
    config: options.Config = None,
) -> None:
    """Score every layer and every exit rule at every speed from one pass over the rows, and measure the time."""
    settings = OriginalSettings(threshold or None, patience or None, tolerance, exit)
    reported = {
        "--rule": rule,
        "--max-drop": max_drop,
        "--paper": paper,
        "--timed-batch": timed_batch,
        "--record": record,
    }
    given = [flag for flag, value in reported.items() if value not in (None, [])]
    settings.check(formats := tuple(dict.fromkeys(write or ())), output, given, checkpoints)
    split = split_of(formats, split)
    source = flags.source(task, data, {split: rows}, max_length)
    bundles = kept_bundles(bundle) if checkpoints else [bundle]
    where = device_named(device)
    loaded = partial(_loaded, exit=exit, reduce=reduce, kind=flags.kind, device=where, dtype=dtype, runtime=runtime)
    model, plan = loaded(bundles[-1])
    files = (
        OriginalFiles(formats, output, task, rows or "", split, settings, model, plan) if formats and output else None
    )
    found = source.read_for(model, split)
    encoded = model.encode(found.rows, max_length)
    metrics = [metric] if metric else list(found.metrics)
    if files is not None:
        files.check(_labelled(encoded), len(found.bad))
    elif not _labelled(encoded):
        raise BadInput(f"the {split} rows have no labels to score by; --write elasticbert, glue or elue needs none")
    if dry_run:
        rules, names = _outcome(model, plan, rule or "all", files, checkpoints)
        names = [str(output / name) for name in names] if output else []
        names += [str(record)] if record else []
        return _foresee(model, plan, encoded, rules, names, facts_of(found, model, max_length), as_json)
    if files is not None:
        return _write(files, encoded, metrics, found.groups, as_json)
    measure = metric_named(metrics[0], found.groups)
    if checkpoints:
        return Kept.judged(bundles, loaded, encoded, measure).show(output, as_json)
    evaluation = judge(
        model,
        encoded,
        rule or "all",
        measure,
        plan=plan,
        allowed_drop=0.01 if max_drop is None else max_drop,
        paper=paper,  # type: ignore[arg-type]
        batch_size=BATCH,
        timed_batches=tuple(timed_batch or (1, 32)),
        record_in=record,
    )
    questions = ASKED.get(model.kind.name)
    asked = questions(model, plan, found.rows, max_length, task) if questions else None
    _show(evaluation, asked, output, as_json)


def _loaded(
    bundle: str, exit: str | None, reduce: str | None, kind: str | None, device: str, dtype: str | None, runtime: str
) -> tuple[AdaptiveModel, Plan]:
    model = load_bundle(bundle, dtype, runtime).to(device)
    check_same_kind(model, kind)
    plan = changed(model.plan, exit, reduce)
    model.route(plan)
    return model, plan


def _show(evaluation: Evaluation, asked: Asked | None, output: Path | None, as_json: bool) -> None:
    """Printed first, so that nothing that fails while files are written can cost the figures."""
    if as_json:
        print_json(evaluation.to_json() | ({"questions": asked.figures} if asked else {}))
    else:
        results.print(evaluation.layer_table(), evaluation.table(), *[asked.table()] if asked else [])
    written = [] if output is None else [*(asked.write(output) if asked else []), *evaluation.save(output)]
    for path in [] if as_json else written:
        results.print(f"written: {path}", highlight=False)


def _labelled(rows: list[Encoded]) -> bool:
    return all(row.label is not None or not row.teaches for row in rows)


def _write(files: OriginalFiles, rows: list[Encoded], metrics: list[str], groups: Any, as_json: bool) -> None:
    """Standard output has the lines that the original tool prints, and nothing else."""
    written = files.write(rows, metrics, groups)
    if as_json:
        return print_json({"rows": len(rows), "files": [str(path) for path in written.files], "lines": written.lines})
    for line in written.lines:
        results.out(line, highlight=False)
    if not _labelled(rows):
        people.print(f"the {files.split} rows have no labels, so nothing was scored", highlight=False)
    for path in written.files:
        people.print(f"written: {path}", highlight=False, soft_wrap=True)


def _asked(model: AdaptiveModel, plan: Plan) -> tuple[int, ...]:
    """Layers run at every exit before the end."""
    return tuple(run for run, layer in enumerate(model.depth_of(plan)[:-1], 1) if str(layer) in model.heads)


def _outcome(
    model: AdaptiveModel, plan: Plan, wanted: str | list[str], files: OriginalFiles | None, checkpoints: bool
) -> tuple[list[str], list[str]]:
    """The rules that would be tried, and the names of the files that would be written."""
    if files is not None:
        return ["full depth" if rule is None else str(rule) for rule in files.rules()], files.names()
    if checkpoints:
        return ["full depth", str(plan)], [FILE]
    swept = fitting_rules(wanted, model.kind, _asked(model, plan), model.error_probability is not None, plan.exit)
    drawn = (PICTURES if swept else PICTURES[:1]) if can_draw() else ()
    names = ["evaluation.json", "curves.csv", *[f"{name}.{ending}" for name in drawn for ending in ("png", "svg")]]
    names += questions.files if (questions := ASKED.get(model.kind.name)) else ()
    return [f"{rule.name}, {len(sweep(rule))} points" for rule in swept], names


def _foresee(
    model: AdaptiveModel,
    plan: Plan,
    rows: list[Encoded],
    rules: list[str],
    files: list[str],
    facts: dict[str, Any],
    as_json: bool,
) -> None:
    """What would run and be written."""
    lengths = torch.tensor([len(one) for one in flat(rows)])
    found = {
        **facts,
        "rows": len(rows),
        "labelled": _labelled(rows),
        "batches": -(-len(rows) // BATCH),
        "plan": str(plan),
        "tokens_per_row": round(lengths.sum().item() / len(rows), 1),
        "flops_of_one_pass": _work(model, plan, lengths),
        "device": str(model.device),
        "rules": rules,
        "files": files,
    }
    print_forecast(found, as_json)


def _work(model: AdaptiveModel, plan: Plan, lengths: torch.Tensor) -> int:
    """FLOPs of every layer on the way and every head after one; a reducer's savings show only when it runs."""
    cost, way = Cost.of(model), model.depth_of(plan)
    heads = [cost.heads[layer] for layer in way[:-1] if layer in cost.heads]
    last = cost.heads.get(way[-1], cost.classifier)
    parts = [cost.start, *[(cost.layers + cost.grown)[layer] for layer in way], *heads, last]
    return int(sum(int(part(lengths).sum()) for part in parts))
