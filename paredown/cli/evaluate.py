"""`paredown evaluate`: what a bundle's exits are worth, as a table, JSON, CSV and pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import torch
import typer

from paredown.cli._app import AsJson, Config, app, print_json, results
from paredown.cli._data import Data, LabelColumn, PairColumn, SkipBadRows, Source, Task, TextColumn
from paredown.errors import BadSetting
from paredown.evaluation import evaluate as judge
from paredown.model import AdaptiveModel

Option = typer.Option


@app.command()
def evaluate(
    bundle: Annotated[str, typer.Argument(help="A bundle.")],
    rows: Annotated[str | None, typer.Argument(help="File or Hub dataset with labelled rows.")] = None,
    output: Annotated[Path | None, Option("--output", "-o", help="Folder for JSON, CSV and pictures.")] = None,
    task: Task = None,
    data: Data = None,
    split: Annotated[str, Option(help="Which split of the task.")] = "dev",
    text_column: TextColumn = None,
    pair_column: PairColumn = None,
    label_column: LabelColumn = None,
    skip_bad_rows: SkipBadRows = False,
    rule: Annotated[list[str] | None, Option("--rule", "-r", help="Exit rules; default: all that fit.")] = None,
    drop: Annotated[float, Option(help="Points of the score that may be lost at the chosen points.")] = 1.0,
    metric: Annotated[str | None, Option(help="Default: the task's.")] = None,
    paper: Annotated[str | None, Option(help="Count FLOPs as fastbert or elasticbert did.")] = None,
    timed_batch: Annotated[list[int] | None, Option(help="Batch sizes to measure time at.")] = None,
    max_length: Annotated[int | None, Option(help="Tokens per row; longer rows are cut.")] = None,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Score every layer and every exit rule at every speed from one pass over the rows, and measure the time."""
    columns = {"text_column": text_column, "pair_column": pair_column, "label_column": label_column}
    source = Source(task, data, {split: rows} if rows else None, columns, skip_bad_rows)
    model = AdaptiveModel.from_pretrained(bundle)
    if torch.cuda.is_available():
        model.to("cuda")
    if not model.heads:
        raise BadSetting(f"{bundle} has no exits to evaluate; `paredown train` grows them")
    found = source.read(split, () if model.kind.name == "regression" else tuple(model.labels), model.kind.name)
    evaluation = judge(
        model,
        found.rows,
        rule or "all",
        metric or found.metric,
        allowed_drop=drop / 100,
        paper=paper,  # type: ignore[arg-type]
        timed_batches=tuple(timed_batch or (1, 32)),
        max_length=max_length,
    )
    written = evaluation.save(output) if output else []
    if as_json:
        return print_json(evaluation.to_json())
    results.print(evaluation.layer_table(), evaluation.table())
    for path in written:
        results.print(f"written: {path}", highlight=False)
