"""BERT-of-Theseus: fewer layers replace a model's own, some at random at first, in the end all."""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor

from paredown.encoders.probing import evaluating
from paredown.errors import BadSetting
from paredown.methods._recipe import Recipe, at_full_depth
from paredown.methods._stage import Batch, Progress, Stage
from paredown.model import AdaptiveModel
from paredown.registry import methods

log = logging.getLogger(__name__)
Modules = tuple[tuple[int, ...], ...]


@methods.register("module_replacing")
@dataclass(frozen=True, kw_only=True)
class ModuleReplacing(Recipe):
    into: int | None = None  # how many layers remain; None: half
    modules: Modules | None = None  # runs of layers that one successor each stands for; None: as even as can be
    start: Literal["first", "spread", "last"] = "first"  # layers the successors begin as: the first, one a module, …
    replacing_epochs: float = 5.0
    replacing_lr: float = 4e-5  # twice the others: a successor learns only in the steps that draw it
    replacing_rate: float = 0.3  # how likely a module is replaced in a step; with a linear schedule, at the beginning
    schedule: Literal["linear", "constant"] = "linear"
    until: float = 0.5  # share of the replacing steps after which every module is replaced
    steps_for_replacing: int | None = None  # the same in steps
    scheduler_linear_k: float | None = None  # the same as the growth of the rate per step
    successor_epochs: float = 1.25  # the successors alone, after the replacing
    successor_lr: float = 2e-5
    successor_trains: Literal["successors", "everything"] = "successors"  # everything: embeddings and classifier too
    distill: float = 0.0  # weight of imitating the model that is being replaced, beside the labels
    temperature: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.replacing_rate <= 1 or not 0 < self.until <= 1:
            raise BadSetting(f"{self.name}: replacing_rate and until must lie above 0 and be at most 1")
        if self.replacing_epochs <= 0:
            raise BadSetting(f"{self.name}: without replacing_epochs nothing would be replaced")
        if self.steps_for_replacing is not None and self.steps_for_replacing < 1:
            raise BadSetting(f"{self.name}: steps_for_replacing must be at least 1, or None to use `until`")
        if self.scheduler_linear_k is not None and (self.scheduler_linear_k <= 0 or self.schedule != "linear"):
            raise BadSetting(
                f"{self.name}: scheduler_linear_k must be above 0 and needs schedule=linear; scheduler_linear_k=none "
                "leaves the schedule to steps_for_replacing or until"
            )
        if self.scheduler_linear_k is not None and self.steps_for_replacing is not None:
            raise BadSetting(
                f"{self.name}: scheduler_linear_k and steps_for_replacing say the same; give one, the other is none"
            )

    def check(self, model: AdaptiveModel) -> None:
        super().check(model)
        if model.heads:
            raise BadSetting(f"{self.name} comes before exits are grown; drop_heads() first, or name it first")
        if not model.grown and model.depth != _before(model):
            raise BadSetting(f"{self.name} replaces all of the encoder's layers; export a model of fewer layers first")
        self._modules(model)

    def grow(self, model: AdaptiveModel) -> None:
        fresh = not model.grown
        successors = model.grow_layers(self._sources(model))
        if fresh:
            pairs = zip(self._modules(model), successors, strict=True)
            log.info("%s: %s", self.name, ", ".join(f"layers {old} -> {new}" for old, new in pairs))
        model.plan = model.plan.but(depth=successors)

    def stages(self, model: AdaptiveModel) -> list[Stage]:
        before = _before(model)
        successors = tuple(name for name, _ in model.named_parameters() if name.startswith("grown."))
        full = at_full_depth(model)
        finetune = self.stage("finetune", self._finetune, full.__contains__, depth=before, repeats=1)
        replacing = self.stage(
            "replacing",
            self._replace,
            successors.__contains__,
            epochs=self.replacing_epochs,
            lr=self.replacing_lr,
            begin=self._copy if self.epochs else None,
        )
        successor = self.stage(
            "successor",
            self._succeed,
            successors.__contains__ if self.successor_trains == "successors" else full.__contains__,
            epochs=self.successor_epochs,
            lr=self.successor_lr,
            repeats=1,
        )
        return [stage for stage in (finetune, replacing, successor) if stage.epochs]

    # Which layers

    def _modules(self, model: AdaptiveModel) -> Modules:
        """The runs of layers that are replaced, one successor each."""
        layers = _before(model)
        if self.modules is not None:
            if self.into not in (None, len(self.modules)):
                raise BadSetting(f"{self.name}: {len(self.modules)} modules are named, but into is {self.into}")
            if tuple(layer for module in self.modules for layer in module) != layers or not all(self.modules):
                raise BadSetting(f"{self.name}: modules must be runs of layers {list(layers)}; got {self.modules}")
            return self.modules
        into = max(len(layers) // 2, 1) if self.into is None else self.into
        if not 1 <= into < len(layers):
            raise BadSetting(f"{self.name}: {len(layers)} layers can become 1 to {len(layers) - 1}, not {into}")
        ends = [len(layers) * index // into for index in range(into + 1)]
        return tuple(layers[begin:end] for begin, end in pairwise(ends))

    def _sources(self, model: AdaptiveModel) -> tuple[int, ...]:
        """The layer each successor begins as."""
        modules, layers = self._modules(model), _before(model)
        number = len(modules)
        return {"first": layers[:number], "spread": tuple(m[0] for m in modules), "last": layers[-number:]}[self.start]

    def _copy(self, model: AdaptiveModel) -> None:
        """Begin again as the layers are now, after fine-tuning."""
        for layer, source in zip(model.grown, model.grown_like, strict=True):
            layer.load_state_dict(model.walk.layers[source].state_dict())

    def depth(self, model: AdaptiveModel, replaced: Sequence[bool]) -> tuple[int, ...]:
        """The layers of one step: of each module its successor, or the layers it stands for."""
        choices = zip(model.depth, self._modules(model), replaced, strict=True)
        return tuple(layer for new, old, yes in choices for layer in ((new,) if yes else old))

    # Losses

    def rate(self, progress: Progress) -> float:
        """How likely a module is replaced in this step."""
        end = self.steps_for_replacing or max(self.until * progress.steps, 1)
        if self.schedule == "constant":
            return self.replacing_rate if progress.step < end else 1.0
        slope = self.scheduler_linear_k or (1 - self.replacing_rate) / end
        return min(self.replacing_rate + slope * progress.step, 1.0)

    def draw(self, progress: Progress, modules: int) -> list[bool]:
        """Which modules are replaced in this step: the same in every process and every piece of a batch."""
        dice, rate = random.Random(progress.draw), self.rate(progress)
        return [dice.random() < rate for _ in range(modules)]

    def _finetune(self, model: AdaptiveModel, batch: Batch, progress: Progress) -> Tensor:
        return self.task_loss(model, model.trace(batch, _before(model)).final, batch)

    def _replace(self, model: AdaptiveModel, batch: Batch, progress: Progress) -> Tensor:
        if progress.step == 0 and (end := self.rate(Progress(progress.steps, progress.steps))) < 1:
            log.warning(
                "%s: %d steps end with a replacing rate of %.2f, so the successors hardly learn to work without the "
                "layers they replace; train for more epochs, or set scheduler_linear_k=none,until=0.5",
                self.name,
                progress.steps,
                end,
            )
        return self._lesson(model, batch, self.depth(model, self.draw(progress, len(model.depth))))

    def _succeed(self, model: AdaptiveModel, batch: Batch, progress: Progress) -> Tensor:
        return self._lesson(model, batch, model.depth)

    def _lesson(self, model: AdaptiveModel, batch: Batch, depth: tuple[int, ...]) -> Tensor:
        trace = model.trace(batch, depth)
        loss = self.task_loss(model, trace.final, batch)
        if depth == _before(model):  # no successor was drawn: a loss, and nothing to learn from it
            return loss.detach() + 0.0 * sum(parameter.sum() for parameter in model.grown.parameters())
        if not self.distill:
            return loss
        with torch.no_grad(), evaluating(model):
            teacher = model.trace(batch, _before(model)).final
        return loss + self.distill * model.kind.distill(trace.final, teacher, trace.answer_mask, self.temperature)


def _before(model: AdaptiveModel) -> tuple[int, ...]:
    """The layers that are being replaced: the encoder's own."""
    return tuple(range(model.walk.num_base_layers))


methods.alias(
    "theseus",
    "module_replacing",
    epochs=4.0,
    replacing_epochs=15.0,
    replacing_lr=2e-5,
    scheduler_linear_k=0.0006,
    successor_epochs=0.0,
    warmup=0.0,
    weight_decay=0.0,
)
