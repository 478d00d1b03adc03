"""What every method shares: hyper-parameters, the heads it grows, and stages made from both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from paredown.engine import Trace
from paredown.errors import BadPlan, BadSetting
from paredown.methods._stage import Batch, Progress, Stage
from paredown.model import AdaptiveModel
from paredown.plan import Plan
from paredown.registry import exits


@dataclass(frozen=True, kw_only=True)
class Recipe:
    name: ClassVar[str]
    head: str = "pooler"  # which head, as its short text: pooler, attention, linear:pool=mean, …
    layers: tuple[int, ...] | None = None  # layers that get a head, numbered from 0; None: all that run but the last
    rule: str | None = None  # the exit rule the trained model starts with, as its short text
    epochs: float = 3.0
    lr: float = 2e-5
    batch_size: int = 32
    warmup: float = 0.1
    weight_decay: float = 0.01
    clip: float | None = 1.0
    adam_eps: float = 1e-8
    label_smoothing: float = 0.0
    max_drop: float | None = None  # the exit rule chosen on dev rows may cost so much of their score; None: `rule`

    def __post_init__(self) -> None:
        if self.epochs < 0 or self.lr <= 0 or self.batch_size < 1 or not 0 <= self.warmup <= 1:
            raise BadSetting(f"{self.name}: epochs >= 0, lr > 0, batch_size >= 1 and warmup in 0..1 are needed")
        if not 0 <= self.label_smoothing < 1:
            raise BadSetting(f"{self.name}: label_smoothing must lie in 0..1, not {self.label_smoothing}")

        if self.max_drop is not None and not 0 <= self.max_drop < 1:
            raise BadSetting(f"{self.name}: max_drop is a share of the score, from 0 to below 1, not {self.max_drop}")

    def check(self, model: AdaptiveModel) -> None:
        """Say before training, not after it, that the exit rule makes no sense for the model's kind of answer."""
        if self.rule is not None:
            try:
                estimates = self.learns_error_probability or model.error_probability is not None
                exits.of(self.rule).check(model.kind, (1,), estimates)
            except BadPlan as error:
                raise BadSetting(
                    f"{self.name}: its rule {self.rule!r} does not fit; choose another rule: {error}"
                ) from None

    @property
    def learns_error_probability(self) -> bool:
        """Whether the model learns to foresee its errors, as the learned exit rule needs."""
        return False

    def grow(self, model: AdaptiveModel) -> None:
        model.grow_heads(self.head, self.layers)

    def plan(self, model: AdaptiveModel) -> Plan:
        """How the trained model is meant to be used; users choose another at will."""
        return model.plan if self.rule is None else model.plan.but(exit=self.rule)

    def stage(
        self,
        name: str,
        loss: Callable[[AdaptiveModel, Batch, Progress], Tensor],
        trains: Callable[[str], bool],
        **changes: Any,
    ) -> Stage:
        usual = {
            "epochs": self.epochs,
            "lr": self.lr,
            "batch_size": self.batch_size,
            "warmup": self.warmup,
            "weight_decay": self.weight_decay,
            "clip": self.clip,
            "adam_eps": self.adam_eps,
        }
        return Stage(name, loss, trains, **{**usual, **changes})

    def task_loss(self, model: AdaptiveModel, logits: Tensor, batch: Batch) -> Tensor:
        return model.kind.loss(logits, batch["labels"], self.label_smoothing)

    def final_loss(self, model: AdaptiveModel, batch: Batch, progress: Progress) -> Tensor:
        """The loss of the answer at full depth."""
        return self.task_loss(model, model.trace(batch).final, batch)

    def exits_loss(self, model: AdaptiveModel, trace: Trace, batch: Batch) -> Tensor:
        """The sum over all exits before the last."""
        return torch.stack([self.task_loss(model, logits, batch) for logits in trace.exits.values()]).sum()


def at_full_depth(model: AdaptiveModel) -> frozenset[str]:
    """Names of the parameters behind the answer at full depth: the encoder's and those of who answers last."""
    last = f"heads.{model.depth[-1]}."
    own = {value for name, value in model.named_parameters(remove_duplicate=False) if name.startswith(last)}
    if not own:  # no head there: the model's own classifier answers
        return frozenset(name for name, _ in model.named_parameters() if name.startswith(("stock.", "grown.")))
    return model.body | {name for name, value in model.named_parameters() if value in own}
