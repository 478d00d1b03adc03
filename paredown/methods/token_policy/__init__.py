"""TR-BERT: selectors learn by reward which tokens may go, guided at first by importance; then all learn together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from paredown.errors import BadSetting
from paredown.methods._stage import Batch, Progress, Stage
from paredown.methods._targets import price_of, spans
from paredown.methods._teacher import teacher_logits
from paredown.methods._tokens import TokenRecipe, learnable
from paredown.methods.token_policy.importance import importance, rank
from paredown.methods.token_policy.sampling import Draw, draw, in_use, repeated
from paredown.model import AdaptiveModel
from paredown.registry import methods

Preset = Literal[
    "squad", "newsqa", "naturalqa", "race", "yelp_f", "20news", "imdb", "hotpotqa", "triviaqa", "hyperpartisan"
]


class Published(NamedTuple):
    """What TR-BERT's repository sets for one data set."""

    alpha: float
    joint_alpha: float
    guide_rate: float


UNTUNED = Published(1.0, 1.0, 0.5)
PUBLISHED = {
    "squad": Published(5.0, 5.0, 0.2),
    "newsqa": Published(3.0, 5.0, 0.2),
    "naturalqa": Published(2.0, 2.0, 0.2),
    "race": Published(0.5, 0.1, 0.5),
    "yelp_f": Published(2.0, 0.5, 0.5),
    "20news": Published(1.0, 1.0, 0.5),
    "imdb": Published(1.0, 1.0, 0.5),
    "hotpotqa": Published(0.1, 4.0, 0.5),
    "triviaqa": Published(0.5, 1.0, 0.2),
    "hyperpartisan": Published(0.01, 0.01, 0.5),
}


@methods.register("token_policy")
@dataclass(frozen=True, kw_only=True)
class TokenPolicy(TokenRecipe):
    selector_lr: float = 4e-3  # at 1e-3 they hardly separated tokens, at 1e-2 they missed the target
    init_epochs: float = 0.0  # before all else selectors may learn to rank tokens by importance
    policy_epochs: float = 3.0  # selectors alone, by reward
    joint_epochs: float = 3.0  # everything together
    joint_lr: float = 2e-5
    samples: int = 8  # trajectories per row and step
    # Share of the policy's steps in which one of them keeps the most important tokens; None: the preset's, else 0.5.
    guide_rate: float | None = None
    alpha: float | None = None  # price of keeping all tokens, in units of the loss; None: the preset's, else 1
    joint_alpha: float | None = None  # the same in the joint stage; None: the preset's, else as before
    preset: Preset | None = None  # a data set whose published prices, penalty and guide rate are taken
    # Kept tokens as a share of the row's own (real) or of the longest row there may be (published, as the original pads
    # every row to it); None: published with a preset, else real.
    penalty: Literal["real", "published"] | None = None
    detach_dropped: bool = False  # no gradient reaches the last state of a dropped token, where those answer too

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.samples < 2:
            raise BadSetting(f"{self.name}: a sample is judged by the others of its row, so at least 2 are needed")
        if self.guide_rate is not None and not 0 <= self.guide_rate <= 1:
            raise BadSetting(f"{self.name}: guide_rate must lie in 0..1, not {self.guide_rate:g}")
        if self._published_penalty and (self.target_keep or self.target_speedup):
            raise BadSetting(f"{self.name}: a target is a share of the row's own tokens; it needs penalty=real")
        if not (self.policy_epochs or self.joint_epochs):
            raise BadSetting(
                f"{self.name}: without policy_epochs and joint_epochs no selector would learn what to keep"
            )

    def stages(self, model: AdaptiveModel) -> list[Stage]:
        ranking = self.stage("init", self._rank, _chooses, epochs=self.init_epochs, lr=self.selector_lr)
        policy = self.choosing_stage(
            model, "policy", self._policy, _chooses, epochs=self.policy_epochs, lr=self.selector_lr
        )
        joint = self.choosing_stage(
            model,
            "joint",
            self._joint,
            learnable,
            epochs=self.joint_epochs,
            lr=self.joint_lr,
            unlabelled=self.learns_from == "teacher",
        )
        return [stage for stage in (self.finetune_stage(), ranking, policy, joint) if stage.epochs]

    @property
    def alphas(self) -> tuple[float, float]:
        """The price while selectors learn alone, and in the joint stage."""
        policy = self._published.alpha if self.alpha is None else self.alpha
        joint = self._published.joint_alpha if self.alpha is None else self.alpha
        return policy, joint if self.joint_alpha is None else self.joint_alpha

    @property
    def guided_share(self) -> float:
        """The share of the policy's steps that are guided."""
        return self._published.guide_rate if self.guide_rate is None else self.guide_rate

    @property
    def _published(self) -> Published:
        return PUBLISHED.get(self.preset or "", UNTUNED)

    @property
    def _published_penalty(self) -> bool:
        return self.preset is not None if self.penalty is None else self.penalty == "published"

    # Losses

    def _rank(self, model: AdaptiveModel, batch: Batch, progress: Progress) -> Tensor:
        """The distance of every probability of keeping from the token's rank, scaled to 1 for the most important."""
        scores, seen = importance(model, batch, self.task_loss)
        losses = []
        for layer, state in seen.items():
            free = state.free
            wanted = 1 - rank(scores[layer], free) / free.sum(1, keepdim=True).clamp(min=1)
            distance = (model.keep_logits(layer, state.hidden).sigmoid() - wanted).abs() * free
            rows = distance.sum(1) / free.sum(1).clamp(min=1)
            losses.append(model.kind.averaged(rows, model.kind.answer_mask(batch)).mean())
        return torch.stack(losses).sum()

    def _policy(self, model: AdaptiveModel, batch: Batch, progress: Progress) -> Tensor:
        guide = progress.step < self.guided_share * progress.steps
        scores = importance(model, batch, self.task_loss)[0] if guide else None
        drawn = draw(model, batch, self.samples, scores)
        losses = self.row_losses(model, drawn.trace, repeated(batch, self.samples), None)
        return self._reinforce(model, batch, drawn, losses, self.alphas[0], progress)

    def _joint(self, model: AdaptiveModel, batch: Batch, progress: Progress) -> Tensor:
        drawn = draw(model, batch, self.samples, detach_dropped=self.detach_dropped)
        many = repeated(batch, self.samples)
        taught = None
        if self.learns_from == "teacher":
            taught = repeated({"answers": teacher_logits(model, batch)}, self.samples)["answers"]
        losses = self.row_losses(model, drawn.trace, many, taught)
        reinforced = self._reinforce(model, batch, drawn, losses, self.alphas[1], progress)
        return self.lesson(model, drawn.trace, many, taught) + reinforced

    def _reinforce(
        self,
        model: AdaptiveModel,
        batch: Batch,
        drawn: Draw,
        losses: Tensor,
        alpha: float,
        progress: Progress,
    ) -> Tensor:
        """Choices of samples that did better than others of their row become likelier, those of worse ones less."""
        keep, price, steering = self.keep(model), losses.new_tensor(alpha), losses.new_zeros(())
        averaged, mask = model.kind.averaged, drawn.trace.answer_mask
        shares = averaged(self._shares(model, drawn), mask)
        share = shares.mean(1)
        if keep is not None:
            span = losses.new_tensor(spans(model))
            share = (shares * span).sum(1)
            # Samples show little of what stays in use: of tokens that all are kept with 0.4, four in ten or none.
            used = averaged(in_use(model, batch), model.kind.answer_mask(batch))
            stay = (used * span).sum(1).mean()
            price, steering = price_of(model, stay, keep, progress, self.selector_lr)
        better = drawn.advantage(-losses - price * share, self.samples)
        return (better * averaged(drawn.surprise, mask)).mean() + steering

    def _shares(self, model: AdaptiveModel, drawn: Draw) -> Tensor:
        """[samples * rows, selectors] tokens kept, as a share."""
        if self._published_penalty:
            return drawn.kept / model.kind.row_length(model)
        return drawn.kept / drawn.length.unsqueeze(1)


def _chooses(name: str) -> bool:
    return name.startswith("selectors.")


methods.alias(
    "trbert",
    "token_policy",
    epochs=5.0,
    lr=3e-5,
    selector_lr=3e-5,
    joint_lr=3e-5,
    weight_decay=0.0,
    penalty="published",
    detach_dropped=True,
)
