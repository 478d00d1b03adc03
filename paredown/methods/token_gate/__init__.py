"""Selectors learn by gradient: in training tokens are veiled, not cut out, and a price leads to the wanted share."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from paredown.encoders.walk import evaluating
from paredown.errors import BadPlan, BadSetting
from paredown.methods._stage import Batch, Progress, Stage
from paredown.methods._targets import price_of, spans
from paredown.methods._tokens import TokenRecipe, learnable
from paredown.model import AdaptiveModel, Trace
from paredown.registry import methods
from paredown.state import State

ALIKE = 1e-3  # largest difference that a veil may make where the tokens could as well be cut out


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
        if not can_be_veiled(model):
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
        trace, shares = veiled(model, batch, noise=1 - progress.share)
        share = model.kind.averaged(shares, trace.counts).mean()
        price, steering = price_of(model, share, wanted, progress, self.selector_lr)
        taught = model.taught(batch) if self.learns_from == "teacher" else None
        paid = price * (share - share.detach())  # only its gradient counts: what is shown is what is learnt
        return self.lesson(model, trace, batch, taught) + paid + steering


def veiled(model: AdaptiveModel, batch: Batch, noise: float = 0.0) -> tuple[Trace, Tensor]:
    """What the model says with tokens veiled; and the share of each row's tokens that its layers saw, [rows]."""
    gates: list[Tensor] = []  # [rows, tokens] what is open since each choice
    before: list[Tensor] = []

    def choose(state: State, layer: int) -> State:
        before[:] = [state.hidden]
        if str(layer) not in model.selectors:
            return state
        gate = torch.where(state.free, step(model.keep_logits(state, layer), noise), 1.0)
        gates.append(gate * gates[-1] if gates else gate)
        return state.veiled(gate)

    def stay(hidden: Tensor, run: int, layers: int) -> tuple[Tensor, Tensor]:
        """A token that is gone keeps the state it had."""
        if gates:
            hidden = (before[0] + gates[-1].unsqueeze(-1) * (hidden - before[0])).to(hidden.dtype)
        return hidden, hidden

    trace = model.trace(batch, between=stay, reduce=choose)
    real = batch["attention_mask"].bool()
    shares = torch.stack([(gate * real).sum(1) / real.sum(1) for gate in gates], 1)
    return trace, (shares * shares.new_tensor(spans(model))).sum(1)


def step(logits: Tensor, noise: float) -> Tensor:
    """1 where a logit, with logistic noise, is not below 0; else 0. The gradient is that of the soft step."""
    if noise:
        chance = torch.rand_like(logits).clamp(1e-6, 1 - 1e-6)
        logits = logits + noise * chance.logit()
    soft = logits.sigmoid()
    return (logits >= 0).float() + soft - soft.detach()


@torch.no_grad()
def can_be_veiled(model: AdaptiveModel) -> bool:
    """True where a token that is veiled leaves the others as one that is cut out does."""
    walk = model.walk
    with evaluating(model):
        state = walk.start(walk.sample(2, 10), may_drop=True)
        keep = torch.ones_like(state.mask)
        keep[0, 4] = keep[1, 2] = keep[1, 5] = False
        try:
            cut, veil = state.keep_tokens(keep), state.veiled(keep.float())
            for layer in model.depth:
                cut, veil = walk.step(cut, layer), walk.step(veil, layer)
        except (BadPlan, RuntimeError):  # masks that cannot be soft, or that a layer does not take
            return False
    apart = (cut.hidden[cut.mask] - veil.hidden[veil.mask]).abs().max()
    return bool(apart <= ALIKE * max(1.0, cut.hidden[cut.mask].abs().max().item()))
