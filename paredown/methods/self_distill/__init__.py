"""FastBERT: fine-tune with the last head as teacher, then let the other heads imitate it; text without labels helps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from paredown.answers import Direction
from paredown.methods._recipe import Recipe, at_full_depth
from paredown.methods._stage import Batch, Progress, Stage
from paredown.model import AdaptiveModel
from paredown.registry import methods


@methods.register("self_distill")
@dataclass(frozen=True, kw_only=True)
class SelfDistill(Recipe):
    head: str = "attention"
    rule: str | None = "entropy:0.5"
    teacher: Literal["head", "stock"] = "head"  # who answers at full depth: a head like the others, or the model's own
    exit_epochs: float = 5.0
    exit_lr: float = 2e-4
    direction: Direction = "forward"  # forward: KL(teacher || student); reverse: KL(student || teacher)
    temperature: float = 1.0
    gold: float = 0.0  # weight of the labels' own loss beside imitation; above 0 every text needs a label

    def grow(self, model: AdaptiveModel) -> None:
        layers = model.depth[:-1] if self.layers is None else self.layers
        last = model.depth[-1:] if self.teacher == "head" else ()
        model.grow_heads(self.head, sorted({*layers, *last}))

    def stages(self, model: AdaptiveModel) -> list[Stage]:
        full = at_full_depth(model)
        finetune = self.stage("finetune", self.final_loss, full.__contains__, repeats=1)
        distill = self.stage(
            "distill",
            self._imitate,
            lambda name: name not in full,
            epochs=self.exit_epochs,
            lr=self.exit_lr,
            judged_by="exits",
            unlabelled=self.gold == 0,
            repeats=1,
        )
        return [finetune, distill] if self.epochs else [distill]

    def _imitate(self, model: AdaptiveModel, batch: Batch, progress: Progress) -> Tensor:
        trace = model.trace(batch)
        teacher = trace.final.detach()
        students = list(trace.exits.values())
        if self.teacher == "head":
            # The model's own classifier learns along, so that plain transformers gives the teacher's answers too.
            students.append(trace.stock)
        lessons = [self._lesson(model, student, teacher, trace.answer_mask, batch) for student in students]
        return torch.stack(lessons).sum()

    def _lesson(self, model: AdaptiveModel, student: Tensor, teacher: Tensor, mask: Tensor, batch: Batch) -> Tensor:
        loss = model.kind.distill(student, teacher, mask, self.temperature, self.direction)
        return loss + self.gold * self.task_loss(model, student, batch) if self.gold else loss


methods.alias("fastbert", "self_distill", clip=None, adam_eps=1e-6)
