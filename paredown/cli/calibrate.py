"""`paredown calibrate`: a promise in, a certified plan in the bundle."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from paredown.bundle import save_plan
from paredown.calibration import Calibrated, Certificate, Promise
from paredown.calibration import calibrate as search
from paredown.calibration.calibrating import SELECTION
from paredown.calibration.candidates import recorded_plans, usual_reducers
from paredown.cli import _options as options
from paredown.cli._app import app, print_forecast, print_json, results
from paredown.cli._data import RowFlags, facts_of
from paredown.cli._loading import check_same_kind, depth_named, device_named, load_any
from paredown.errors import BadSetting
from paredown.evaluation import metric_named
from paredown.model import AdaptiveModel

SHOWN = 8  # plans before the last that passed
CHOOSING = "choose-on"
Option = typer.Option
Risk = Annotated[
    str, Option(help="What may be lost: score (of the metric), error (of a unit) or disagreement (needs no labels).")
]


@app.command()
@options.grouped
def calibrate(
    bundle: Annotated[str, typer.Argument(help="A bundle; the plan and its certificate are written into it.")],
    *,
    rows: Annotated[
        str | None, typer.Argument(help="Rows that neither trained it nor chose its weights; labelled for a score.")
    ] = None,
    max_drop: Annotated[
        float | None, Option(help="As fast as can be, losing at most this much of the score: 0.01 is a point.")
    ] = None,
    target_speedup: Annotated[
        float | None, Option(help="As good as can be, with so many times fewer FLOPs than the stock model.")
    ] = None,
    max_latency_ms: Annotated[
        float | None, Option(help="As good as can be, at this mean time of a row alone on this machine.")
    ] = None,
    confidence: Annotated[float, Option(help="How sure the promise is.")] = 0.95,
    risk: Risk = "score",
    guarantee: Annotated[
        str, Option(help="With that confidence, or on average over calibrations: conformal risk control.")
    ] = "confidence",
    rule: options.Rules = None,
    reduce: Annotated[
        list[str] | None, Option(help="Reducers to try, or none; default: of the plan, or of the selectors.")
    ] = None,
    depth: Annotated[
        list[str] | None, Option(help="More depths to try: a number for the first so many layers, or 0,2,4.")
    ] = None,
    per_layer: Annotated[bool, Option(help="Also learn a bound for every layer.")] = True,
    selection: Annotated[
        float, Option(help="Share of rows that choose what the others test; 0: all test, the rules share the level.")
    ] = SELECTION,
    choose_on: Annotated[
        str | None,
        Option(help="File with rows that choose instead, such as the dev rows of training; all others test."),
    ] = None,
    task: options.TaskName = None,
    data: options.Data = None,
    split: Annotated[str, Option(help="Of the task.")] = "dev",
    flags: RowFlags,
    metric: options.MetricName = None,
    max_length: options.MaxLength = None,
    seed: Annotated[int, Option(help="Which rows choose, and which test.")] = 0,
    device: options.Device = "auto",
    runtime: options.Runtime = "auto",
    dry_run: options.DryRun = False,
    as_json: options.AsJson = False,
    config: options.Config = None,
) -> None:
    """Find the cheapest plan that keeps a promise about accuracy, or the best within a budget, and certify it."""
    promise = Promise(max_drop, target_speedup, max_latency_ms, confidence, risk, guarantee)  # type: ignore[arg-type]
    if split == "test":
        raise BadSetting("a plan that the test rows chose has none left to be tested on: calibrate on other rows")
    source = flags.source(task, data, {split: rows, CHOOSING: choose_on}, max_length)
    model = load_any(bundle, runtime=runtime).to(device_named(device))
    check_same_kind(model, flags.kind)
    found = source.read_for(model, split)
    encoded = model.encode(found.rows, max_length)
    depths = [depth_named(model, one) for one in depth or ()]
    reducers = None if reduce is None else [one for one in reduce if one.lower() != "none"]
    if dry_run:
        plans = recorded_plans(model, depths, usual_reducers(model) if reducers is None else reducers)
        passes = {"asked": str(promise.asked), "rows": len(encoded), "passes": [str(plan) for plan in plans]}
        return print_forecast({**facts_of(found, model, max_length), **passes}, as_json)
    done = search(
        model,
        encoded,
        promise,
        metric=metric_named(metric or found.metric, found.groups),
        rules=rule or "all",
        reduce=reducers,
        depths=depths,
        per_layer=per_layer,
        selection=selection,
        choose_on=source.read_for(model, CHOOSING).rows if choose_on else None,
        max_length=max_length,
        seed=seed,
    )
    save_plan(bundle, done.plan, done.certificate)
    show(model, done, bundle, as_json)


def show(model: AdaptiveModel, done: Calibrated, bundle: str, as_json: bool) -> None:
    if as_json:
        return print_json({"bundle": bundle, **done.to_json()})
    table = Table(title=f"{done.tried:,} plans compared; the last ones tested", title_justify="left")
    for column in ("plan", "speed-up", "lost (%)", "kept"):
        table.add_column(column, justify="left" if column == "plan" else "right")
    last = max(number for number, line in enumerate(done.tested) if line["passed"])
    for line in done.tested[max(last - SHOWN, 0) : last + 2]:
        marks = (f"{line['flops_speedup']:.2f}×", f"{100 * line['loss']:.2f}", "yes" if line["passed"] else "no")
        table.add_row(line["plan"], *marks)
    results.print(table)
    for text in certificate_lines(done.certificate):
        results.print(text, highlight=False, soft_wrap=True, markup=False)
    results.print(f"saved in {bundle}; its plan before: {model.plan}", highlight=False, soft_wrap=True)


def certificate_lines(certificate: Certificate) -> list[str]:
    """For people."""
    time = "" if certificate.milliseconds is None else f", {certificate.milliseconds:.2f} ms for a row"
    return [
        f"plan: {certificate.plan}",
        f"promised: {certificate}",
        f"seen on these: {100 * certificate.observed:.2f} % lost, {100 * certificate.disagreement:.2f} % answered "
        f"otherwise, {certificate.speedup:.2f} times fewer FLOPs than the stock model{time}",
        f"by {certificate.method}; {certificate.selected_on:,} other units chose the plan",
    ]
