"""`paredown demo`: train exits on real sentences, certify a plan, show what it is worth and where sentences leave."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from paredown.answers import Prediction
from paredown.calibration import Promise, Risk
from paredown.cli import _options as options
from paredown.cli._app import app, people, print_forecast, print_json, results
from paredown.cli._certifying import Certifying, held_out
from paredown.cli._data import ColumnFlags, Source
from paredown.cli._fetch import ENCODER, REVIEWS, fetch_encoder, fetch_reviews
from paredown.cli._loading import device_named
from paredown.cli.calibrate import certificate_lines
from paredown.errors import BadInput, BadSetting
from paredown.evaluation import Evaluation, evaluate, metric_for
from paredown.model import AdaptiveModel, Reading
from paredown.plan import Plan
from paredown.registry import methods
from paredown.reporting import report
from paredown.training import train as run

LENGTH = 128  # tokens of a row
PROMISED = 0.02  # lost of the score at most, with a confidence of 95 %
METHOD = "fastbert:epochs=1,lr=1e-4,exit_epochs=2,exit_lr=5e-4"
SENTENCES = [
    "A masterpiece.",
    "Dull, lifeless and far too long.",
    "The cast is wonderful and the jokes land.",
    "Not nearly as bad as the trailer made me fear.",
    "It could have been a great film, had anyone bothered to write an ending.",
    "I wanted to hate it, and for an hour I did, but then it won me over.",
]
Option = typer.Option


@app.command()
@options.grouped
def demo(
    *,
    model: Annotated[str | None, Option(help="Your own encoder; default: a 6-layer MiniLM.")] = None,
    method: Annotated[str, Option("--method", "-m", help="How to train.")] = METHOD,
    task: options.TaskName = None,
    data: options.Data = None,
    train: Annotated[str | None, Option(help="Your own labelled rows; default: rated movie-review sentences.")] = None,
    dev: Annotated[str | None, Option(help="Your own rows to choose by and to report on.")] = None,
    flags: ColumnFlags,
    output: Annotated[Path, Option("--output", "-o", help="Folder for all that is made.")] = Path("demo"),
    device: options.Device = "auto",
    dry_run: options.DryRun = False,
    as_json: options.AsJson = False,
    config: options.Config = None,
) -> None:
    """Train exits on a small encoder in minutes, on a CPU, and see what they save."""
    began = time.monotonic()
    recipe = methods.parse(method)
    device_named(device)
    if dry_run:
        return print_forecast(_foreseen(model, task or train, method, output), as_json)
    if task is None and train is None:
        rows = _reviews(output / "downloads")
    else:
        rows = _rows(Source(task, data, {"train": train, "dev": dev}, flags.reading(LENGTH), kind=flags.kind))
    source = model or str(fetch_encoder(output / "downloads"))
    learnt, unseen = held_out(rows["train"])
    people.rule(f"{len(learnt):,} sentences to train on, {len(unseen):,} to certify, {len(rows['test']):,} to test on")
    adaptive = AdaptiveModel.from_pretrained(source, task=rows["kind"], labels=list(rows["labels"]))
    adaptive.reading = rows["reading"]
    there = output / "run"
    settings: dict[str, Any] = {"max_length": LENGTH, "cpu": device == "cpu", "progress": not as_json}
    run(adaptive, recipe, learnt, rows["dev"], output=there, **settings)
    bundle = there / "model"
    people.print(f"certifying a plan on {len(unseen):,} sentences …", highlight=False)
    held, chosen_on = (adaptive.encode(its, LENGTH) for its in (unseen, rows["dev"]))
    certifying = Certifying(_promise(adaptive), held, metric_for(adaptive.kind), chosen_on)
    _, certified, why_not = certifying.certify(bundle, adaptive.device)
    adaptive = AdaptiveModel.from_pretrained(bundle).to(adaptive.device)
    people.print("scoring and timing it on test rows, and writing the page …", highlight=False)
    evaluation = evaluate(adaptive, rows["test"], timed_batches=(1, 32))
    evaluation.save(output / "evaluation")
    page = report(adaptive, rows["test"], name=bundle.parent.parent.name).save(output / "report.html")
    predictions, minutes = adaptive.predict(SENTENCES), (time.monotonic() - began) / 60
    if as_json:
        leaving = [{"text": text, **asdict(one)} for text, one in zip(SENTENCES, predictions, strict=True)]
        found: dict[str, Any] = {
            "bundle": str(bundle),
            "plan": adaptive.plan.to_json(),
            "evaluation": evaluation.to_json(),
        }
        found |= {"certificate": certified and certified.certificate.to_json(), "report": str(page)}
        return print_json({**found, "sentences": leaving, "minutes": round(minutes, 2)})
    lines = [why_not] if certified is None else certificate_lines(certified.certificate)
    results.print(evaluation.layer_table(), evaluation.table(), _where(adaptive.plan, predictions))
    for line in (*lines, _verdict(evaluation, adaptive.plan)):
        results.print(line, highlight=False, soft_wrap=True, markup=False)
    results.print(f"{minutes:.1f} minutes. To look at in a browser: {page}. Next:", highlight=False, soft_wrap=True)
    for command in (
        f"paredown info {bundle}",
        f'echo "Surprisingly good." | paredown predict {bundle} - -',
        "paredown demo --train my.csv --dev held_out.csv --output mine",
    ):
        results.print(f"  {command}", highlight=False, soft_wrap=True)


def _promise(model: AdaptiveModel) -> Promise:
    """On the score, or where that is no mean over units on their errors."""
    try:
        Risk("score", metric_for(model.kind)).check(model.kind, labelled=True)
    except BadInput:
        return Promise(PROMISED, risk="error")
    return Promise(PROMISED)


def _foreseen(model: str | None, rows: str | None, method: str, output: Path) -> dict[str, Any]:
    """What would be fetched, trained and written; nothing is fetched to count it."""
    return {
        "fetched": [package for package, own in ((ENCODER, model), (REVIEWS, rows)) if own is None],
        "encoder": model or ENCODER,
        "rows": rows or REVIEWS,
        "method": method,
        "written": [str(output / name) for name in ("run", "evaluation", "report.html")],
    }


def _rows(source: Source) -> dict[str, Any]:
    """Train, dev and test rows with their kind and labels; the user's dev rows are the test rows too."""
    found, held, _ = source.training(None)
    if held is None:
        raise BadSetting("give --dev too: rows to choose the best weights by and to report on")
    return {
        "train": found.rows,
        "dev": held.rows,
        "test": held.rows,
        "kind": found.kind,
        "labels": found.labels,
        "reading": found.reading,
    }


def _reviews(store: Path) -> dict[str, Any]:
    labels = ("negative", "positive")
    return {**fetch_reviews(store), "kind": "single_label", "labels": labels, "reading": Reading()}


def _verdict(evaluation: Evaluation, plan: Plan) -> str:
    """What the plan does on test rows, which nothing was chosen on."""
    full, own = evaluation.full, evaluation.chosen[0]
    if plan.exit is None:
        return f"On test rows every row runs to the end: {evaluation.metric} {100 * full['score']:.2f}."
    lost = 100 * (full["score"] - own["score"])
    return (
        f"On test rows the plan runs {full['layers'] / own['layers']:.2f} times fewer layers and "
        f"{own['flops_speedup']:.2f} times fewer FLOPs; {evaluation.metric} {100 * own['score']:.2f}, "
        f"{abs(lost):.2f} points {'below' if lost > 0 else 'above'} full depth."
    )


def _where(plan: Plan, predictions: list[Prediction]) -> Table:
    table = Table("text", "answer", "score", "layers run", title=f"where sentences leave: {plan}")
    for text, one in zip(SENTENCES, predictions, strict=True):
        table.add_row(text, str(one.label), f"{one.score:.3f}", "▪" * one.layers + f" {one.layers}")
    return table
