"""All exits trained together: summed with gradient equilibrium (ElasticBERT), weighted by depth (PABEE), or plainly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from paredown.errors import BadSetting
from paredown.methods._recipe import Recipe
from paredown.methods._stage import Batch, Progress, Stage, everything
from paredown.methods.joint.equilibrium import Equilibrium
from paredown.model import AdaptiveModel
from paredown.registry import methods


@methods.register("joint")
@dataclass(frozen=True, kw_only=True)
class Joint(Recipe):
    rule: str | None = "entropy:0.3"
    epochs: float = 5.0
    weights: Literal["plain", "depth"] = "plain"  # plain: the sum; depth: a mean in which layer k counts k times
    equilibrium: bool = False  # every layer receives the mean, not the sum, of the gradients from the exits above it
    distill: float = 0.0  # weight of imitating the last head, beside the labels
    temperature: float = 1.0
    groups: tuple[tuple[int, ...], ...] | None = None  # exits trained in turn, by layer number; None: all every step

    def stages(self, model: AdaptiveModel) -> list[Stage]:
        known = _answering(model)
        for group in self.groups or ():
            if not group or not known.keys() >= set(group):
                raise BadSetting(f"a group names layers with a head ({sorted(known)}); got {list(group)}")
        turns = len(self.groups) if self.groups else 1
        return [self.stage("joint", self._joint, everything, judged_by="all", repeats=turns)]

    def _joint(self, model: AdaptiveModel, batch: Batch, progress: Progress) -> Tensor:
        last, chosen = model.depth[-1], _answering(model)
        if self.groups:
            turn = self.groups[progress.step % len(self.groups)]
            chosen = {layer: run for layer, run in chosen.items() if layer in turn}
        balance = Equilibrium(set(chosen.values())) if self.equilibrium else None
        trace = model.trace(batch, observer=balance)
        logits = {**trace.exits, last: trace.final}
        weight = {layer: float(run) if self.weights == "depth" else 1.0 for layer, run in chosen.items()}
        total = sum(weight.values()) if self.weights == "depth" else 1.0
        losses = []
        for layer, share in weight.items():
            loss = self.task_loss(model, logits[layer], batch)
            if self.distill and layer != last:
                teacher = trace.final.detach()
                loss = loss + self.distill * model.kind.distill(
                    logits[layer], teacher, trace.answer_mask, self.temperature
                )
            losses.append(loss * (share / total))
        if last in trace.logits:  # a head answers last: plain transformers shall give its answers too
            losses.append(model.kind.distill(trace.stock, trace.final.detach(), trace.answer_mask))
        return torch.stack(losses).sum()


def _answering(model: AdaptiveModel) -> dict[int, int]:
    """Layers on the way that answer, heads and the end, with the layers run by then."""
    way = {layer: run for run, layer in enumerate(model.depth, 1)}
    return {layer: run for layer, run in way.items() if layer in model.head_layers or run == len(way)}


methods.alias("elasticbert", "joint", equilibrium=True, weight_decay=0.1, warmup=0.06, rule="entropy_nats:0.3")
methods.alias("pabee", "joint", head="shared_pooler", weights="depth", weight_decay=0.0, warmup=0.0, rule="patience:6")
