"""Save and load: a plain Hugging Face folder plus paredown.json and paredown.safetensors.

Nothing here runs code from a file: weights are safetensors, the rest is JSON, and every file is checked by its sha256.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from paredown.bundle.card import write_card
from paredown.bundle.format import (
    FACTS,
    WEIGHTS,
    Description,
    read_description,
    write_description,
    write_plan,
)
from paredown.certificate import Certificate
from paredown.encoders.dtype import check_before_saving, convert_weights, dtype_named, non_finite
from paredown.encoders.pretrained import (
    config_facts,
    hub_settings,
    in_their_order,
    is_numbered,
    kept_labels,
    kind_in,
    kind_of,
    labels_in,
    labels_of,
    name_labels,
    stock_of,
)
from paredown.errors import BadBundle, BadSetting, ParedownError
from paredown.model import AdaptiveModel, Reading
from paredown.plan import Plan
from paredown.ranges import Ranges
from paredown.registry import answers, heads
from paredown.system.saving import staged

if TYPE_CHECKING:
    from paredown.answers import Kind

# Loaders of what transformers cannot read, by the model_type of a config.json, or FILE; `published` adds its own.
FOREIGN: dict[str, Callable[[str | Path, LoadSettings], AdaptiveModel]] = {}
FILE = "file"
__all__ = ["FACTS", "FILE", "FOREIGN", "WEIGHTS", "LoadSettings", "from_checkpoint", "load", "save", "save_plan"]
log = logging.getLogger(__name__)


def load(
    source: str | Path,
    *,
    task: str | None = None,
    num_labels: int | None = None,
    labels: list[str] | None = None,
    plan: Plan | dict[str, Any] | str | None = None,
    depth: int | None = None,
    tokenizer: Any = None,
    dtype: str | torch.dtype | None = None,
    runtime: str = "auto",
    **stock_settings: Any,
) -> AdaptiveModel:
    """A model from a bundle, a Hugging Face folder or hub id, or a published file (ElasticBERT, UER).

    `task` is a kind of answer (single_label, multi_label, regression, token_label, span, supported_span, choice,
    marked) or a task of the catalogue; a bundle knows its own, and so does a checkpoint for multiple choice. Where
    the labels asked for are not those of the checkpoint, its classifier and heads are left out and a new classifier
    is made, which is logged. `depth` keeps the first so many layers. `tokenizer` is one, or a folder or vocabulary
    file, in place of the source's own. Weights are float32 in memory whatever the file holds, unless `dtype` says
    otherwise: float16 or bfloat16 to infer in, auto as stored. `runtime` is what runs the layers in inference, see
    `AdaptiveModel.use`. Other settings (revision, attn_implementation, …) go to
    transformers.
    """
    folder = Path(source)
    numbers = dtype if dtype == "auto" else dtype_named(dtype)
    wanted = LoadSettings(task, num_labels, labels, depth, tokenizer, {**stock_settings, "dtype": numbers})
    model = _bundled(folder, wanted) if (folder / FACTS).is_file() else from_checkpoint(source, wanted)
    if plan is not None:
        model.plan = Plan.of(plan)
    if depth is not None:
        if plan is not None and model.plan.depth is not None:
            raise BadSetting("the plan names its layers itself; leave depth out")
        if not 1 <= depth <= len(model.depth):
            raise BadSetting(
                f"{source} runs {len(model.depth)} layers; depth must be 1 to {len(model.depth)}, not {depth}"
            )
        model.plan = model.plan.but(depth=model.depth[:depth])
    model.route(model.plan)
    model.align()
    return model.eval().use(runtime)


@dataclass(frozen=True)
class LoadSettings:
    """What a model is loaded for."""

    task: str | None = None
    num_labels: int | None = None
    labels: list[str] | None = None
    depth: int | None = None  # of the first layers; None: all
    tokenizer: Any = None  # in place of the source's own
    settings: dict[str, Any] = field(default_factory=dict)  # for transformers

    def answers(self, usual: str | None = None) -> tuple[Kind, list[str] | None]:
        """The kind of answer, by default the usual one, and the labels where they are known."""
        kind, known = kind_of(usual if self.task is None else self.task)
        return kind, labels_of(kind, self.num_labels, self.labels or known)


def from_checkpoint(source: str | Path, wanted: LoadSettings) -> AdaptiveModel:
    """A model from anything that is not a bundle."""
    described = config_facts(source, hub_settings(wanted.settings))
    import_module("paredown.published")  # adds its loaders
    family = FILE if Path(source).is_file() else str(described.get("model_type"))
    if family in FOREIGN:
        return convert_weights(FOREIGN[family](source, wanted), wanted.settings.get("dtype"))
    made_for = kind_in(described)
    chooses = answers.make(made_for).grouped
    kind, names = wanted.answers(made_for if chooses else None)
    stock = stock_of(source, kind, names, wanted.settings, chooses and kind.grouped, wanted.tokenizer)
    return AdaptiveModel(*stock, kind)


def _bundled(folder: Path, wanted: LoadSettings) -> AdaptiveModel:
    """A bundle's model; of one that answers something else than what is wanted, the encoder."""
    description = read_description(folder)
    description.verify()
    own = answers.make(description["answer"]["kind"])
    stock, tokenizer = stock_of(folder, own, None, wanted.settings, True, wanted.tokenizer)
    kind, names = wanted.answers(own.name)
    kept = _kept(labels_in(stock.config), names) if kind == own else None
    if kept is None:
        stock, _ = stock_of(folder, kind, names, wanted.settings, tokenizer=tokenizer)
        log.warning("%s was trained to answer something else: its encoder is kept, its exits are not", folder)
    model = AdaptiveModel(stock, tokenizer, kind)
    _restore(model, description, whole=kept is not None)
    if kept:
        name_labels(model.config, kept)
    return model


def _kept(theirs: list[str], names: list[str] | None) -> list[str] | None:
    """A bundle's labels as they shall be called; None where others are wanted."""
    if names is None or set(names) <= set(theirs):  # rows need not have all labels
        return theirs
    kept = kept_labels(theirs, names)
    if kept is None or is_numbered(names):
        return None if kept is None else theirs
    return in_their_order(names, kept)


def save(model: AdaptiveModel, folder: str | Path, dtype: str | torch.dtype | None = None) -> None:
    """Write a bundle; an old one in its place is replaced only when the new one is complete."""
    stored = dtype_named(dtype)
    stock, own = _converted(model.stock, stored), _own_weights(model, stored)
    check_before_saving(folder, {**dict(stock.named_parameters()), **own})
    with staged(folder) as fresh:
        stock.save_pretrained(fresh)
        if model.tokenizer is not None:
            model.tokenizer.save_pretrained(fresh)
        save_file(own, fresh / WEIGHTS, metadata={"format": "pt"})
        write_description(fresh, _sections(model))
        write_card(fresh, replaced=Path(folder))


def save_plan(folder: str | Path, plan: Plan, certificate: Certificate | None = None) -> None:
    """Write another plan, which the bundle must be able to run, into its description and its card."""
    write_plan(folder, plan, certificate)
    write_card(Path(folder))


def _sections(model: AdaptiveModel) -> dict[str, Any]:
    spec = None if model.head is None else heads.to_json(model.head)
    return {
        **model.other_sections,
        "answer": {"kind": model.kind.name},
        "grown_layers": {"like": list(model.grown_like)},
        "heads": {"spec": spec, "after": list(model.head_layers)},
        "error_probability": model.error_probability is not None,
        "selectors": {"before": list(model.selector_layers), "size": model.selector_size},
        "plan": model.plan.to_json(),
        "reading": model.reading.to_json(),
        "scores": model.scores,
        "ranges": None if model.ranges is None else model.ranges.to_json(),
        "certificate": None if model.certificate is None else model.certificate.to_json(),
    }


def _converted(stock: Any, dtype: torch.dtype) -> Any:
    """The model itself where its weights are of that type, else a copy of which config.json tells the truth."""
    found = {parameter.dtype for parameter in stock.parameters()}
    return stock if found == {dtype} else copy.deepcopy(stock).to(dtype)


def _own_weights(model: AdaptiveModel, dtype: torch.dtype | None = None) -> dict[str, torch.Tensor]:
    """What the Hugging Face folder does not hold; a tensor that heads share is written once."""
    elsewhere = ("stock.", "companions.")  # in the Hugging Face folder; nowhere, for they only serve training
    state = {name: value for name, value in model.named_parameters() if not name.startswith(elsewhere)}
    return {name: value.detach().to("cpu", dtype).contiguous() for name, value in state.items()}


def _restore(model: AdaptiveModel, description: Description, whole: bool) -> None:
    """Put back what a bundle holds beside its Hugging Face model; `whole` or only what belongs to no labels."""
    facts = description.folder / FACTS
    try:
        _grow(model, description, whole)
        _copy_weights(model, description, whole)
        plan = Plan.from_json(description["plan"])
        model.plan = plan if whole else plan.but(exit=None)
        if whole:
            model.scores, model.reading = description["scores"], Reading.from_json(description["reading"])
            model.other_sections = description.unknown
            if (ranges := description["ranges"]) is not None:
                model.ranges = Ranges.from_json(ranges)
            if (certified := description["certificate"]) is not None:
                model.certificate = Certificate.from_json(certified)
        model.route(model.plan)
    except (KeyError, TypeError, RuntimeError, SafetensorError) as error:  # RuntimeError: heads too large to build
        raise BadBundle(f"{facts} is not a complete description: {error!r}") from error
    except BadBundle:
        raise
    except ParedownError as error:
        raise BadBundle(f"{facts}: {error}") from error


def _grow(model: AdaptiveModel, description: Description, whole: bool) -> None:
    """Add the parts that a bundle describes, for their weights to be copied into."""
    facts = description.folder / FACTS
    like, after = description["grown_layers"]["like"], description["heads"]["after"]
    spec, foresees = description["heads"]["spec"], description["error_probability"]
    before, size = description["selectors"]["before"], description["selectors"]["size"]
    numbers = (like, after, before, [size])
    if not all(isinstance(its, list) and all(type(number) is int for number in its) for its in numbers):
        raise BadBundle(f"{facts}: layers and sizes must be whole numbers")
    if type(foresees) is not bool:
        raise BadBundle(f"{facts}: error_probability must be true or false, not {foresees!r:.80}")
    if len(like) > model.walk.num_base_layers:
        raise BadBundle(f"{facts}: more layers were grown than the encoder has")
    if like:
        model.grow_layers(like)
    if whole and spec is not None:
        model.grow_heads(heads.from_json(spec), after)
    if whole and foresees:
        model.grow_error_probability()
    if before:
        model.grow_selectors(before, size)


def _copy_weights(model: AdaptiveModel, description: Description, whole: bool) -> None:
    weights = description.folder / WEIGHTS
    ours, saved = _own_weights(model), description.tensors()
    if not whole:
        answering = ("heads.", "error_probability.")
        saved = {name: value for name, value in saved.items() if not name.startswith(answering)}
    if saved.keys() != ours.keys() or any(saved[name].shape != ours[name].shape for name in ours):
        raise BadBundle(f"{weights} does not hold the weights its {FACTS} describes")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name in saved:
                parameter.copy_(saved[name])
    if bad := non_finite(_own_weights(model)):
        raise BadBundle(f"{weights}: {bad}")
