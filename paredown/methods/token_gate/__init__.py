"""Selectors learn by gradient: tokens are masked softly in training, and a price leads to the wanted share."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from paredown.encoders.padded import PaddedState
from paredown.encoders.probing import evaluating
from paredown.engine import Observer, Trace, run_steps
from paredown.errors import BadPlan, BadSetting
from paredown.methods._stage import Batch, Progress, Stage
from paredown.methods._targets import price_of, spans
from paredown.methods._teacher import teacher_logits
from paredown.methods._tokens import TokenRecipe, learnable
from paredown.model import AdaptiveModel
from paredown.registry import methods
from paredown.route import Step, straight
from paredown.state import State

ALIKE = 1e-3  # largest difference that a soft mask may make where the tokens could as well be cut out


@methods.register("token_gate")
@dataclass(frozen=True, kw_only=True)
class TokenGate(TokenRecipe):
    usual_keep = 0.5

    start: float = 2.5
    gate_epochs: float = 3.0
    gate_lr: float = 5e-5
    anneal: float = 0.5  # share of the steps in which the target falls from 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.anneal < 1 or self.gate_epochs <= 0:
            raise BadSetting(f"{self.name}: anneal must lie in 0..1, below 1, and gate_epochs above 0")

    def check(self, model: AdaptiveModel) -> None:
        super().check(model)
        if not takes_soft_masks(model):
            family = model.walk.family
            raise BadSetting(f"{self.name}: the attention of {family} takes no soft mask; token_policy cuts tokens out")

    def start_selectors(self, model: AdaptiveModel) -> None:
        super().start_selectors(model)
        for layer in model.selectors:
            # Far from 0: what lies before it learns only through it.
            torch.nn.init.normal_(model.get_parameter(f"selectors.{layer}.out.weight"), std=0.5)

    def stages(self, model: AdaptiveModel) -> list[Stage]:
        gates = self.choosing_stage(
            model,
            "gates",
            self._gates,
            learnable,
            epochs=self.gate_epochs,
            lr=self.gate_lr,
            unlabelled=self.learns_from == "teacher",
        )
        return [self.finetune_stage(), gates] if self.epochs else [gates]

    def _gates(self, model: AdaptiveModel, batch: Batch, progress: Progress) -> Tensor:
        wanted = self.keep(model)
        assert wanted is not None
        if self.anneal:
            wanted = 1 - (1 - wanted) * min(progress.share / self.anneal, 1.0)
        # Chance fades, so that in the end training sees what inference will do.
        trace, shares = soft_masked(model, batch, noise=1 - progress.share)
        share = model.kind.averaged(shares, trace.answer_mask).mean()
        price, steering = price_of(model, share, wanted, progress, self.selector_lr)
        taught = teacher_logits(model, batch) if self.learns_from == "teacher" else None
        paid = price * (share - share.detach())  # only its gradient counts: what is shown is what is learnt
        return self.lesson(model, trace, batch, taught) + paid + steering


def soft_masked(model: AdaptiveModel, batch: Batch, noise: float = 0.0) -> tuple[Trace, Tensor]:
    """The trace with tokens masked softly; and the share of each row's tokens that its layers saw, [rows]."""
    gating = Gating(model, noise)
    trace = model.trace(batch, observer=gating)
    real = batch["attention_mask"].bool()
    shares = torch.stack([(gate * real).sum(1) / real.sum(1) for gate in gating.gates], 1)
    return trace, (shares * shares.new_tensor(spans(model))).sum(1)


class Gating(Observer):
    """Masks tokens softly, by the selectors' logits; one that is gone keeps the state it had."""

    drops_tokens = True

    def __init__(self, model: AdaptiveModel, noise: float):
        self.model, self.noise = model, noise
        self.gates: list[Tensor] = []  # [rows, tokens] what is open since each choice

    def before(self, state: PaddedState, step: Step) -> State:
        self.hidden = state.hidden
        if not self.model.selects_before(step.layer):
            return state
        gate = gate_of(self.model.keep_logits(step.layer, state.hidden), self.noise)
        gate = torch.where(state.free, gate, 1.0)
        self.gates.append(gate * self.gates[-1] if self.gates else gate)
        return state.soft_masked(gate)

    def after(self, state: State, step: Step) -> State:
        if not self.gates:
            return state
        moved = self.gates[-1].unsqueeze(-1) * (state.hidden - self.hidden)
        return state.showing((self.hidden + moved).to(state.hidden.dtype))


def gate_of(logits: Tensor, noise: float) -> Tensor:
    """1 where a logit, with logistic noise, is not below 0; else 0. The gradient is that of the soft step."""
    if noise:
        chance = torch.rand_like(logits).clamp(1e-6, 1 - 1e-6)
        logits = logits + noise * chance.logit()
    soft = logits.sigmoid()
    return (logits >= 0).float() + soft - soft.detach()


@torch.no_grad()
def takes_soft_masks(model: AdaptiveModel) -> bool:
    """True where a token that is masked softly leaves the others as one that is cut out does."""
    walk, steps = model.walk, straight(model.depth)
    with evaluating(model):
        state = walk.embed(walk.sample(2, 10), joinable=True)
        keep = torch.ones_like(state.mask)
        keep[0, 4] = keep[1, 2] = keep[1, 5] = False
        try:
            cut, soft = (run_steps(walk, steps, one) for one in (state.drop(keep), state.soft_masked(keep.float())))
        except (BadPlan, RuntimeError):  # masks that cannot be soft, or that a layer does not take
            return False
    apart = (cut.hidden[cut.mask] - soft.hidden[soft.mask]).abs().max()
    return bool(apart <= ALIKE * max(1.0, cut.hidden[cut.mask].abs().max().item()))
