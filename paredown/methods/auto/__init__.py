"""The default: fine-tune, let heads imitate the last one, then train all together; sized for rows and encoder."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from paredown.methods._recipe import Recipe
from paredown.methods._stage import Stage
from paredown.methods.joint import Joint
from paredown.methods.self_distill import SelfDistill
from paredown.model import AdaptiveModel
from paredown.registry import methods

USUAL_WIDTH = 384  # of the encoders whose learning rates are the defaults; wider ones learn more slowly
HEAD_SIZE = 128


@methods.register("auto")
@dataclass(frozen=True, kw_only=True)
class Auto(Recipe):
    head: str = "auto"  # auto: attention, smaller where the encoder is narrow; pooler where every token is answered
    epochs: float = 3.0
    lr: float = 5e-5  # of the encoder, at width 384 and `batch_size` rows a step
    exit_epochs: float = 3.0
    exit_lr: float = 5e-4
    joint_epochs: float = 2.0
    joint_lr: float = 3e-5
    head_rate: float = 10.0  # heads and classifiers learn so many times faster than the encoder
    distill: float = 1.0  # weight of imitating the last head in the joint stage, beside the labels
    least_steps: int = 500  # of every stage; few rows are seen more often
    patience: int = 5  # evaluations without a new best that end a stage
    max_drop: float | None = 0.005

    def grow(self, model: AdaptiveModel) -> None:
        self._distilling(model).grow(model)

    def stages(self, model: AdaptiveModel) -> list[Stage]:
        body, scale = model.body, (USUAL_WIDTH / model.walk.width) ** 0.5

        def rate(name: str) -> float:
            return 1.0 if name in body else self.head_rate

        def sized(stage: Stage) -> Stage:
            frozen = stage.name == "distill"  # its heads have a learning rate of their own
            return replace(
                stage,
                lr=stage.lr if frozen else stage.lr * scale,
                rate=None if frozen else rate,
                least_steps=self.least_steps,
                patience=self.patience,
                scales_lr=True,
            )

        return [sized(stage) for stage in (*self._distilling(model).stages(model), *self._joining(model).stages(model))]

    def _distilling(self, model: AdaptiveModel) -> SelfDistill:
        return SelfDistill(exit_epochs=self.exit_epochs, exit_lr=self.exit_lr, **self._shared(model))

    def _joining(self, model: AdaptiveModel) -> Joint:
        shared = self._shared(model) | {"epochs": self.joint_epochs, "lr": self.joint_lr}
        return Joint(equilibrium=True, distill=self.distill, **shared)

    def _shared(self, model: AdaptiveModel) -> dict[str, Any]:
        """The settings that the methods it is made of have in common with it."""
        names = {field.name for field in fields(Recipe)} - {"head", "rule", "max_drop"}
        return {name: getattr(self, name) for name in names} | {"head": self._head(model)}

    def _head(self, model: AdaptiveModel) -> str:
        if self.head != "auto":
            return self.head
        if model.kind.per_token:  # attention without a residual forgets which token it speaks of
            return "pooler"
        return f"attention:size={min(HEAD_SIZE, 2 * max(model.walk.width // 6, 1))}"
