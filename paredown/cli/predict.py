"""`paredown predict`: rows in, predictions out, in a stream of any length that can be stopped and goes on."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, Progress, TextColumn

from paredown.answers import flat
from paredown.answers._length import check_length
from paredown.bundle import FACTS
from paredown.cli import _options as options
from paredown.cli._app import app, people, print_forecast, print_json, results
from paredown.cli._incoming import PIPE, Input, InputSource, source_for
from paredown.cli._loading import changed, check_same_kind, device_named, load_bundle
from paredown.cli._outgoing import (
    Done,
    Outgoing,
    ToFile,
    ToPipe,
    check_output,
)
from paredown.cli._predicting import Chunks, working_here
from paredown.errors import BadInput, BadSetting
from paredown.evaluation.cost import Cost
from paredown.model import AdaptiveModel, Reading
from paredown.plan import Plan
from paredown.registry import answers
from paredown.runtime.predictor import Predictor
from paredown.system.saving import sha256
from paredown.system.signals import Signals

SHORTEST = 8  # tokens: room for the special ones and some text

Option = typer.Option


@app.command()
def predict(
    bundle: options.Bundle,
    input: Annotated[str, typer.Argument(help="csv, tsv, jsonl (each also .gz), parquet; -: standard input.")],
    output: Annotated[str, typer.Argument(help=".jsonl, .csv or .parquet; with --task .json too; -: standard output.")],
    text_column: options.TextColumn = None,
    pair_column: options.PairColumn = None,
    id_column: Annotated[
        list[str] | None, Option(help="A column that comes along to the output, under its name; may be repeated.")
    ] = None,
    keep_columns: Annotated[bool, Option("--keep-columns", help="All columns of the input come along.")] = False,
    header: options.Header = None,
    input_format: Annotated[
        str, Option(help="Of standard input: text (one a line), csv, tsv, jsonl, conll; auto: its first line tells.")
    ] = "auto",
    kind: options.AnswerKind = None,
    exit: options.LeavingRule = None,
    speed: Annotated[
        float | None, Option(help="0: every layer, 1: the first exit, 0.5: half of what that saves (as on dev rows).")
    ] = None,
    reduce: options.Reduce = None,
    plan: Annotated[str | None, Option(help="A whole plan as JSON.")] = None,
    null_threshold: Annotated[
        float | None,
        Option(help="Questions: give no answer where that is likelier by more logits; default: always one."),
    ] = None,
    support_threshold: Annotated[
        float | None,
        Option(min=0, max=1, help="Questions: sentences this likely to support an answer are given; default 0.5."),
    ] = None,
    task: Annotated[
        str | None, Option(help="Questions: the input is in the format of this task; OUTPUT.json is its official file.")
    ] = None,
    batch_size: Annotated[
        int | None, Option(min=1, help="Rows that run at once, at most; default: what suits the device.")
    ] = None,
    processes: Annotated[
        int, Option(min=1, help="That parse, tokenise, run and decode side by side; they share cores and GPU.")
    ] = 1,
    max_length: Annotated[int | None, Option(min=SHORTEST, help="Tokens per row; longer rows are cut.")] = None,
    device: options.Device = "auto",
    dtype: options.Dtype = None,
    runtime: options.Runtime = "auto",
    ray: Annotated[
        str | None, Option(help="Let workers of a Ray cluster answer: local starts one here, auto, HOST:PORT join one.")
    ] = None,
    workers: Annotated[
        int | None, Option(min=1, help="With --ray: default one for each GPU, or for each machine.")
    ] = None,
    restart: Annotated[bool, Option("--restart", help="Begin anew, whatever the output holds.")] = False,
    skip_bad_rows: Annotated[bool, Option(help="Give rows that cannot be read an error in place of a label.")] = False,
    dry_run: options.DryRun = False,
    as_json: options.AsJson = False,
    config: options.Config = None,
) -> None:
    """Predict every row of a file of any size. The same command goes on with a run that was stopped."""
    _check_files(input, output, restart, task is not None, ray is not None)
    _check_cluster(ray, workers, processes)
    where = device_named(device) if ray is None else "cpu"
    load = partial(load_bundle, bundle, dtype, runtime)
    model = load()
    check_same_kind(model, kind)
    chosen = _plan(model, exit, speed, reduce, plan)
    if max_length is not None:
        check_length(model, max_length, "--max-length ")
    max_length = max_length or model.reading.max_length
    settings = _settings(model, null_threshold=null_threshold, support_threshold=support_threshold)
    given = Reading(max_length, text_column, pair_column, header=header)
    wanted = Input(input, given, model.reading, input_format, tuple(id_column or ()), keep_columns)
    source = source_for(model.kind, wanted, task)
    named = task is not None
    predictor = Predictor(model, chosen, batch_size, max_length, settings, named, source.kept)
    chunks = Chunks(predictor, where, source, skip_bad_rows, output.endswith(".csv"), processes, load)
    out: Outgoing = ToPipe()
    work: Any = working_here(chunks)
    if ray is not None:
        from paredown.cli._cluster import ClusterRun

        again = partial(source_for, model.kind, wanted.absolute, task)
        cluster = ClusterRun(ray, workers, device, (bundle, dtype, runtime), chunks, again)
        out = cluster.output(output, _task(bundle, predictor, source, task), restart)
        work = nullcontext(cluster.write_all)
    elif output != PIPE:
        out = ToFile(Path(output), predictor.shape, _task(bundle, predictor, source, task), restart)
    before = out.done
    if dry_run:
        return _foresee(chunks, before, as_json)
    if before.digest and source.skip(before.rows) != before.digest:
        raise BadInput(f"the first {before.rows:,} rows of {source.name} are not those that {output} holds; --restart?")
    start, layers = time.monotonic(), model.walk.num_base_layers
    with work as write_all, Signals() as signals, _bar(input, output, layers, before) as show:
        try:
            out.open()
            write_all(out, signals, show)
            out.finish()
        finally:
            out.close()
    _report(out.done, before, time.monotonic() - start, layers, output, as_json)


def _check_cluster(ray: str | None, workers: int | None, processes: int) -> None:
    """Whether there is one, before anything is loaded."""
    if ray is None:
        if workers is not None:
            raise BadSetting("--workers are those of a Ray cluster; give --ray too")
        return
    if processes > 1:
        raise BadSetting("--processes are those of this machine; with --ray give --workers")
    from paredown.cluster.session import reach

    reach(ray)


def _check_files(input: str, output: str, restart: bool, named: bool, on_cluster: bool) -> None:
    """The checks that need no model."""
    if on_cluster and PIPE in (input, output):
        raise BadSetting("--ray reads a file and writes a file; standard input and output are for runs without it")
    if input != PIPE and not (Path(input).is_file() or (named and Path(input).is_dir())):
        raise BadInput(f"{input} is {'a folder, not a file' if Path(input).is_dir() else 'missing'}")
    if output == PIPE:
        return
    check_output(Path(output), restart, named, on_cluster)
    if input != PIPE and Path(output).exists() and Path(output).samefile(input):
        raise BadSetting(f"{output} is the input too; write to another file")


def _plan(model: AdaptiveModel, exit: str | None, speed: float | None, reduce: str | None, plan: str | None) -> Plan:
    """The bundle's own plan, changed by the flags."""
    given = {"--exit": exit, "--speed": speed, "--plan": plan}
    named = [name for name, value in given.items() if value is not None]
    if len(named) > 1:
        raise BadSetting(f"{' and '.join(named)} both say when rows leave; give one")
    if plan is not None and reduce is not None:
        raise BadSetting("--plan and --reduce both say which tokens stay; give one")
    chosen = changed(model.plan, exit, reduce)
    if plan is not None:
        chosen = Plan.from_json(plan)
    elif speed is not None:
        chosen = chosen.but(exit=model.at_speed(speed).exit)
    model.route(chosen)
    return chosen


def _settings(model: AdaptiveModel, **given: Any) -> dict[str, Any]:
    """The given settings of the kind of answer; one that the kind does not have is an error."""
    settings = {name: value for name, value in given.items() if value is not None}
    for name in settings:
        if not hasattr(model.kind, name):
            kinds = [kind for kind in answers.names() if hasattr(answers.make(kind), name)]
            flag = f"--{name.replace('_', '-')}"
            raise BadSetting(f"{flag} is for bundles of {' or '.join(kinds)}; this one answers {model.kind.name}")
    return settings


def _task(bundle: str, predictor: Predictor, source: InputSource, task: str | None) -> dict[str, Any]:
    """All that makes a difference to the rows written. Another batch size or device only rounds differently."""
    return {
        "bundle": sha256(Path(bundle) / FACTS),
        "dtype": str(predictor.model.dtype).removeprefix("torch."),
        "plan": predictor.plan.to_json(),
        "text column": source.text,
        "pair column": source.pair,
        "columns kept": list(source.kept) or None,
        "max length": predictor.max_length,
        "null threshold": predictor.settings.get("null_threshold"),
        "support threshold": predictor.settings.get("support_threshold"),
        "task": task,
        "input": Path(source.name).name,
        "size of the input": source.size,
    }


@contextmanager
def _bar(input: str, output: str, layers: int, before: Done) -> Iterator[Callable[[Done], None]]:
    """A bar for people who watch; rows that share the terminal with it would only tear it."""
    if not people.is_terminal or (output == PIPE and results.is_terminal):
        yield lambda done: None
        return
    start = time.monotonic()
    with Progress(BarColumn(), TextColumn("{task.fields[facts]}"), console=people, transient=True) as bar:
        task = bar.add_task("", total=_about(input), completed=before.rows, facts="")

        def show(done: Done) -> None:
            bar.update(task, completed=done.rows, facts=_facts(done, before, time.monotonic() - start, layers))

        yield show


def _about(input: str) -> int | None:
    """About how many rows a file has; None where only reading it would tell."""
    if input == PIPE or input.lower().endswith((".gz", ".json")) or Path(input).is_dir():
        return None
    if input.lower().endswith(".parquet"):
        from pyarrow.parquet import read_metadata

        return int(read_metadata(input).num_rows)
    with open(input, "rb") as file:
        return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))


def _mean_layers(done: Done) -> float:
    return done.layers / max(done.rows - done.bad, 1)


def _facts(done: Done, before: Done, seconds: float, layers: int) -> str:
    speed = (done.rows - before.rows) / max(seconds, 1e-9)
    bad = f", {done.bad:,} bad" if done.bad else ""
    return f"{done.rows:,} rows, {speed:,.0f} rows/s, {_mean_layers(done):.1f} of {layers} layers{bad}"


def _report(done: Done, before: Done, seconds: float, layers: int, output: str, as_json: bool) -> None:
    if not as_json:
        went_on = f" (went on after {before.rows:,})" if before.rows else ""
        return people.print(_facts(done, before, seconds, layers) + went_on, highlight=False)
    fresh = done.rows - before.rows
    summary = {
        "output": output,
        "rows": done.rows,
        "rows_before": before.rows,
        "bad_rows": done.bad,
        "seconds": round(seconds, 3),
        "rows_per_second": round(fresh / max(seconds, 1e-9), 1),
        "mean_layers": round(_mean_layers(done), 4),
        "layers": layers,
    }
    if output == PIPE:  # standard output holds the predictions
        people.out(json.dumps(summary))
    else:
        print_json(summary)


def _foresee(chunks: Chunks, before: Done, as_json: bool) -> None:
    """What would run, judged by the first chunk."""
    source, predictor = chunks.source, chunks.predictor
    chunk = source.parsed(source.take(chunks.size))
    good: list[Any] = [one.row for one in chunk if one.row is not None]
    model, max_length = predictor.model, predictor.max_length
    lengths = [len(one) for one in flat(model.encode(good, max_length))]
    cost = Cost.of(model) if good else None
    found: dict[str, Any] = {
        "input": source.name,
        "bytes": source.size,
        "text_column": source.text,
        "pair_column": source.pair,
        "columns_kept": ", ".join(source.kept) or None,
        "kind": model.kind.name,
        "labels": None if model.kind.outputs else model.labels,
        "max_length": model.kind.row_length(model, max_length),
        "first_row": {name: value for name, value in asdict(good[0]).items() if value is not None} if good else None,
        "plan": predictor.plan.to_json(),
        "device": chunks.device,
        "rows_already_written": before.rows,
        "rows_looked_at": len(chunk),
        "bad_rows_among_them": len(chunk) - len(good),
        "tokens_per_row": round(sum(lengths) / len(good), 1) if good else None,
        "flops_per_row_at_full_depth": sum(map(cost.full, lengths)) // len(good) if cost else None,
    }
    if as_json:
        return print_json(found)
    shown = found | {"plan": str(predictor.plan)}
    print_forecast({name: value for name, value in shown.items() if value is not None}, as_json)
