"""Pre-training with an exit after every layer (ElasticBERT): masked words and sentence order, at all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from paredown.answers import Encoded, collate
from paredown.encoders.probing import evaluating
from paredown.engine import Observer, Trace
from paredown.errors import BadInput, BadSetting
from paredown.heads.pretraining import Pretraining
from paredown.methods._recipe import Recipe
from paredown.methods._stage import Batch, Progress, Stage, everything
from paredown.methods.elastic_pretrain.masking import Masking
from paredown.methods.joint.equilibrium import Equilibrium
from paredown.model import AdaptiveModel
from paredown.registry import heads, methods
from paredown.route import Step
from paredown.state import State

Exits = dict[int, int]  # layer number -> layers run by then


@methods.register("elastic_pretrain")
@dataclass(frozen=True, kw_only=True)
class ElasticPretrain(Recipe):
    head: str = "pretraining"
    layers: tuple[int, ...] | None = None  # layers that get a head, numbered from 0; None: all, the last included
    epochs: float = 1.0
    lr: float = 1e-4
    batch_size: int = 256
    warmup: float = 0.06
    adam_eps: float = 1e-6
    mask_share: float = 0.15  # of the tokens, to be guessed
    whole_words: bool = False  # hide all tokens of a word or none
    sop: float = 1.0  # weight of the rows' labels (sentence order) beside the words; 0: text without labels will do
    # Exits that learn in turn, by layer number; alternate: every other exit and the last, the others and the last.
    groups: Literal["all", "alternate"] | tuple[tuple[int, ...], ...] = "alternate"
    equilibrium: bool = True  # every layer receives the mean, not the sum, of the gradients from the exits above it

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.mask_share < 1 or self.sop < 0:
            raise BadSetting(f"{self.name}: mask_share must lie between 0 and 1, and sop must not be negative")

    def check(self, model: AdaptiveModel) -> None:
        super().check(model)
        self._masking(model)

    def grow(self, model: AdaptiveModel) -> None:
        if not isinstance(heads.of(self.head), Pretraining):
            raise BadSetting(f"{self.name}: words are guessed by `pretraining` heads, not by {self.head!r}")
        model.grow_heads(self.head, model.depth if self.layers is None else self.layers)

    def stages(self, model: AdaptiveModel) -> list[Stage]:
        loss = partial(self._loss, self._masking(model), self.turns(model))
        return [self.stage("pretrain", loss, everything, judged_by="all", unlabelled=not self.sop)]

    def _masking(self, model: AdaptiveModel) -> Masking:
        return Masking.of(model.tokenizer, _embeddings(model), self.mask_share, self.whole_words)

    def turns(self, model: AdaptiveModel) -> list[Exits]:
        """The exits of every step, in rotation."""
        exits = _exits(model)
        layers = list(exits)
        if self.groups == "all":
            return [exits]
        if self.groups == "alternate":
            groups = [{*layers[first::2], layers[-1]} for first in (0, 1)]
        else:
            groups = [set(group) for group in self.groups] or [set()]
        for group in groups:
            if not group or not exits.keys() >= group:
                raise BadSetting(f"a group names layers with a head ({layers}); got {sorted(group)}")
        return [{layer: exits[layer] for layer in layers if layer in group} for group in groups]

    def _loss(
        self, masking: Masking, turns: list[Exits], model: AdaptiveModel, batch: Batch, progress: Progress
    ) -> Tensor:
        exits = turns[progress.step % len(turns)]
        shown, chosen = masking.draw(batch)
        balance = Equilibrium(set(exits.values())) if self.equilibrium else None
        trace, states = _run(model, {**batch, "input_ids": shown}, balance)
        words, losses = batch["input_ids"][chosen], []
        for layer, run in exits.items():
            loss = word_loss(model, layer, states[run][chosen], words)
            if self.sop:
                loss = loss + self.sop * self.task_loss(model, trace.logits[layer], batch)
            losses.append(loss)
        return torch.stack(losses).sum()


def word_loss(model: AdaptiveModel, layer: int, hidden: Tensor, words: Tensor) -> Tensor:
    """The mean cross entropy of the words at hidden positions, as the head after a layer guesses them."""
    head: Any = model.heads[str(layer)]
    guess = head.words(model.walk.finish(hidden), _embeddings(model))  # [positions, vocabulary]
    return F.cross_entropy(guess.float(), words, reduction="sum") / max(len(words), 1)


@torch.no_grad()
def exit_losses(
    model: AdaptiveModel,
    rows: Sequence[Encoded],
    batch_size: int = 64,
    seed: int = 0,
    method: ElasticPretrain | None = None,
) -> dict[int, dict[str, float]]:
    """The loss of hidden words (the same ones at every call) and the accuracy of the label, by layers run."""
    if not len(rows):
        raise BadInput("there are no rows to evaluate on")
    exits, masking = _exits(model), (method or ElasticPretrain())._masking(model)
    loss, right, hidden = dict.fromkeys(exits, 0.0), dict.fromkeys(exits, 0.0), 0
    for start in range(0, len(rows), batch_size):
        indexes = range(start, min(start + batch_size, len(rows)))
        batch = collate([rows[index] for index in indexes], model.tokenizer.pad_token_id)
        with torch.random.fork_rng(devices=[]):  # drawn on the CPU, so that every device hides the same words
            torch.manual_seed(seed + start)
            shown, chosen = masking.draw(batch)
        words = batch["input_ids"][chosen].to(model.device)
        batch = {name: value.to(model.device) for name, value in {**batch, "input_ids": shown}.items()}
        with evaluating(model):
            trace, states = _run(model, batch, None)
            for layer, run in exits.items():
                guessed = word_loss(model, layer, states[run][chosen.to(model.device)], words)
                loss[layer] += guessed.item() * len(words)
                right[layer] += (trace.logits[layer].argmax(-1) == batch["labels"]).sum().item()
        hidden += len(words)
    return {
        run: {"mlm": loss[layer] / max(hidden, 1), "sop_accuracy": right[layer] / len(rows)}
        for layer, run in exits.items()
    }


def _run(model: AdaptiveModel, batch: Batch, balance: Observer | None) -> tuple[Trace, dict[int, Tensor]]:
    """The outputs of all heads, and the hidden states they saw, by step."""
    seen = _Seen(balance or Observer())
    return model.trace(batch, observer=seen), seen.hidden


class _Seen(Observer):
    """Keeps what the heads see of another observer's states."""

    def __init__(self, inner: Observer):
        self.inner = inner
        self.hidden: dict[int, Tensor] = {}

    def before(self, state: State, step: Step) -> State:
        return self.inner.before(state, step)

    def after(self, state: State, step: Step) -> State:
        state = self.inner.after(state, step)
        self.hidden[step.number] = state.hidden
        return state


def _exits(model: AdaptiveModel) -> Exits:
    return {layer: run for run, layer in enumerate(model.depth, 1) if layer in model.head_layers}


def _embeddings(model: AdaptiveModel) -> Tensor:
    return model.stock.get_input_embeddings().weight
