"""Plain fine-tuning that also imitates a teacher's answers: half labels, half teacher, at temperature 2."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from paredown.registry import methods

TEMPERATURE = 2.0


class Imitating:
    """A method whose loss is changed; all else is fine-tuning's."""

    name = "imitating"

    def __init__(self, text: str, teacher: Any):
        self.usual, self.teacher = methods.parse(text), teacher.eval()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.usual, name)

    def stages(self, model: Any) -> list[Any]:
        return [dataclasses.replace(stage, loss=self._loss, repeats=0) for stage in self.usual.stages(model)]

    def _loss(self, model: Any, batch: Any, progress: Any) -> Any:
        trace = model.trace(batch)
        with torch.no_grad():
            taught = self.teacher.trace(batch).final
        imitation = model.kind.distill(trace.final, taught, trace.answer_mask, TEMPERATURE)
        return 0.5 * self.usual.task_loss(model, trace.final, batch) + 0.5 * imitation
