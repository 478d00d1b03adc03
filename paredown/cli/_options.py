"""Options that several commands have, alone or as a group, and settings from a file."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer
import yaml
from typer import Argument, Option

from paredown.errors import BadSetting


def grouped(function: Callable[..., None]) -> Callable[..., None]:
    """A command whose parameters may be dataclasses: typer sees their fields as options, in the order they have."""
    hints = get_type_hints(function, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if dataclasses.is_dataclass(hint)}

    def options() -> Iterator[inspect.Parameter]:
        for one in inspect.signature(function).parameters.values():
            if one.name in groups:
                yield from inspect.signature(groups[one.name], eval_str=True).parameters.values()
            else:
                yield one.replace(annotation=hints[one.name])

    @functools.wraps(function)
    def command(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{field.name: given.pop(field.name) for field in dataclasses.fields(group)})
        function(**given)

    every = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in options()]
    command.__signature__ = inspect.Signature(every)  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in every}
    return command


# Settings from a file


def _from_file(context: typer.Context, path: Path | None) -> Path | None:
    """Take settings from a YAML file; flags on the command line win."""
    if path is None:
        return None
    try:
        settings = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise BadSetting(f"{path} cannot be read as YAML: {error}") from None
    if not isinstance(settings, dict):
        raise BadSetting(f"{path} must hold settings as `name: value` lines")
    settings = {str(name).replace("-", "_"): value for name, value in settings.items()}
    known = {str(parameter.name) for parameter in context.command.params} - {"config"}
    if unknown := sorted(settings.keys() - known):
        raise BadSetting(f"{path}: {unknown[0]!r} is not a setting of this command; it has: {', '.join(sorted(known))}")
    lists = {str(parameter.name) for parameter in context.command.params if getattr(parameter, "multiple", False)}
    settings = {name: _given(value, name in lists) for name, value in settings.items()}
    context.default_map = {**(context.default_map or {}), **settings}
    return path


def _given(value: Any, may_repeat: bool) -> Any:
    """A setting as its option takes it: a plan may be written out as YAML, but options take texts; one value will do
    where several may be given."""
    if may_repeat and value is not None:
        return [_given(one, False) for one in (value if isinstance(value, list) else [value])]
    return json.dumps(value) if isinstance(value, dict) else value


Config = Annotated[
    Path | None,
    Option("--config", callback=_from_file, is_eager=True, help="YAML file with settings; flags override it."),
]
AsJson = Annotated[bool, Option("--json", help="Print the result as JSON.")]
Precision = Annotated[
    str, Option(help="16 bits while computing (weights have 32): no, bf16, fp16; auto: bf16 where that is fast.")
]
CompileLayers = Annotated[bool, Option("--compile", help="Compile the layers; on a GPU it hardly pays.")]
DryRun = Annotated[bool, Option("--dry-run", help="Say what would run and what it costs; run nothing.")]

# Where rows come from, and how they are read

TaskName = Annotated[str | None, Option(help="A task of the catalogue, read from its own files in --data.")]
Data = Annotated[Path | None, Option(help="The folder that holds the task's files.")]
TextColumn = Annotated[str | None, Option(help="Column of the text; guessed when obvious.")]
PairColumn = Annotated[str | None, Option(help="Column of the second text of a pair.")]
LabelColumn = Annotated[str | None, Option(help="Column of the label.")]
LabelSeparator = Annotated[
    str | None, Option(help='Between the labels of a row that has several: "|", ",", …; else they are JSON.')
]
Header = Annotated[
    bool | None,
    Option("--header/--no-header", help="Whether the first line of csv and tsv names the columns; default: yes."),
]
AnswerKind = Annotated[
    str | None,
    Option("--kind", help="single_label, multi_label, regression or token_label; guessed when not given."),
]
SkipBadRows = Annotated[bool, Option(help="Leave out rows that cannot be read, and say how many.")]
MaxLength = Annotated[int | None, Option(help="Tokens per row; longer rows are cut.")]

# The model, its plan, and where it runs

Bundle = Annotated[str, Argument(help="A bundle.")]
NewFolder = Annotated[Path, Argument(help="The folder to write; it must not exist.")]
Tokenizer = Annotated[
    str | None, Option(help="A folder, hub id or vocabulary file, where the model comes without or with another.")
]
Reduce = Annotated[
    str | None,
    Option(help="Which tokens stay: selector:0.5, fixed_share:0.5, attention:0.5, …, none; default: the plan's."),
]
Dtype = Annotated[
    str | None,
    Option(help="Weights in memory: float32, float16, bfloat16, or auto: as they are stored; default: float32."),
]
Device = Annotated[str, Option(help="auto, cpu or cuda.")]
Runtime = Annotated[
    str,
    Option(
        help="Layers run as they are (reference), without padding (packed), in int8 (CPU) or fp8 (GPU); exact: packed "
        "where it can; auto: as the plan was certified, else exact."
    ),
]

# What is judged

LabelledRows = Annotated[str | None, Argument(help="File or Hub dataset with labelled rows.")]
MetricName = Annotated[str | None, Option(help="Default: the task's.")]
Rules = Annotated[list[str] | None, Option("--rule", "-r", help="Exit rules; default: all that fit.")]
LeavingRule = Annotated[str | None, Option(help="When a row may leave: entropy:0.3, patience:4, …, none.")]
ExitRule = Annotated[str | None, Option(help="An exit rule, or none, in place of the plan's own.")]
RecordFolder = Annotated[
    Path | None, Option(help="Folder that keeps all outputs; of the same model, rows and plan they are used again.")
]

# Training

RunFolder = Annotated[Path, Option("--output", "-o", help="Folder of the run; the bundle ends in OUTPUT/model.")]
HeadName = Annotated[str | None, Option(help="Which head, for every method: attention, pooler, …")]
Epochs = Annotated[float | None, Option(help="For every method; default: as the method says.")]
LearningRate = Annotated[float | None, Option(help="Learning rate, likewise.")]
BatchSize = Annotated[int | None, Option(help="Rows per step, over all processes.")]
Trackers = Annotated[list[str] | None, Option(help="tensorboard, wandb, … (accelerate's).")]
