"""The model as it once was, kept beside it to be imitated while a method trains."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from paredown.encoders.walk import logits_of
from paredown.methods._stage import Batch
from paredown.model import AdaptiveModel

TEACHER = "teacher"


class Teacher(nn.Module):
    """A copy of the encoder with its classifier. It answers in eval mode whatever mode the model is put into."""

    def __init__(self, stock: nn.Module):
        super().__init__()
        self.stock = copy.deepcopy(stock)
        self.train(False)

    def train(self, mode: bool = True) -> Teacher:
        return super().train(False)


def grow_teacher(model: AdaptiveModel) -> None:
    """Keep a copy of the model as it is; `update_teacher` brings it up to date."""
    if TEACHER not in model.companions:
        model.companions[TEACHER] = Teacher(model.stock)


def update_teacher(model: AdaptiveModel) -> None:
    """From now on the present weights are imitated."""
    model.companions[TEACHER].get_submodule("stock").load_state_dict(model.stock.state_dict())


@torch.no_grad()
def teacher_logits(model: AdaptiveModel, batch: Batch) -> Tensor:
    stock = model.companions[TEACHER].get_submodule("stock")
    logits = logits_of(stock(**model.walk.inputs_of(batch)))
    return model.kind.ruled_out(logits, model.kind.answer_mask(batch))
