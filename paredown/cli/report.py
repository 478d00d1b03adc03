"""`paredown report`: one HTML file about a bundle, to open in any browser, without a network."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from paredown.cli import _options as options
from paredown.cli._app import app, print_forecast, print_json, results
from paredown.cli._asked import BATCH
from paredown.cli._data import RowFlags, facts_of
from paredown.cli._loading import changed, check_same_kind, device_named, load_bundle
from paredown.errors import BadInput
from paredown.evaluation import metric_named
from paredown.reporting import report as made_of

Option = typer.Option


@app.command()
@options.grouped
def report(
    bundle: options.Bundle,
    *,
    rows: options.LabelledRows = None,
    output: Annotated[Path, Option("--output", "-o", help="The HTML file to write.")] = Path("report.html"),
    record: options.RecordFolder = None,
    bench: Annotated[Path | None, Option(help="What `paredown bench --output` wrote, to be shown too.")] = None,
    examples: Annotated[int, Option(min=1, max=50, help="Hard, easy and shortened rows to show.")] = 8,
    time: Annotated[bool, Option(help="Measure the time of single rows too.")] = True,
    task: options.TaskName = None,
    data: options.Data = None,
    split: Annotated[str, Option(help="Of the task.")] = "dev",
    flags: RowFlags,
    metric: options.MetricName = None,
    max_length: options.MaxLength = None,
    exit: options.ExitRule = None,
    reduce: options.Reduce = None,
    device: options.Device = "auto",
    runtime: options.Runtime = "auto",
    dry_run: options.DryRun = False,
    as_json: options.AsJson = False,
    config: options.Config = None,
) -> None:
    """Write one HTML file: score against cost for every exit rule, with a slider, who leaves where, and examples."""
    source = flags.source(task, data, {split: rows}, max_length)
    measured = None if bench is None else _bench(bench)
    model = load_bundle(bundle, runtime=runtime).to(device_named(device))
    check_same_kind(model, flags.kind)
    model.plan = changed(model.plan, exit, reduce)
    model.route(model.plan)
    found = source.read_for(model, split)
    if dry_run:
        facts = {"rows": len(found.rows), "plan": str(model.plan), "file": str(output)}
        return print_forecast({**facts_of(found, model, max_length), **facts}, as_json)
    path = made_of(
        model,
        found.rows,
        metric_named(metric or found.metric, found.groups),
        name=_name(bundle),
        record_in=record,
        bench=measured,
        commands=[shlex.join(["paredown", *sys.argv[1:]])],
        examples=examples,
        timed=time,
        batch_size=BATCH,
        max_length=max_length,
    ).save(output)
    if as_json:
        return print_json({"report": str(path), "bytes": path.stat().st_size, "rows": len(found.rows)})
    results.print(f"written: {path} ({path.stat().st_size / 1e6:.1f} MB); open it in a browser", highlight=False)


def _name(bundle: str) -> str:
    """The folder's name, and its parent's where that alone says nothing: `films/model`."""
    parts = Path(bundle).resolve().parts
    return "/".join(parts[-2:] if parts[-1] == "model" else parts[-1:])


def _bench(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        whole = all(
            "texts_per_second" in way and "times_transformers" in way
            for ways in found["batches"].values()
            for way in ways.values()
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadInput(f"{path} is not what `paredown bench --output` writes: {error!r:.80}") from None
    if not whole:
        raise BadInput(f"{path} is not what `paredown bench --output` writes: a way has no times")
    return dict(found)
