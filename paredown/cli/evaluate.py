"""`paredown evaluate`: what a bundle's exits are worth, as a table, JSON, CSV and pictures, or in others' files."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.table import Table

from paredown.cli._app import AsJson, Config, DryRun, app, people, print_forecast, print_json, results
from paredown.cli._data import Data, LabelColumn, PairColumn, SkipBadRows, Source, Task, TextColumn, metrics_of
from paredown.cli._loading import Reduce, changed, device_named, load_bundle
from paredown.cli._originals import Files, Settings, split_of
from paredown.errors import BadInput, BadSetting
from paredown.evaluation import (
    Cost,
    Evaluation,
    HotpotPredictions,
    QuestionAnswering,
    Reply,
    metric_named,
    score_hotpot,
    score_spans,
    score_trivia,
    sweep,
    write_predictions,
)
from paredown.evaluation import evaluate as judge
from paredown.evaluation.hotpot import PREDICTED
from paredown.evaluation.questions import encoded_rows
from paredown.evaluation.report import fitting_rules
from paredown.evaluation.spans import N_BEST, PREDICTIONS
from paredown.kinds import SupportedSpan
from paredown.model import AdaptiveModel
from paredown.plan import Plan
from paredown.registry import tasks
from paredown.rows import Encoded
from paredown.tasks import Question

BATCH = 64  # rows of a batch in the one pass
SHOWN = ("exact", "em", "f1", "sp_em", "sp_f1", "joint_em", "joint_f1")  # figures of a table, where there are such
PICTURES = ("score_by_layer", "score_against_cost", "exits")  # the last two need a rule

Option = typer.Option


@app.command()
def evaluate(
    bundle: Annotated[str, typer.Argument(help="A bundle.")],
    rows: Annotated[str | None, typer.Argument(help="File or Hub dataset with labelled rows.")] = None,
    output: Annotated[Path | None, Option("--output", "-o", help="Folder for all files.")] = None,
    task: Task = None,
    data: Data = None,
    split: Annotated[str | None, Option(help="Of the task; default dev, test for submissions.")] = None,
    text_column: TextColumn = None,
    pair_column: PairColumn = None,
    label_column: LabelColumn = None,
    skip_bad_rows: SkipBadRows = False,
    rule: Annotated[list[str] | None, Option("--rule", "-r", help="Exit rules; default: all that fit.")] = None,
    drop: Annotated[
        float | None, Option(help="Points of the score that may be lost at the chosen points; default 1.")
    ] = None,
    metric: Annotated[str | None, Option(help="Default: the task's.")] = None,
    paper: Annotated[str | None, Option(help="Count FLOPs as fastbert or elasticbert did.")] = None,
    timed_batch: Annotated[list[int] | None, Option(help="Batch sizes to measure time at.")] = None,
    max_length: Annotated[int | None, Option(help="Tokens per row; longer rows are cut.")] = None,
    exit: Annotated[str | None, Option(help="An exit rule, or none, in place of the plan's own.")] = None,
    reduce: Reduce = None,
    write: Annotated[
        list[str] | None,
        Option(help="Instead of the report: files as deebert or elasticbert write, a submission to glue or elue."),
    ] = None,
    threshold: Annotated[list[float] | None, Option(help="With --write: entropy in nats; default: theirs.")] = None,
    patience: Annotated[list[int] | None, Option(help="With --write: likewise; 0 is full depth.")] = None,
    tolerance: Annotated[float | None, Option(help="With --write: within which numbers agree.")] = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Score every layer and every exit rule at every speed from one pass over the rows, and measure the time."""
    settings = Settings(threshold or None, patience or None, tolerance, exit)
    reported = {"--rule": rule, "--drop": drop, "--paper": paper, "--timed-batch": timed_batch}
    given = [flag for flag, value in reported.items() if value not in (None, [])]
    settings.check(formats := tuple(dict.fromkeys(write or ())), output, given)
    split = split_of(formats, split)
    columns = {"text_column": text_column, "pair_column": pair_column, "label_column": label_column}
    source = Source(task, data, {split: rows} if rows else None, columns, skip_bad_rows)
    model, plan = _loaded(bundle, exit, reduce)
    files = Files(formats, output, task, rows or "", split, settings, model, plan) if formats and output else None
    found = source.read(split, () if model.kind.name == "regression" else tuple(model.labels), model.kind.name)
    encoded = encoded_rows(model, found.rows, max_length)
    metrics = [metric] if metric else metrics_of(found, task)
    if files is not None:
        files.check(_labelled(encoded), len(found.bad))
    elif not _labelled(encoded):
        raise BadInput(f"the {split} rows have no labels to score by; --write elasticbert, glue or elue needs none")
    if dry_run:
        return _foresee(model, plan, encoded, rule or "all", files, output, as_json)
    if files is not None:
        return _write(files, encoded, metrics, found.groups, as_json)
    evaluation = judge(
        model,
        encoded,
        rule or "all",
        metric_named(metrics[0], found.groups),
        plan=plan,
        allowed_drop=(1.0 if drop is None else drop) / 100,
        paper=paper,  # type: ignore[arg-type]
        batch_size=BATCH,
        timed_batches=tuple(timed_batch or (1, 32)),
    )
    asked = _Asked(model, plan, found.rows, max_length, task) if model.kind.windowed else None
    _show(evaluation, asked, output, as_json)


def _loaded(bundle: str, exit: str | None, reduce: str | None) -> tuple[AdaptiveModel, Plan]:
    model = load_bundle(bundle).to(device_named("auto"))
    plan = changed(model.plan, exit, reduce)
    if not model.heads and plan.reduce is None and not model.kind.windowed:  # questions have official figures to see
        raise BadSetting(f"{bundle} has no exits to evaluate; `paredown train` grows them")
    model.check(plan)
    return model, plan


@dataclass(frozen=True)
class _Asked:
    """Labelled questions, answered as a whole: the evaluation knows windows only."""

    model: AdaptiveModel
    plan: Plan
    questions: list[Question]
    max_length: int | None
    task: str | None  # of the catalogue: who says how to score

    @cached_property
    def answers(self) -> dict[str, list[Reply]]:
        """By plan, the bundle's own last. "No answer" is an answer where it is ever right."""
        silence = 0.0 if any(question.impossible for question in self.questions) else None
        ask = QuestionAnswering(self.model, self.max_length, null_threshold=silence)
        plans = {"full depth": Plan(self.plan.depth), str(self.plan): self.plan}
        if plans["full depth"] == self.plan:
            del plans[str(self.plan)]
        return {name: ask.answers(self.questions, plan, BATCH) for name, plan in plans.items()}

    @property
    def figures(self) -> list[dict[str, Any]]:
        """The scores of every plan by the task's rules, and the work for a question."""
        found = []
        for name, said in self.answers.items():
            layers = sum(one.layers for one in said) / sum(one.windows for one in said)
            work = {"layers": layers, "token_layers": sum(one.tokens for one in said) / len(said)}
            found.append({"plan": name, **self._score(said), **work})
        return found

    def _score(self, said: list[Reply]) -> dict[str, float | int]:
        headline = tasks.make(self.task).metric if self.task else None
        if headline == "hotpot_f1":
            return score_hotpot(self.questions, HotpotPredictions.of(said))
        return (score_trivia if headline == "trivia_f1" else score_spans)(self.questions, said)

    def table(self) -> Table:
        title = f"official score of {len(self.questions):,} questions"
        table = Table("plan", title=title, title_justify="left")
        figures = self.figures
        shown = [name for name in SHOWN if name in figures[0]]
        for name in (*shown, "layers", "token-layers"):
            table.add_column(name.replace("_", " ").replace("f1", "F1"), justify="right", no_wrap=True)
        for at in figures:
            scores = [f"{at[name]:.2f}" for name in shown]
            table.add_row(at["plan"], *scores, f"{at['layers']:.2f}", f"{at['token_layers']:,.0f}")
        return table

    def write(self, folder: Path) -> list[Path]:
        """The prediction files of the bundle's own plan."""
        said = list(self.answers.values())[-1]
        written = write_predictions(folder, said)
        if isinstance(self.model.kind, SupportedSpan):
            HotpotPredictions.of(said).write(folder / PREDICTED)
            written.append(folder / PREDICTED)
        return written


def _show(evaluation: Evaluation, asked: _Asked | None, output: Path | None, as_json: bool) -> None:
    written = evaluation.save(output) if output else []
    if asked is not None and output:
        written += asked.write(output)
    if as_json:
        return print_json(evaluation.to_json() | ({"questions": asked.figures} if asked else {}))
    results.print(evaluation.layer_table(), evaluation.table(), *[asked.table()] if asked else [])
    for path in written:
        results.print(f"written: {path}", highlight=False)


def _labelled(rows: list[Encoded]) -> bool:
    return all(row.label is not None for row in rows)


def _write(files: Files, rows: list[Encoded], metrics: list[str], groups: Any, as_json: bool) -> None:
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
    """Layers run at every place where a row can leave before the end."""
    return tuple(run for run, layer in enumerate(model.depth_of(plan)[:-1], 1) if str(layer) in model.heads)


def _foresee(
    model: AdaptiveModel,
    plan: Plan,
    rows: list[Encoded],
    wanted: str | list[str],
    files: Files | None,
    output: Path | None,
    as_json: bool,
) -> None:
    """What would run and be written."""
    lengths = torch.tensor([len(row) for row in rows])
    if files is None:
        swept = fitting_rules(wanted, model.kind, _asked(model, plan), model.doubt is not None)
        rules = [f"{rule.name}, {len(sweep(rule))} points" for rule in swept]
        drawn = PICTURES if swept else PICTURES[:1]
        names = ["evaluation.json", "curves.csv", *[f"{name}.{ending}" for name in drawn for ending in ("png", "svg")]]
        names += [PREDICTIONS, N_BEST] if model.kind.windowed else []
        names += [PREDICTED] if isinstance(model.kind, SupportedSpan) else []
    else:
        rules = ["full depth" if rule is None else str(rule) for rule in files.rules()]
        names = files.names()
    found = {
        "rows": len(rows),
        "labelled": _labelled(rows),
        "batches": -(-len(rows) // BATCH),
        "plan": str(plan),
        "tokens_per_row": round(lengths.double().mean().item(), 1),
        "flops_of_one_pass": _work(model, plan, lengths),
        "device": str(model.device),
        "rules": rules,
        "files": [str(output / name) for name in names] if output else [],
    }
    print_forecast(found, as_json)


def _work(model: AdaptiveModel, plan: Plan, lengths: torch.Tensor) -> int:
    """FLOPs of every layer on the way and every head after one; a reducer's savings show only when it runs."""
    cost, way = Cost.of(model), model.depth_of(plan)
    heads = [cost.heads[layer] for layer in way[:-1] if layer in cost.heads]
    last = cost.heads.get(way[-1], cost.classifier)
    parts = [cost.start, *[(cost.layers + cost.grown)[layer] for layer in way], *heads, last]
    return int(sum(int(part(lengths).sum()) for part in parts))
