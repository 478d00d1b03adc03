"""`paredown elue`: a model on ELUE's tasks, and its score against a baseline's curve of score against FLOPs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from paredown.answers import Row
from paredown.bundle import FACTS
from paredown.cli import _options as options
from paredown.cli._app import app, people, print_json, results
from paredown.cli._loading import check_source, device_named, is_bundle, load_bundle, method_settled, model_for
from paredown.encoders.pretrained import config_facts
from paredown.errors import BadInput, BadSetting
from paredown.evaluation import elue as benchmark
from paredown.evaluation.cost import Cost
from paredown.evaluation.elue import STATIC, Curve, Line, Standing
from paredown.evaluation.frontier import Point
from paredown.evaluation.metrics import metric_named
from paredown.evaluation.original_files import Point as Submitted
from paredown.evaluation.original_files import benchmark_name, write_elue_submission
from paredown.evaluation.record import record
from paredown.model import AdaptiveModel
from paredown.registry import exits, tasks
from paredown.tasks import Split
from paredown.training import train as run
from paredown.training.batches import Batches

Option = typer.Option
USUAL = "elasticbert:head=attention"
JUDGED = ("test_full", "test", "dev")  # the first that is there with labels


@app.command()
def elue(
    encoder: Annotated[
        str, typer.Argument(help="A Hugging Face or ElasticBERT folder or hub id; or OUTPUT of finished runs.")
    ],
    data: Annotated[Path, Option(help="The folder that holds ELUE's tasks, each in a folder of its own.")],
    output: Annotated[Path, Option("--output", "-o", help="Folder of the runs, scores, pictures and submissions.")],
    task: Annotated[list[str] | None, Option(help="SST-2, IMDb, …; default: all that are in DATA.")] = None,
    method: Annotated[list[str] | None, Option("--method", "-m", help=f"How exits are trained: {USUAL}, …")] = None,
    rule: Annotated[list[str] | None, Option("--rule", "-r", help="Exit rules, each at a handful of settings.")] = None,
    depth: Annotated[list[int] | None, Option(min=1, help="Also train the first so many layers alone.")] = None,
    baseline: Annotated[Path | None, Option(help="Curve to score against; default: the one that comes along.")] = None,
    save_baseline: Annotated[Path | None, Option(help="Write the curve of --depth, and score against it.")] = None,
    head: options.HeadName = None,
    epochs: options.Epochs = None,
    lr: options.LearningRate = None,
    batch_size: options.BatchSize = None,
    max_length: Annotated[int, Option(min=2, help="Tokens per row; longer rows are cut.")] = 256,
    precision: options.Precision = "auto",
    seed: int = 42,
    compile: options.CompileLayers = False,
    dry_run: options.DryRun = False,
    as_json: options.AsJson = False,
    config: options.Config = None,
) -> None:
    """Run a model over ELUE's tasks: exits trained once and used at several settings, or the first layers alone."""
    check_source(encoder)
    usual = [] if depth else [_usual_method(encoder)]
    chosen = [method_settled(text, head=head, epochs=epochs, lr=lr) for text in method or usual]
    rules = [exits.parse(text) for text in rule or ("entropy_nats", "patience")]
    settings = {"precision": precision, "seed": seed, "batch_size": batch_size, "compile": compile}
    settings |= {"progress": not as_json}
    alone = method_settled("finetune", epochs=epochs, lr=lr)
    runs = Runs(encoder, data, output, chosen, alone, depth or [], rules, max_length, settings)
    if len({rule.name for rule in rules}) < len(rules):
        raise BadSetting("every rule can be tried once; two have the same name")
    if save_baseline and (baseline or len(set(runs.depths)) < 2):
        raise BadSetting("--save-baseline needs --depth twice or more, and takes the place of --baseline")
    found = runs.tasks([benchmark_name(text, tuple(benchmark.TASKS)) for text in task or ()])
    if dry_run:
        return _foresee(runs, found, as_json)
    base = None if save_baseline else _baseline(baseline or benchmark.BASELINE, found)
    curves = runs.curves(found)
    standing = Standing.of(curves, base or curves[STATIC], runs.notes)
    if as_json:
        print_json(standing.to_json())
    else:
        results.print(standing.table())
        for note in standing.notes[len(runs.notes) :]:
            results.print(f"note: {note}", highlight=False)
    written = [curves[STATIC].save(save_baseline)] if save_baseline else []
    written = [*standing.save(output), *runs.submissions, *written]
    for path in [] if as_json else written:
        results.print(f"written: {path}", highlight=False)


def _usual_method(encoder: str) -> str:
    """ElasticBERT has pre-trained poolers to begin with; for other encoders heads with attention are better."""
    return "elasticbert" if config_facts(encoder, {}).get("model_type") == "elasticbert" else USUAL


def _baseline(path: Path, found: list[ElueTask]) -> Curve:
    """The curve to score against, once it is clear that it has all tasks: before hours of training, not after them."""
    curve = Curve.load(path)
    for one in found:
        curve.line(one.name)
    return curve


@dataclass(frozen=True)
class ElueTask:
    """One task of ELUE with its rows."""

    name: str
    data: Path

    @property
    def task(self) -> Any:
        return tasks.make(benchmark.TASKS[self.name])

    def has(self, split: str) -> bool:
        try:
            return bool(self.task.path(self.data, split))
        except BadInput:
            return False

    def read(self, split: str) -> Split:
        return self.task.read(self.data, split)

    @cached_property
    def judged(self) -> tuple[str, list[Row]]:
        """The rows that scores are of: those of test if they have labels, else those of dev."""
        for split in JUDGED:
            rows = self.read(split).rows if self.has(split) else []
            if rows and all(row.label is not None for row in rows):
                return split, rows
        self.task.path(self.data, "dev")  # names what is missing and where it belongs
        raise BadInput(f"{self.name} has no rows with labels to be judged on")

    @cached_property
    def test(self) -> list[Row] | None:
        """The rows of a submission."""
        split, rows = self.judged
        return rows if split != "dev" else self.read("test").rows if self.has("test") else None

    @property
    def spelled(self) -> tuple[str, ...]:
        """Labels as ELUE's files write them."""
        return self.task.spelled or self.task.labels


@dataclass(frozen=True)
class Runs:
    """All that is asked for: the uses of an encoder, how they are trained, where they go."""

    encoder: str
    data: Path
    output: Path
    methods: list[Any]  # none: no use with exits
    alone: Any  # the method of a use without
    depths: list[int]
    rules: list[Any]
    max_length: int
    settings: dict[str, Any]  # of train()
    notes: list[str] = field(default_factory=list)  # what was left out
    submissions: list[Path] = field(default_factory=list)

    @cached_property
    def finished(self) -> bool:
        """Whether the encoder is a folder of runs."""
        return any(path for name in benchmark.TASKS for path in Path(self.encoder).glob(f"{name}/**/model/{FACTS}"))

    def tasks(self, wanted: list[str]) -> list[ElueTask]:
        """The tasks that can be run; what is missing is an error only where it was asked for by name."""
        found = []
        for name in wanted or benchmark.TASKS:
            one = ElueTask(name, self.data)
            try:
                if self.finished:
                    self._check_finished(name)
                else:
                    one.task.path(self.data, "train")
                one.judged  # noqa: B018
            except BadInput as error:
                if wanted:
                    raise
                self.note(f"{name} is left out: {error}")
                continue
            found.append(one)
        if not found:
            raise BadInput(f"{self.data} holds none of ELUE's tasks: {', '.join(benchmark.TASKS)}")
        return found

    def _check_finished(self, name: str) -> None:
        held = {depth for _, depth in self.of(name)}
        lacking = [f" of the first {depth} layers" for depth in self.depths if depth not in held]
        if lacking or not held:
            raise BadInput(f"{Path(self.encoder) / name} holds no finished run{''.join(lacking[:1])}")

    def of(self, name: str) -> Iterator[tuple[Path, int | None]]:
        """The runs of a task: each has a folder, and a depth where the first layers alone are used; deepest first."""
        root = (Path(self.encoder) if self.finished else self.output) / name
        done = [path.parent.parent.name for path in root.glob(f"depth_*/model/{FACTS}")]
        found = {int(name.removeprefix("depth_")) for name in done}
        depths = found & set(self.depths or found) if self.finished else set(self.depths)
        yield from ((root / f"depth_{depth}", depth) for depth in sorted(depths, reverse=True))
        if is_bundle(str(root / "model")) if self.finished else self.methods:
            yield root, None

    def note(self, note: str) -> None:
        self.notes.append(note)
        people.print(note, highlight=False, markup=False, soft_wrap=True)

    def curves(self, found: list[ElueTask]) -> dict[str, Curve]:
        """Train what is not trained yet, and measure: by use, the curve over all tasks."""
        lines: dict[str, dict[str, Line]] = {}
        for one in found:
            split, rows = one.judged
            self.note(f"{one.name}: judged on {len(rows):,} rows of {split}")
            points: dict[str, list[Point]] = {}
            for folder, depth in self.of(one.name):
                for use, its in self._points(one, self._model(one, folder, depth), depth).items():
                    points.setdefault(use, []).extend(its)
            for use, its in points.items():
                ordered = sorted(its, key=lambda at: at["flops"])
                lines.setdefault(use, {})[one.name] = Line(ordered, one.task.metric, split, len(rows), self.max_length)
        name = Path(self.encoder).name
        return {use: Curve(name, its) for use, its in lines.items()}

    def fresh(self, rows: Split, depth: int | None) -> tuple[AdaptiveModel, list[Any]]:
        """A model to train, and the methods it is trained by."""
        model = model_for(self.encoder, rows, self.settings["seed"], depth)
        return model, [_suited(method, model) for method in ([self.alone] if depth else self.methods)]

    def _model(self, one: ElueTask, folder: Path, depth: int | None) -> AdaptiveModel:
        if self.finished:
            return load_bundle(str(folder / "model")).to(device_named("auto"))
        rows, dev = one.read("train"), one.read("dev").rows if one.has("dev") else None
        model, methods = self.fresh(rows, depth)
        facts = {"max_length": self.max_length, "metric": one.task.metric}
        run(model, methods, rows.rows, dev, output=folder, **facts, **self.settings)
        return model

    def _points(self, one: ElueTask, model: AdaptiveModel, depth: int | None) -> dict[str, list[Point]]:
        """Score and FLOPs of a trained model at every setting, by use; and the submissions."""
        split, rows = one.judged
        seen = record(model, model.encode(rows, self.max_length))
        metric, cost = metric_named(one.task.metric), Cost.of(model)
        if depth is not None:
            found = {STATIC: [benchmark.static_point(seen, metric, cost)]}
        else:
            found, left_out = benchmark.dynamic_points(seen, self.rules, metric, cost)
            for note in left_out:
                self.note(f"{one.name}: {note}")
        if one.test is None:
            self.note(f"{one.name}: there are no test rows, so nothing to submit")
            return found
        asked = seen
        if split == "dev":
            asked = record(model, model.encode(one.test, self.max_length))
        for use, points in found.items():
            submitted = [_submitted(at, depth) for at in points]
            path = self.output / f"submission_{use}{'' if depth is None else f'_{depth}'}.zip"
            write_elue_submission(path, asked, one.name, one.spelled, submitted)
            self.submissions.extend([path] if path not in self.submissions else [])
        return found


def _suited(method: Any, model: AdaptiveModel) -> Any:
    """A method whose own rule cannot read this kind of answer starts with none; --rule names what is tried."""
    try:
        method.check(model)
    except BadSetting:
        return dataclasses.replace(method, rule=None)
    return method


def _submitted(at: Point, depth: int | None) -> Submitted:
    if depth is not None:
        return Submitted(STATIC, str(depth), None)
    rule = exits.parse(at["rule"])
    return Submitted(rule.name, str(getattr(rule, rule.knob)), rule)


def _foresee(runs: Runs, found: list[ElueTask], as_json: bool) -> None:
    """What would be trained and judged."""
    plans: list[dict[str, Any]] = []
    for one in found:
        split, rows = one.judged
        for folder, depth in runs.of(one.name):
            use = "all, with exits" if depth is None else f"first {depth}"
            work = {"trained_on": 0, "steps": 0} if runs.finished else _training(runs, one, depth)
            judged = {"judged_on": len(rows), "split": split}
            plans.append({"task": one.name, "use": use, **work, **judged, "folder": str(folder)})
    if as_json:
        return print_json({"runs": plans, "notes": runs.notes})
    table = Table("task", "layers", "rows to train on", "steps", "rows to be judged on", "run")
    for plan in plans:
        numbers = f"{plan['trained_on']:,}", f"{plan['steps']:,}", f"{plan['judged_on']:,} of {plan['split']}"
        table.add_row(plan["task"], plan["use"], *numbers, plan["folder"])
    results.print(table, "Nothing was run.")


def _training(runs: Runs, one: ElueTask, depth: int | None) -> dict[str, int]:
    rows = one.read("train")
    model, methods = runs.fresh(rows, depth)
    steps = 0
    for method in methods:
        method.grow(model)
        for stage in method.stages(model):
            size = runs.settings["batch_size"] or stage.batch_size
            steps += Batches([0] * len(rows.rows), size, (0,)).steps(stage.epochs, stage.least_steps)
    return {"trained_on": len(rows.rows), "steps": steps}
