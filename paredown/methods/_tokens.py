"""What the methods that drop tokens share: selectors, how many tokens shall stay, and whom the model learns from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from paredown.engine import Trace
from paredown.errors import BadSetting
from paredown.methods._recipe import Recipe
from paredown.methods._stage import Batch, Progress, Stage
from paredown.methods._targets import PRICE, grow_price, keep_for, selecting_layers
from paredown.methods._teacher import grow_teacher, update_teacher
from paredown.model import AdaptiveModel
from paredown.plan import Plan

CHOSEN = "selector:0.5"  # how a trained model drops tokens


@dataclass(frozen=True, kw_only=True)
class TokenRecipe(Recipe):
    usual_keep: ClassVar[float | None] = None  # the share that shall stay by default

    select_before: tuple[int, ...] | None = (
        None  # layers that tokens are chosen before; None: the second and the middle
    )
    selector_size: int = 32
    selector_lr: float = 2e-3  # selectors are new and small: they bear a larger learning rate than the encoder
    start: float = 0.0  # logit of keeping that every token starts with; selectors that were trained stay as they are
    target_keep: float | None = None  # share of the tokens that stay, a mean over the layers from the first choice on
    target_speedup: float | None = None  # the same as how many times fewer token-layers
    learns_from: Literal["teacher", "labels"] = "teacher"  # teacher: the model as it was with all its tokens
    temperature: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.target_keep is not None and self.target_speedup is not None:
            raise BadSetting(f"{self.name}: target_keep and target_speedup say the same; give one")
        if self.target_keep is not None and not 0 < self.target_keep < 1:
            raise BadSetting(f"{self.name}: target_keep must lie between 0 and 1, not {self.target_keep:g}")
        if self.target_speedup is not None and self.target_speedup <= 1:
            raise BadSetting(f"{self.name}: target_speedup must be above 1, not {self.target_speedup:g}")

    def check(self, model: AdaptiveModel) -> None:
        super().check(model)
        if not model.walk.drops_tokens:
            raise BadSetting(
                f"{self.name}: the layers of {model.walk.family} tie tokens to their positions; none can go"
            )

    def grow(self, model: AdaptiveModel) -> None:
        fresh = not model.selectors
        model.grow_selectors(self.select_before, self.selector_size)
        if fresh:
            self.start_selectors(model)
        grow_teacher(model)
        grow_price(model)
        if self.learns_from == "teacher" and not model.grown and len(model.depth) < model.walk.num_base_layers:
            raise BadSetting(
                f"{self.name}: the teacher runs every layer, the plan fewer; export it first, or use labels"
            )
        if not selecting_layers(model):
            before, depth = list(model.selector_layers), list(model.depth)
            raise BadSetting(f"{self.name}: selectors sit before layers {before}, but the plan runs {depth}")

    def start_selectors(self, model: AdaptiveModel) -> None:
        for layer in model.selectors:
            torch.nn.init.constant_(model.get_parameter(f"selectors.{layer}.out.bias"), self.start)

    def plan(self, model: AdaptiveModel) -> Plan:
        return super().plan(model).but(reduce=CHOSEN)

    def keep(self, model: AdaptiveModel) -> float | None:
        """The share of tokens that shall stay, where there is a target."""
        if self.target_speedup is not None:
            return keep_for(self.target_speedup, model)
        return self.usual_keep if self.target_keep is None else self.target_keep

    def finetune_stage(self) -> Stage:
        """All that answers learns from the labels, before tokens are chosen; without exits that is fine-tuning."""

        def loss(model: AdaptiveModel, batch: Batch, progress: Progress) -> Tensor:
            return self.lesson(model, model.trace(batch), batch, None)

        return self.stage("finetune", loss, lambda name: learnable(name) and not name.startswith("selectors."))

    def choosing_stage(
        self, model: AdaptiveModel, name: str, loss: Any, trains: Callable[[str], bool], lr: float, **changes: Any
    ) -> Stage:
        """A stage in which tokens are chosen, on dev rows as they will be in use."""
        priced = self.keep(model) is not None

        def learns(parameter: str) -> bool:
            return trains(parameter) or (priced and parameter == PRICE)

        def rate(parameter: str) -> float:
            return self.selector_lr / lr if parameter == PRICE or parameter.startswith("selectors.") else 1.0

        usual: dict[str, Any] = {"reduce": CHOSEN, "keeps_last": True, "begin": _begin}
        return self.stage(name, loss, learns, lr=lr, rate=rate, **usual, **changes)

    # Learning from answers

    def lesson(self, model: AdaptiveModel, trace: Trace, batch: Batch, taught: Tensor | None) -> Tensor:
        """The mean loss of all that answer: the end, and exits where there are some."""
        answers = [trace.final, *trace.exits.values()]
        if trace.last in trace.logits:  # a head answers last: the model's own classifier learns along
            answers.append(trace.stock)
        return torch.stack([self._loss(model, logits, batch, trace.answer_mask, taught) for logits in answers]).mean()

    @torch.no_grad()
    def row_losses(self, model: AdaptiveModel, trace: Trace, batch: Batch, taught: Tensor | None) -> Tensor:
        """[rows] the loss of each row's answer at the end; of a choice [questions]."""
        known = {
            name: value for name, value in (("labels", batch.get("labels")), ("taught", taught)) if value is not None
        }

        def loss(logits: Tensor, mask: Tensor, known: Batch) -> Tensor:
            alone = {name: value.unsqueeze(0) for name, value in known.items()}
            return self._loss(model, logits.unsqueeze(0), alone, mask.unsqueeze(0), alone.get("taught"))

        # Kinds of answer know only the mean over rows: so each row as a batch of its own, all at once.
        return torch.vmap(loss)(trace.final, trace.answer_mask, known)

    def _loss(self, model: AdaptiveModel, logits: Tensor, batch: Batch, mask: Tensor, taught: Tensor | None) -> Tensor:
        if taught is None:
            return self.task_loss(model, logits, batch)
        return model.kind.distill(logits, taught, mask, self.temperature)


def learnable(name: str) -> bool:
    """What may learn while tokens go; the error probability learns in methods of its own."""
    return not name.startswith(("companions.", "error_probability."))


@torch.no_grad()
def _begin(model: AdaptiveModel) -> None:
    """From here on the model as it is now is imitated, and the price has to be found anew."""
    update_teacher(model)
    model.get_parameter(PRICE).zero_()
