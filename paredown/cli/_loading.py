"""Models for commands: errors of one line, a plan as flags change it, and a device."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import torch

from paredown.bundle import FACTS
from paredown.encoders.dtype import convert_weights, dtype_named
from paredown.errors import BadBundle, BadSetting
from paredown.model import AdaptiveModel, Reading
from paredown.plan import Plan
from paredown.registry import answers, methods
from paredown.tasks import Split

WEIGHTS = (".bin", ".pt", ".pth", ".safetensors")


def changed(plan: Plan, exit: str | None, reduce: str | None) -> Plan:
    """A plan with the axes that flags give in place of its own; `none` empties one."""
    given = {axis: rule for axis, rule in (("exit", exit), ("reduce", reduce)) if rule is not None}
    return plan.but(**{axis: None if rule.lower() == "none" else rule for axis, rule in given.items()})


def is_bundle(source: str) -> bool:
    return (Path(source) / FACTS).is_file()


def check_source(source: str) -> None:
    """A path that is not there must not be asked of the hub, which knows only `name` and `owner/name`."""
    path = Path(source)
    if path.is_file():
        if path.suffix in WEIGHTS:
            return
        raise BadBundle(f"{source} is a file; a model is a folder, a hub id or a weights file ({', '.join(WEIGHTS)})")
    looks_local = path.is_absolute() or source.startswith((".", "~")) or len(path.parts) > 2 or source.endswith("/")
    if looks_local and not path.is_dir():
        raise BadBundle(f"{source}: there is no such folder")


def load_bundle(source: str, dtype: str | None = None, runtime: str = "auto") -> AdaptiveModel:
    check_source(source)
    if not is_bundle(source):
        published = convert_weights(_published(source), dtype_named(None if dtype == "auto" else dtype))
        return published.use(runtime)
    return load_any(source, dtype=dtype, runtime=runtime)


def _published(source: str) -> AdaptiveModel:
    """A model that one of the original systems trained, which serves as a bundle would."""
    from paredown.published.layouts import PLAIN, load_published, recognised  # imports transformers

    try:
        layout = recognised(Path(source))
    except BadBundle:
        layout = None
    if layout in (None, PLAIN):
        raise BadBundle(f"{source} is not a bundle: it has no {FACTS}; `paredown train` makes one")
    return load_published(source, layout)[1]


def load_any(source: str, **settings: Any) -> AdaptiveModel:
    """A model; what transformers has to say of a failure is cut to its first line."""
    check_source(source)
    try:
        return AdaptiveModel.from_pretrained(source, **settings)
    except BadBundle as error:
        raise BadBundle(first_line(error)) from None


def model_for(
    source: str,
    rows: Split,
    seed: int,
    depth: int | None = None,
    reduce: str | None = None,
    max_length: int | None = None,
    tokenizer: str | None = None,
) -> AdaptiveModel:
    """A model to train on rows; answers that it has learned are kept where they are the rows'."""
    torch.manual_seed(seed)  # a new classifier is random
    labels = list(rows.labels) or None
    model = load_any(source, depth=depth, task=rows.kind, labels=labels, tokenizer=tokenizer)
    model.reading = Reading(max_length).over(rows.reading).over(model.reading)
    if reduce is not None:
        model.plan = changed(model.plan, None, reduce)
        model.route(model.plan)
    return model


def depth_named(model: AdaptiveModel, depth: str) -> tuple[int, ...] | None:
    """The layers that --depth names; None: all of the encoder's own."""
    if depth.strip().lower() == "all":
        return None
    try:
        numbers = tuple(int(part) for part in depth.split(","))
    except ValueError:
        raise BadSetting(f"--depth is a number, several with commas between them, or all; not {depth!r}") from None
    if len(numbers) > 1:
        return numbers
    if not 1 <= numbers[0] <= model.walk.num_base_layers:
        raise BadSetting(f"--depth {depth}: the encoder has {model.walk.num_base_layers} layers")
    return tuple(range(numbers[0]))


def labels_to_read(model: AdaptiveModel) -> tuple[str, ...]:
    """The labels that rows may have, to be scored by a model; numbers have none."""
    return () if model.kind.numeric else tuple(model.labels)


def check_same_kind(model: AdaptiveModel, kind: str | None) -> None:
    if kind is not None and answers.make(kind) != model.kind:
        raise BadSetting(f"--kind {kind}: this bundle answers {model.kind.name}")


def method_settled(text: str, **given: Any) -> Any:
    """A method with the settings that flags give to all."""
    return dataclasses.replace(
        methods.parse(text), **{name: value for name, value in given.items() if value is not None}
    )


def first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def device_named(name: str) -> str:
    if name not in ("auto", "cpu", "cuda"):
        raise BadSetting(f"--device is auto, cpu or cuda, not {name!r}")
    there = torch.cuda.is_available()
    if name == "cuda" and not there:
        raise BadSetting("there is no CUDA device here; --device cpu or auto")
    return "cuda" if there and name != "cpu" else "cpu"
