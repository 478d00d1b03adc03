"""One phase of training, as a value: what is learnt, from which loss, by which parameters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from torch import Tensor

if TYPE_CHECKING:
    from paredown.model import AdaptiveModel
    from paredown.plan import Plan

Batch = dict[str, Tensor]
MOST_EPOCHS = 20  # more passes over few rows than this teach them by heart


@dataclass(frozen=True)
class Progress:
    step: int  # optimizer steps done in this stage
    steps: int  # in all
    draw: int = 0  # a random number: another at every step, the same in every process and piece of the batch

    @property
    def share(self) -> float:
        return self.step / max(self.steps, 1)


@dataclass(frozen=True)
class Stage:
    name: str
    loss: Callable[[AdaptiveModel, Batch, Progress], Tensor]  # a mean over the batch's rows (or labelled tokens)
    trains: Callable[[str], bool]  # by parameter name; everything else is truly frozen
    epochs: float
    lr: float
    batch_size: int = 32  # rows per optimizer step, over all processes
    warmup: float = 0.1  # share of the steps with rising learning rate; then linear decay to 0
    weight_decay: float = 0.01  # not on biases and norms
    clip: float | None = 1.0  # gradient norm over the trained parameters
    adam_eps: float = 1e-8
    judged_by: Literal["final", "exits", "all"] = "final"  # whose mean dev metric chooses the best checkpoint
    unlabelled: bool = False  # True: the loss needs no labels, so extra text without labels may join
    depth: tuple[int, ...] | None = None  # the layers that learn and are judged on dev rows; None: those of the plan
    keeps_last: bool = False  # True: the last weights stay; earlier ones may score better, but are not done
    reduce: Any = None  # the reducer that dev rows are judged with; None: the plan's
    rate: Callable[[str], float] | None = None  # by parameter name: how many times `lr`; None: all alike
    begin: Callable[[AdaptiveModel], None] | None = None  # done once before the first step
    least_steps: int = 0  # trains for so many steps where `epochs` are fewer, but for no more than MOST_EPOCHS epochs
    patience: int | None = None  # so many dev evaluations in a row without a new best end its second half; None: never
    repeats: int = 0  # steps after which the loss does the same work again, whatever a batch holds; 0: never
    scales_lr: bool = False  # True: another batch size than `batch_size` changes `lr` by the root of their ratio


class Method(Protocol):
    """How to train for adaptivity: a frozen dataclass of hyper-parameters."""

    @property
    def max_drop(self) -> float | None:
        """The share of the dev score that an exit rule chosen after training may cost; None: `plan` names the rule."""

    def check(self, model: AdaptiveModel) -> None:
        """Raise BadSetting where the method cannot train this model."""

    def grow(self, model: AdaptiveModel) -> None:
        """Add the parameters it needs; idempotent."""

    def stages(self, model: AdaptiveModel) -> list[Stage]: ...

    def plan(self, model: AdaptiveModel) -> Plan:
        """How the trained model is meant to be used."""


def everything(name: str) -> bool:
    return True
