"""A plain Hugging Face model of the layers that a plan runs: what static depth and replaced modules come to."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from paredown.encoders.dtype import check_before_saving
from paredown.encoders.probing import evaluating
from paredown.encoders.walk import Walk, logits_of
from paredown.engine import run_steps
from paredown.errors import BadPlan
from paredown.model import AdaptiveModel
from paredown.plan import Plan
from paredown.route import straight
from paredown.system.saving import staged

if TYPE_CHECKING:
    from transformers import PreTrainedModel

SAME = 1e-5  # largest difference of a logit from the model it was pruned from; same kernels give 0


def export_hf(model: AdaptiveModel, folder: str | Path, plan: Plan | None = None, own_classifier: bool = False) -> Plan:
    """Write a folder that transformers loads as any other; returns the plan it runs, which has no exits."""
    plan = (model.plan if plan is None else Plan.of(plan)).but(exit=None)
    stock = pruned(model, plan, own_classifier)
    check_before_saving(folder, dict(stock.named_parameters()))
    with staged(folder) as fresh:
        stock.save_pretrained(fresh)
        if model.tokenizer is not None:
            model.tokenizer.save_pretrained(fresh)
    return plan


def pruned(model: AdaptiveModel, plan: Plan | None = None, own_classifier: bool = False) -> PreTrainedModel:
    """The layers of the plan, in its order, as a model of the encoder's own class that gives the same answers.

    Such a model can answer by its own classifier only. Where a head of ours answers after the last layer,
    `own_classifier` allows the classifier's answers, which are others.
    """
    plan = (model.plan if plan is None else Plan.of(plan)).but(exit=None)
    depth = tuple(step.layer for step in model.route(plan).steps)
    if plan.reduce is not None:
        raise BadPlan("a plain Hugging Face model keeps every token; leave the reducer out")
    if str(depth[-1]) in model.heads and not own_classifier:
        raise BadPlan(
            f"after layer {depth[-1]} a head answers, which a plain Hugging Face model does not have; choose another "
            "depth, or say that its own classifier may answer instead"
        )
    config = _config(model, depth)
    fresh: Any = type(model.stock)(config).to(device=model.device, dtype=model.dtype).eval()
    walk = Walk(fresh)
    before = _apart_from_layers(model.walk)
    if _shapes(_apart_from_layers(walk)) != _shapes(before):
        had = model.walk.num_base_layers
        raise BadPlan(f"{model.walk.family}: with {len(depth)} layers it has other parts than with {had}")
    fresh.load_state_dict(before, strict=False)
    taken: dict[Any, Any] = {}
    for position, number in enumerate(depth):
        theirs, ours = walk.layers[position], model.walk.layers[number]
        if taken.setdefault(theirs, ours) is not ours:
            raise BadPlan(f"{model.walk.family} shares one layer among all, so it cannot hold layers that differ")
        theirs.load_state_dict(ours.state_dict())
    _compare(model, depth, fresh)
    return fresh


def _config(model: AdaptiveModel, depth: tuple[int, ...]) -> Any:
    """The config for these layers: their number, and their own values of settings that have one per layer."""
    config = copy.deepcopy(model.config)
    like = [model.walk.like[layer] for layer in depth]
    for name, value in vars(model.config).items():
        if isinstance(value, (list, tuple)) and len(value) == model.walk.num_base_layers:
            setattr(config, name, type(value)(value[layer] for layer in like))
    config.num_hidden_layers = len(depth)
    return config


def _apart_from_layers(walk: Walk) -> dict[str, torch.Tensor]:
    """Everything but the encoder's layers: embeddings, norms, pooler, classifier."""
    inside = {
        id(value)
        for layer in walk.layers[: walk.num_base_layers]
        for value in layer.state_dict(keep_vars=True).values()
    }
    state = walk.stock.state_dict(keep_vars=True)
    return {name: value.detach() for name, value in state.items() if id(value) not in inside}


def _shapes(state: dict[str, torch.Tensor]) -> dict[str, torch.Size]:
    return {name: value.shape for name, value in state.items()}


@torch.no_grad()
def _compare(model: AdaptiveModel, depth: tuple[int, ...], fresh: PreTrainedModel) -> None:
    """Refuse where logits differ: the family's layers depend on more than their weights and settings."""
    batch = model.walk.sample(3, 12, padding=3)
    with evaluating(model):
        state = run_steps(model.walk, straight(depth), model.walk.embed(batch))
        wanted = model.walk.stock_logits(state.hidden, state.mask)
    apart = model.kind.unpadded(logits_of(fresh(**batch)) - wanted, state.mask).abs()
    if bool((apart > SAME * max(1.0, wanted.abs().max().item())).any()):
        raise BadPlan(f"{model.walk.family}: its layers answer differently at other positions, so they cannot be moved")
