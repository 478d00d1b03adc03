"""`paredown bench`: how fast a bundle's plan is on this machine, beside full depth and beside other runtimes."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.table import Table

from paredown.answers import Encoded
from paredown.cli import _options as options
from paredown.cli._app import app, print_json, results
from paredown.cli._incoming import Input, open_source
from paredown.cli._loading import changed, device_named, load_bundle
from paredown.errors import BadInput, BadSetting
from paredown.evaluation.plots import NEEDED, can_draw, save_speeds
from paredown.model import AdaptiveModel, Reading
from paredown.plan import Plan
from paredown.runtime.bench import CALIBRATION, Bench, courses, rows_of_a_round
from paredown.runtime.rivals import RIVALS
from paredown.system.saving import write_json
from paredown.tasks._reading import value_of

Option = typer.Option
log = logging.getLogger(__name__)


@app.command()
def bench(
    bundle: options.Bundle,
    input: Annotated[str, typer.Argument(help="Texts to run: csv, tsv, jsonl (each also .gz), parquet.")],
    text_column: options.TextColumn = None,
    pair_column: options.PairColumn = None,
    label_column: options.LabelColumn = None,
    exit: options.LeavingRule = None,
    reduce: options.Reduce = None,
    batch_size: Annotated[list[int] | None, Option(min=1, help="Rows per batch; may be repeated.")] = None,
    rounds: Annotated[int, Option(min=1, help="Rounds in which all take turns; one more warms up.")] = 10,
    compiled: Annotated[
        bool, Option("--compiled", help="Also transformers under torch.compile: takes minutes.")
    ] = False,
    one_thread: Annotated[
        bool, Option("--one-thread", "--cpu-time", help="CPU time of one thread: for a machine that others use too.")
    ] = False,
    output: Annotated[Path | None, Option("--output", "-o", help="A JSON file to write.")] = None,
    plot: Annotated[Path | None, Option(help="A picture to write: png, svg or pdf.")] = None,
    device: options.Device = "auto",
    dtype: options.Dtype = None,
    as_json: options.AsJson = False,
    config: options.Config = None,
) -> None:
    """Measure speed, latency, memory and accuracy: the plan, full depth, transformers, and the int8 of ONNX Runtime,
    OpenVINO and CTranslate2 where they are installed."""
    where = device_named(device)
    if one_thread:
        if where.startswith("cuda"):
            raise BadSetting("--one-thread measures CPU time; it does not go with a GPU")
        torch.set_num_threads(1)
    if plot is not None:
        _check_plot(plot)
    model = load_bundle(bundle, dtype).to(where)
    plan = changed(model.plan, exit, reduce)
    model.route(plan)
    sizes = list(dict.fromkeys(batch_size or [1, 32]))
    needed = (rounds + 1) * max(map(rows_of_a_round, sizes)) + CALIBRATION
    rows = _rows(
        model, Input(input, Reading(None, text_column, pair_column), model.reading, label=label_column), needed
    )
    planned, calibration = courses(rows, sizes, rounds)
    timed = Bench(model, plan, calibration, [name for name, one in RIVALS.items() if compiled or not one.on_request])
    batches = {str(course.size): timed.run(course, one_thread) for course in planned}
    found = {
        "bundle": bundle,
        "plan": plan.to_json(),
        **timed.facts(),
        "rounds": rounds,
        "time": "process" if one_thread else "wall",
        "metric": model.kind.metric,
        "batches": batches,
        "not_measured": timed.missing,
    }
    if as_json:
        print_json(found)
    else:
        _show(found, plan)
    if output is not None:
        write_json(output, found)
    if plot is not None:
        save_speeds(found, plot)


def _check_plot(path: Path) -> None:
    """Before anything is measured."""
    if path.suffix not in (".png", ".svg", ".pdf"):
        raise BadSetting(f"--plot writes png, svg or pdf, not {path.name}")
    if not can_draw():
        raise BadSetting(f"--plot: {NEEDED}")


def _rows(model: AdaptiveModel, wanted: Input, number: int) -> list[Encoded]:
    """The first rows that can be read; with labels where there is a column of them."""
    guessed = model.reading.label_column or "label"
    source = open_source(replace(wanted, label=wanted.label or guessed), model.kind)
    if wanted.label and not source.kept:
        raise BadInput(f"{wanted.path}: no column {wanted.label!r} for --label-column")
    good = [one for one in source.parsed(source.take(number)) if one.row is not None]
    if not good:
        raise BadInput(f"{wanted.path} has no row that can be read")
    texts: list[Any] = [one.row for one in good]
    if source.kept:
        separator = model.reading.label_separator
        labels = [value_of(one.kept[0], model.kind, separator) for one in good]
        labelled: list[Any] = [replace(row, label=label) for row, label in zip(texts, labels, strict=True)]
        try:
            return model.encode(labelled)
        except BadInput as error:
            if wanted.label:
                raise
            log.warning("column %r is not read, so there is no score: %s", guessed, error)
    return model.encode(texts)


def _show(found: dict[str, Any], plan: Plan) -> None:
    for size, ways in found["batches"].items():
        results.print(_table(size, ways, found["metric"]))
    for name, reason in found["not_measured"].items():
        results.print(f"{name} was not measured: {reason}", highlight=False, markup=False, soft_wrap=True)
    about = f"{found['device']} ({', '.join(found['flags'])}), {found['threads']} threads"
    results.print(f"{about}, {found['time']} time, plan: {plan}", highlight=False, soft_wrap=True)


def _table(size: str, ways: dict[str, dict[str, Any]], metric: str) -> Table:
    beside = next(iter(ways))
    columns = {
        "texts/s": ("texts_per_second", "{:,.0f}"),
        "p50 ms": ("p50_ms", "{:.2f}"),
        "p99 ms": ("p99_ms", "{:.2f}"),
        f"x {beside}": ("times_transformers", "{:.2f}"),
        "efficiency": ("efficiency", "{:.2f}"),
        "MB": ("memory_mb", "{:,.0f}"),
        "same answers": ("agreement", "{:.1%}"),
        metric: ("score", "{:.2%}"),
    }
    shown = {head: column for head, column in columns.items() if any(column[0] in facts for facts in ways.values())}
    table = Table("way", *shown, title=f"batches of {size}")
    for name, facts in ways.items():
        cells = (form.format(facts[key]) if facts.get(key) is not None else "" for key, form in shown.values())
        table.add_row(name, *cells)
    return table
