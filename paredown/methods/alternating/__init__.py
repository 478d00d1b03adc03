"""BERxiT: odd steps train all exits, even steps the last answer alone; the model also learns to foresee its errors."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from paredown.engine import Trace
from paredown.methods._recipe import Recipe
from paredown.methods._stage import Batch, Progress, Stage, everything
from paredown.model import AdaptiveModel
from paredown.registry import methods


@methods.register("alternating")
@dataclass(frozen=True, kw_only=True)
class Alternating(Recipe):
    rule: str | None = "learned:0.1"
    learned_exit: bool = True  # also train the error probability that the learned exit rule reads

    @property
    def learns_error_probability(self) -> bool:
        return self.learned_exit

    def grow(self, model: AdaptiveModel) -> None:
        super().grow(model)
        if self.learned_exit:
            model.grow_error_probability()

    def stages(self, model: AdaptiveModel) -> list[Stage]:
        return [self.stage("alternating", self._alternate, everything, judged_by="all", repeats=2)]

    def _alternate(self, model: AdaptiveModel, batch: Batch, progress: Progress) -> Tensor:
        trace = model.trace(batch)
        final_turn = progress.step % 2 == 0
        loss = self.task_loss(model, trace.final, batch) if final_turn else self.exits_loss(model, trace, batch)
        if self.learned_exit:
            return loss + error_probability_loss(model, trace, batch)
        return loss if final_turn else loss + self.task_loss(model, trace.final, batch)


def error_probability_loss(model: AdaptiveModel, trace: Trace, batch: Batch) -> Tensor:
    """Squared error between the error probability and the actual error, mean over exits and the items that count."""
    losses = []
    for layer, estimate in trace.error_probability.items():
        wrong = model.kind.wrong(trace.logits[layer].detach(), batch["labels"])
        asked = model.kind.items(trace.answer_mask, wrong)
        errors = F.mse_loss(estimate, wrong, reduction="none") * asked
        losses.append(errors.sum() / asked.sum().clamp(min=1))
    return torch.stack(losses).mean()


methods.alias("berxit", "alternating", batch_size=8, warmup=0.0, weight_decay=0.0)
