"""`paredown bench`: how fast a bundle's plan is on this machine, beside full depth and beside other runtimes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.table import Table

from paredown.cli._app import AsJson, Config, app, print_json, results
from paredown.cli._data import PairColumn
from paredown.cli._data import TextColumn as Text
from paredown.cli._incoming import Input, open_source
from paredown.cli._loading import Device, Dtype, Reduce, changed, device_named, load_bundle
from paredown.errors import BadInput, BadSetting
from paredown.model import Reading
from paredown.runtime.bench import bench as measure
from paredown.system.machine import machine
from paredown.system.saving import write_json

Option = typer.Option


@app.command()
def bench(
    bundle: Annotated[str, typer.Argument(help="A bundle.")],
    input: Annotated[str, typer.Argument(help="Texts to run: csv, tsv, jsonl (each also .gz), parquet.")],
    text_column: Text = None,
    pair_column: PairColumn = None,
    exit: Annotated[str | None, Option(help="When a row may leave: entropy:0.3, patience:4, …, none.")] = None,
    reduce: Reduce = None,
    batch_size: Annotated[list[int] | None, Option(min=1, help="Rows per batch; may be repeated.")] = None,
    rounds: Annotated[int, Option(min=1, help="Batches that every way runs; one more warms up.")] = 10,
    one_thread: Annotated[
        bool, Option("--one-thread", help="CPU time of one thread: for a machine that others use too.")
    ] = False,
    output: Annotated[Path | None, Option("--output", "-o", help="A JSON file to write.")] = None,
    device: Device = "auto",
    dtype: Dtype = None,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Measure texts per second: the plan, full depth, transformers, and ONNX Runtime int8 where it is installed."""
    where = device_named(device)
    if one_thread:
        if where.startswith("cuda"):
            raise BadSetting("--one-thread measures CPU time; it does not go with a GPU")
        torch.set_num_threads(1)
    model = load_bundle(bundle, dtype).to(where)
    plan = changed(model.plan, exit, reduce)
    model.route(plan)
    sizes = batch_size or [1, 32]
    source = open_source(Input(input, Reading(None, text_column, pair_column), model.reading), model.kind)
    texts = [one.row for one in source.parsed(source.take(max(sizes) * (rounds + 1))) if one.row is not None]
    if not texts:
        raise BadInput(f"{input} has no row that can be read")
    rows = model.encode(texts)
    found: dict[str, Any] = {"bundle": bundle, "plan": plan.to_json(), **machine(model.device), "rounds": rounds}
    found["time"] = "process" if one_thread else "wall"
    found["batches"] = {str(size): measure(model, rows, plan, size, rounds, one_thread) for size in sizes}
    if output is not None:
        write_json(output, found)
    if as_json:
        return print_json(found)
    for size, ways in found["batches"].items():
        results.print(_table(size, ways))
    about = f"{found['gpu'] or found['cpu']} ({', '.join(found['flags'])}), {found['threads']} threads"
    results.print(f"{about}, {found['time']} time, plan: {plan}", highlight=False, soft_wrap=True)


def _table(size: str, ways: dict[str, dict[str, float]]) -> Table:
    table = Table("way", "texts/s", "p50 ms", "p99 ms", "x transformers", "efficiency", title=f"batches of {size}")
    for name, facts in ways.items():
        figures = (facts["texts_per_second"], facts["p50_ms"], facts["p99_ms"], facts["times_transformers"])
        efficiency = f"{facts['efficiency']:.2f}" if "efficiency" in facts else ""
        table.add_row(name, f"{figures[0]:,.0f}", *(f"{figure:.2f}" for figure in figures[1:]), efficiency)
    return table
