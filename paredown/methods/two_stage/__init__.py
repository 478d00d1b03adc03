"""DeeBERT: fine-tune the model, then train its exits on the labels with everything else frozen."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from paredown.methods._recipe import Recipe, at_full_depth
from paredown.methods._stage import Batch, Progress, Stage
from paredown.model import AdaptiveModel
from paredown.registry import methods


@methods.register("two_stage")
@dataclass(frozen=True, kw_only=True)
class TwoStage(Recipe):
    rule: str | None = "entropy_nats:0.1"
    exit_epochs: float = 3.0
    exit_lr: float = 2e-5

    def stages(self, model: AdaptiveModel) -> list[Stage]:
        full = at_full_depth(model)
        finetune = self.stage("finetune", self.final_loss, full.__contains__, repeats=1)
        exits = self.stage(
            "exits",
            self._exits,
            lambda name: name not in full,
            epochs=self.exit_epochs,
            lr=self.exit_lr,
            judged_by="exits",
            repeats=1,
        )
        return [finetune, exits] if self.epochs else [exits]

    def _exits(self, model: AdaptiveModel, batch: Batch, progress: Progress) -> Tensor:
        return self.exits_loss(model, model.trace(batch), batch)


methods.alias("deebert", "two_stage", batch_size=8, warmup=0.0, weight_decay=0.0)
