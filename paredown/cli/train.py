"""`paredown train`: data in, a bundle with exits out."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from paredown.bundle import FACTS
from paredown.cli._app import AsJson, Config, DryRun, app, print_json, results
from paredown.cli._data import Data, LabelColumn, PairColumn, SkipBadRows, Source, Task, TextColumn
from paredown.errors import BadSetting
from paredown.evaluation.cost import Cost
from paredown.model import AdaptiveModel
from paredown.registry import methods
from paredown.training import train as run
from paredown.training.batches import Batches
from paredown.training.batches import Data as TrainingData
from paredown.training.guard import freeze

Option = typer.Option


@app.command()
def train(
    model: Annotated[str, typer.Argument(help="A Hugging Face folder or hub id, or a bundle to train further.")],
    output: Annotated[Path, Option("--output", "-o", help="Folder of the run; the bundle ends in OUTPUT/model.")],
    method: Annotated[list[str] | None, Option("--method", "-m", help="fastbert, joint:distill=1.0, …")] = None,
    head: Annotated[str | None, Option(help="Which head, for every method: attention, pooler, …")] = None,
    task: Task = None,
    data: Data = None,
    train: Annotated[str | None, Option(help="File or Hub dataset with labelled rows.")] = None,
    dev: Annotated[str | None, Option(help="The same, to choose the best weights by.")] = None,
    unlabelled: Annotated[str | None, Option(help="More text without labels, for stages that need none.")] = None,
    text_column: TextColumn = None,
    pair_column: PairColumn = None,
    label_column: LabelColumn = None,
    skip_bad_rows: SkipBadRows = False,
    epochs: Annotated[float | None, Option(help="For every method; default: as the method says.")] = None,
    lr: Annotated[float | None, Option(help="Learning rate, likewise.")] = None,
    batch_size: Annotated[int | None, Option(help="Rows per step, over all processes.")] = None,
    max_length: Annotated[int | None, Option(help="Tokens per row; longer rows are cut.")] = None,
    precision: Annotated[str, Option(help="no, bf16 or fp16.")] = "no",
    seed: int = 42,
    compile: Annotated[bool, Option("--compile", help="Compile the layers; pays on a GPU.")] = False,
    tracker: Annotated[list[str] | None, Option(help="tensorboard, wandb, … (accelerate's).")] = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Train a model so that its rows can leave early. The same command goes on with a run that was stopped."""
    columns = {"text_column": text_column, "pair_column": pair_column, "label_column": label_column}
    files = {name: path for name, path in (("train", train), ("dev", dev)) if path}
    source = Source(task, data, files, columns, skip_bad_rows)
    found = source.read("train")
    if found is None:
        raise BadSetting("there are no training rows: give --train, or --task and --data")
    held = source.read("dev", found.labels, found.kind)
    more = Source(None, None, {"train": unlabelled}, columns, skip_bad_rows).read("train") if unlabelled else None
    adaptive = _model(model, found)
    chosen = [_settled(text, head, epochs, lr) for text in method or ["fastbert"]]
    rows = (found.rows, held.rows if held else None, more.rows if more else None)
    if dry_run:
        return _foresee(adaptive, chosen, rows, batch_size, max_length, as_json)
    metric = held.metric if held else None
    report = run(
        adaptive,
        chosen,
        rows[0],
        rows[1],
        output=output,
        unlabelled=rows[2],
        metric=metric,
        seed=seed,
        batch_size=batch_size,
        max_length=max_length,
        precision=precision,
        trackers=tracker or (),
        compile=compile,
        progress=not as_json,
    )
    if as_json:
        return print_json({"bundle": str(output / "model"), **report.to_json()})
    if adaptive.scores:
        results.print(score_table(adaptive.scores))
    results.print(f"The bundle is in {output / 'model'}, its plan: {adaptive.plan}", highlight=False)


def _model(name: str, found: Any) -> AdaptiveModel:
    if not (Path(name) / FACTS).is_file():
        return AdaptiveModel.from_pretrained(name, task=found.kind, labels=list(found.labels))
    model = AdaptiveModel.from_pretrained(name)
    if model.kind.name != found.kind or (found.kind != "regression" and set(model.labels) != set(found.labels)):
        theirs = f"{found.kind} rows labelled {', '.join(found.labels)}"
        raise BadSetting(f"{name} answers {model.kind.name} with {', '.join(model.labels)}, not {theirs}")
    return model


def _settled(text: str, head: str | None, epochs: float | None, lr: float | None) -> Any:
    """A method with the settings that flags give to all."""
    given = {name: value for name, value in (("head", head), ("epochs", epochs), ("lr", lr)) if value is not None}
    return dataclasses.replace(methods.parse(text), **given)


def score_table(scores: dict[str, Any]) -> Table:
    table = Table("layers run", f"dev {scores['metric']}", title="what every layer knows", title_justify="left")
    for layers, score in scores["per_layer"].items():
        table.add_row(layers, f"{100 * score:.2f}")
    return table


def _foresee(
    model: AdaptiveModel, chosen: list[Any], rows: Any, batch_size: int | None, max_length: int | None, as_json: bool
) -> None:
    """The stages that would run: steps, what they train, and the work in FLOPs."""
    labelled, held, more = rows
    data = TrainingData.read(model, labelled, more, held, max_length)
    stages = []
    for method in chosen:
        method.check(model)
        method.grow(model)
        cost = Cost.of(model)
        for stage in method.stages(model):
            used = data.rows(stage)
            trained = freeze(model, stage)
            whole = any(name in trained for name in model.body)
            forward = sum(cost.full(len(row)) + sum(work(len(row)) for work in cost.heads.values()) for row in used)
            size = batch_size or stage.batch_size
            stages.append(
                {
                    "method": method.name,
                    "stage": stage.name,
                    "rows": len(used),
                    "steps": Batches([len(row) for row in used], size, (0,)).steps(stage.epochs),
                    "batch_size": size,
                    "trained_parameters": sum(parameter.numel() for parameter in trained.values()),
                    # A backward pass costs two forward passes; through a frozen encoder there is none.
                    "flops": int(forward * stage.epochs * (3 if whole else 1)),
                }
            )
    if as_json:
        return print_json({"stages": stages})
    table = Table("method", "stage", "rows", "steps", "rows per step", "trained parameters", "TFLOPs")
    for entry in stages:
        numbers = (entry["rows"], entry["steps"], entry["batch_size"], entry["trained_parameters"])
        table.add_row(
            entry["method"], entry["stage"], *[f"{number:,}" for number in numbers], f"{entry['flops'] / 1e12:,.1f}"
        )
    results.print(table, "Nothing was run.")
