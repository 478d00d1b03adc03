"""One stage at work: optimizer, micro-batches, and a step that either happens whole or not at all."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from paredown.answers import Encoded
from paredown.encoders.dtype import non_finite
from paredown.errors import BadSetting, NonFiniteLoss, NonFiniteWeights, OutOfMemory
from paredown.methods._stage import Progress, Stage
from paredown.model import AdaptiveModel
from paredown.system.memory import is_out_of_memory
from paredown.training.batches import Batches, cut
from paredown.training.compiling import CompiledLayers
from paredown.training.cpu import CpuTraining
from paredown.training.feed import Feed
from paredown.training.graphs import StepGraphs, fits
from paredown.training.guard import freeze, seed_everything, seed_from
from paredown.training.halves import Halves
from paredown.training.processes import Processes

DTYPES = {"no": None, "bf16": torch.bfloat16, "fp16": torch.float16}
SMALLEST_SCALE = 1.0  # an fp16 loss that must be scaled below this does not converge


@dataclass
class Taken:
    """A step, with what is checked of it; on a GPU these are still being computed."""

    number: int
    rows: list[int]
    loss: Tensor | float
    norm: Tensor  # of the gradients
    sound: Tensor | None = None  # whether the weights and the optimizer's memory are finite after it


class Learner:
    """`read_every` above 1: steps do not wait to hear how the one before went. The device itself refuses every update
    from the first that is not finite on, so weights stay as they were before it until `losses` finds it."""

    def __init__(
        self,
        model: AdaptiveModel,
        stage: Stage,
        rows: Sequence[Encoded],
        batches: Batches,
        processes: Processes,
        *,
        micro_batch: int | None = None,
        precision: str = "no",
        width_multiple: int = 1,
        read_every: int = 1,
        graphs: bool = False,
        compile: bool = False,
    ):
        self.model, self.stage, self.rows, self.batches, self.processes = model, stage, rows, batches, processes
        self.steps = batches.steps(stage.epochs, stage.least_steps)
        self.trained = freeze(model, stage)
        if not self.trained:
            raise BadSetting(f"stage {stage.name} trains no parameter of this model")
        self.micro_batch = min(micro_batch or batches.size, math.ceil(batches.size / processes.count))
        self.dtype = DTYPES[precision]
        self.feed = Feed(rows, model.tokenizer.pad_token_id, processes.device, width_multiple)
        self._peak = stage.lr * (batches.size / stage.batch_size) ** 0.5 if stage.scales_lr else stage.lr
        self.scaler = torch.amp.GradScaler(processes.device.type, enabled=precision == "fp16")
        # Processes must agree at every step, and so must a scaled loss and its scale.
        waits = processes.count > 1 or self.scaler.is_enabled()
        self.read_every = 1 if waits else read_every
        self.refused = torch.zeros((), dtype=torch.bool, device=processes.device) if self.read_every > 1 else None
        self.optimizer = self._adamw()
        self._unread: list[Taken] = []
        self.ways: AbstractContextManager = nullcontext()  # how losses are computed
        if compile:
            self.ways = CompiledLayers(model.walk.layers)
        elif processes.device.type == "cpu" and not getattr(model.stock, "is_gradient_checkpointing", False):
            self.ways = CpuTraining()  # layers that run again on the way back would do so without it
        self.graphs: StepGraphs | None = None
        if graphs and not waits and fits(model, stage):
            halves = None if self.dtype is None else Halves(model, self.dtype)
            self.graphs = StepGraphs(self.trained.values(), self._loss, processes.device, halves)

    def _adamw(self) -> torch.optim.AdamW:
        groups: dict[tuple[float, float], list[torch.nn.Parameter]] = {}
        for name, value in self.trained.items():
            decay = self.stage.weight_decay if value.ndim >= 2 else 0.0
            rate = 1.0 if self.stage.rate is None else self.stage.rate(name)
            groups.setdefault((decay, rate), []).append(value)
        made = [{"params": its, "weight_decay": decay, "rate": rate} for (decay, rate), its in groups.items()]
        return torch.optim.AdamW(made, lr=self.stage.lr, eps=self.stage.adam_eps, fused=True)

    def lr(self, step: int) -> float:
        """Rises linearly over the warm-up, then falls linearly to 0."""
        warm = self.stage.warmup * self.steps
        share = min((step + 1) / warm, 1.0) if step < warm else (self.steps - step) / (self.steps - warm)
        return self._peak * share

    def step(self, number: int) -> None:
        """One optimizer step on one batch, in as many pieces as memory asks for; `losses` tells how it went."""
        indexes = self.batches.at(number)
        loss = self._gradients(indexes, number)
        self.scaler.unscale_(self.optimizer)
        limit = math.inf if self.stage.clip is None else self.stage.clip
        norm = torch.nn.utils.clip_grad_norm_(self.trained.values(), limit)
        taken = Taken(number, indexes, loss, norm)
        for group in self.optimizer.param_groups:
            group["lr"] = self.lr(number) * group["rate"]
        if self.refused is None:
            self._check_gradients(taken)
        else:
            self.refused |= ~torch.as_tensor(loss).isfinite() | ~norm.isfinite()
            self.optimizer.found_inf = self.refused.float()  # type: ignore[attr-defined]
        self.scaler.step(self.optimizer)
        self.scaler.update()
        taken.sound = self._sound()
        self._unread.append(taken)

    def losses(self) -> list[float]:
        """The losses of the steps since the last call; raises for the first that was not finite."""
        taken, self._unread = self._unread, []
        for each in taken:
            if self.refused is not None:  # else it was checked before the update
                self._check_gradients(each)
            self._check_weights(each)
        return [float(each.loss) for each in taken]

    def _gradients(self, indexes: list[int], number: int) -> Tensor | float:
        """The gradients of the whole batch over all processes. Out of memory: smaller pieces, the same random draws."""
        while True:
            self._seed(number)
            self._forget_gradients()
            loss = self._accumulate(indexes, number)
            total, failed = self.processes.sums(0.0 if loss is None else loss, loss is None)
            if not failed:
                self.processes.sum_gradients(list(self.trained.values()))
                return total
            self._shrink(indexes)

    def _forget_gradients(self) -> None:
        self.optimizer.zero_grad()
        if self.graphs is not None:
            self.graphs.reset()

    def _accumulate(self, indexes: list[int], number: int) -> Tensor | None:
        """This process's share of the loss and its gradients; None when memory runs out."""
        whole = self.model.kind.loss_weight(self.rows, indexes) or 1
        total = torch.zeros((), device=self.processes.device)
        try:
            for piece in cut(indexes[self.processes.rank :: self.processes.count], self.micro_batch):
                total += self._learn(piece, self.model.kind.loss_weight(self.rows, piece) / whole, number)
            return total
        except RuntimeError as error:  # torch.OutOfMemoryError is one; some backends raise the plain kind
            if not is_out_of_memory(error):
                raise
        return None

    def _learn(self, piece: list[int], share: float, number: int) -> Tensor:
        """The loss of a piece of a batch, its gradients added."""
        batch = self.feed.batch(piece)
        if self.graphs is not None and len(piece) == self.micro_batch:  # smaller ones are rare
            loss = self.graphs.run(batch, share, number, number % self.stage.repeats)
            if loss is not None:
                return loss
        loss = self._loss(batch, number) * share
        self.scaler.scale(loss).backward()
        return loss.detach()

    def _loss(self, batch: dict[str, Tensor], number: int) -> Tensor:
        with self._autocast(), self.ways:
            progress = Progress(number, self.steps, seed_from(*self.batches.seed, number))
            return self.stage.loss(self.model, batch, progress).float()

    def _autocast(self) -> AbstractContextManager:
        return torch.autocast(self.processes.device.type, dtype=self.dtype, enabled=self.dtype is not None)

    def _seed(self, number: int) -> None:
        seed_everything(*self.batches.seed, number, self.processes.rank)

    def _shrink(self, indexes: list[int]) -> None:
        self.optimizer.zero_grad()
        if self.graphs is not None:
            self.graphs.clear()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        used = min(self.micro_batch, math.ceil(len(indexes) / self.processes.count))
        if used == 1:
            longest = max(len(self.rows[index]) for index in indexes)
            raise OutOfMemory(
                f"stage {self.stage.name}: not even one row fits into memory (the longest of this batch has {longest} "
                "tokens); a smaller max_length, precision='bf16' or a smaller encoder would help"
            )
        self.micro_batch = (used + 1) // 2

    def _check_gradients(self, taken: Taken) -> None:
        """Stop before a NaN reaches a weight. A scaled fp16 gradient may overflow: then the scaler skips the step."""
        loss, norm, indexes, number = float(taken.loss), float(taken.norm), taken.rows, taken.number
        scaling = self.scaler.is_enabled() and self.scaler.get_scale() > SMALLEST_SCALE
        if math.isfinite(loss) and (math.isfinite(norm) or scaling):
            return
        bad = [index for index in indexes if not self._is_finite(index, number)]
        what = f"the loss is {loss}" if not math.isfinite(loss) else f"the gradient norm is {norm}"
        rows = f"rows {bad} of the data give it" if bad else f"no row gives it alone; the batch is rows {indexes}"
        broken = non_finite(dict(self.model.named_parameters()))
        cause = f"; {broken}" if broken else ""
        raise NonFiniteLoss(f"{self._at(number)}: {what}; {rows}{cause}. The last checkpoint is intact")

    @torch.no_grad()
    def _sound(self) -> Tensor:
        """Whether the weights and the optimizer's memory are finite; updates that do not wait are refused from then on
        where they are not."""
        moments = [value for its in self.optimizer.state.values() for what, value in its.items() if what != "step"]
        values = [*self.trained.values(), *moments]
        if self.refused is None:
            return torch.nn.utils.get_total_norm(values).isfinite()
        # A norm may overflow, and one that cannot is a kernel for every tensor; this one looks at all of them at once,
        # and multiplies by 1.
        found, one = (torch.full((), value, device=self.processes.device) for value in (0.0, 1.0))
        torch._amp_foreach_non_finite_check_and_unscale_(values, found, one)
        self.refused |= found.bool()
        return found == 0

    def _check_weights(self, taken: Taken) -> None:
        """Stop at the step that spoilt a weight or the optimizer's memory, before anybody reads or saves them."""
        if taken.sound is None or bool(taken.sound):
            return
        if broken := non_finite({**self.trained, **self.state()}):
            raise NonFiniteWeights(f"{self._at(taken.number)}: after the step {broken}. The last checkpoint is intact")

    def _at(self, number: int) -> str:
        return f"stage {self.stage.name}, step {number + 1} of {self.steps}"

    @torch.no_grad()
    def _is_finite(self, index: int, number: int) -> bool:
        self._seed(number)
        return math.isfinite(self._loss(self.feed.batch([index]), number).item())

    def state(self) -> dict[str, Tensor]:
        """The optimizer's memory, by parameter name."""
        memory = self.optimizer.state
        return {
            f"{what}:{name}": value
            for name, parameter in self.trained.items()
            for what, value in memory.get(parameter, {}).items()
        }

    def restore(self, saved: dict[str, Tensor]) -> None:
        for key, value in saved.items():
            what, _, name = key.partition(":")
            self.optimizer.state[self.trained[name]][what] = value.to(self.processes.device)
