"""Plain fine-tuning at full depth: the baseline, and the first stage of most methods."""

from __future__ import annotations

from dataclasses import dataclass

from paredown.methods._recipe import Recipe, at_full_depth
from paredown.methods._stage import Stage
from paredown.model import AdaptiveModel
from paredown.registry import methods


@methods.register("finetune")
@dataclass(frozen=True, kw_only=True)
class Finetune(Recipe):
    def grow(self, model: AdaptiveModel) -> None:
        """Adds nothing: the Hugging Face model has all it needs."""

    def stages(self, model: AdaptiveModel) -> list[Stage]:
        return [self.stage("finetune", self.final_loss, at_full_depth(model).__contains__, repeats=1)]
