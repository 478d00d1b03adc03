"""One stage at work: optimizer, micro-batches, and a step that either happens whole or not at all."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager

import torch
from torch import Tensor

from paredown.answers import Encoded, collate
from paredown.encoders.dtype import non_finite
from paredown.errors import BadSetting, NonFiniteLoss, NonFiniteWeights, OutOfMemory
from paredown.methods._stage import Progress, Stage
from paredown.model import AdaptiveModel
from paredown.system.memory import is_out_of_memory
from paredown.training.batches import Batches, cut
from paredown.training.guard import freeze, seed_everything, seed_from
from paredown.training.processes import Processes

DTYPES = {"no": None, "bf16": torch.bfloat16, "fp16": torch.float16}
SMALLEST_SCALE = 1.0  # an fp16 loss that must be scaled below this does not converge


class Learner:
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
    ):
        self.model, self.stage, self.rows, self.batches, self.processes = model, stage, rows, batches, processes
        self.steps = batches.steps(stage.epochs, stage.least_steps)
        self.trained = freeze(model, stage)
        if not self.trained:
            raise BadSetting(f"stage {stage.name} trains no parameter of this model")
        self.micro_batch = min(micro_batch or batches.size, math.ceil(batches.size / processes.count))
        self.dtype, self.width_multiple = DTYPES[precision], width_multiple
        self._peak = stage.lr * (batches.size / stage.batch_size) ** 0.5 if stage.scales_lr else stage.lr
        self.fused = processes.device.type == "cuda"
        self.optimizer = self._adamw()
        self.scaler = torch.amp.GradScaler(processes.device.type, enabled=precision == "fp16")

    def _adamw(self) -> torch.optim.AdamW:
        groups: dict[tuple[float, float], list[torch.nn.Parameter]] = {}
        for name, value in self.trained.items():
            decay = self.stage.weight_decay if value.ndim >= 2 else 0.0
            rate = 1.0 if self.stage.rate is None else self.stage.rate(name)
            groups.setdefault((decay, rate), []).append(value)
        made = [{"params": its, "weight_decay": decay, "rate": rate} for (decay, rate), its in groups.items()]
        return torch.optim.AdamW(made, lr=self.stage.lr, eps=self.stage.adam_eps, fused=self.fused)

    def lr(self, step: int) -> float:
        """Rises linearly over the warm-up, then falls linearly to 0."""
        warm = self.stage.warmup * self.steps
        share = min((step + 1) / warm, 1.0) if step < warm else (self.steps - step) / (self.steps - warm)
        return self._peak * share

    def step(self, number: int) -> float:
        """One optimizer step on one batch, in as many pieces as memory asks for; returns the loss of the batch."""
        indexes = self.batches.at(number)
        loss = self._gradients(indexes, number)
        self.scaler.unscale_(self.optimizer)
        limit = math.inf if self.stage.clip is None else self.stage.clip
        norm = torch.nn.utils.clip_grad_norm_(self.trained.values(), limit).item()
        self._check(loss, norm, indexes, number)
        for group in self.optimizer.param_groups:
            group["lr"] = self.lr(number) * group["rate"]
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self._check_weights(number)
        return loss

    def _gradients(self, indexes: list[int], number: int) -> float:
        """The gradients of the whole batch over all processes. Out of memory: smaller pieces, the same random draws."""
        while True:
            self._seed(number)
            self.optimizer.zero_grad()
            loss = self._accumulate(indexes, number)
            total, failed = self.processes.sums(0.0 if loss is None else loss, loss is None)
            if not failed:
                self.processes.sum_gradients(list(self.trained.values()))
                return total
            self._shrink(indexes)

    def _accumulate(self, indexes: list[int], number: int) -> float | None:
        """This process's share of the loss and its gradients; None when memory runs out."""
        whole = self.model.kind.loss_weight(self.rows, indexes) or 1
        total = torch.zeros((), device=self.processes.device)
        try:
            for piece in cut(indexes[self.processes.rank :: self.processes.count], self.micro_batch):
                share = self.model.kind.loss_weight(self.rows, piece) / whole
                loss = self._loss(piece, number) * share
                self.scaler.scale(loss).backward()
                total += loss.detach()
            return total.item()
        except RuntimeError as error:  # torch.OutOfMemoryError is one; some backends raise the plain kind
            if not is_out_of_memory(error):
                raise
        return None

    def _loss(self, piece: list[int], number: int) -> Tensor:
        rows = [self.rows[index] for index in piece]
        batch = collate(rows, self.model.tokenizer.pad_token_id, self.processes.device, self.width_multiple)
        with self._autocast():
            progress = Progress(number, self.steps, seed_from(*self.batches.seed, number))
            return self.stage.loss(self.model, batch, progress).float()

    def _autocast(self) -> AbstractContextManager:
        return torch.autocast(self.processes.device.type, dtype=self.dtype, enabled=self.dtype is not None)

    def _seed(self, number: int) -> None:
        seed_everything(*self.batches.seed, number, self.processes.rank)

    def _shrink(self, indexes: list[int]) -> None:
        self.optimizer.zero_grad()
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

    def _check(self, loss: float, norm: float, indexes: list[int], number: int) -> None:
        """Stop before a NaN reaches a weight. A scaled fp16 gradient may overflow: then the scaler skips the step."""
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
    def _check_weights(self, number: int) -> None:
        """Stop at the step that spoilt a weight or the optimizer's memory, before anybody reads or saves them."""
        moments = [value for its in self.optimizer.state.values() for what, value in its.items() if what != "step"]
        norm = torch.nn.utils.get_total_norm([*self.trained.values(), *moments]).item()  # one wait for all
        if math.isfinite(norm):
            return
        if broken := non_finite({**self.trained, **self.state()}):
            raise NonFiniteWeights(f"{self._at(number)}: after the step {broken}. The last checkpoint is intact")

    def _at(self, number: int) -> str:
        return f"stage {self.stage.name}, step {number + 1} of {self.steps}"

    @torch.no_grad()
    def _is_finite(self, index: int, number: int) -> bool:
        self._seed(number)
        return math.isfinite(self._loss([index], number).item())

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
            # Only the fused optimizer keeps its step count on the device.
            device = self.processes.device if what != "step" or self.fused else "cpu"
            self.optimizer.state[self.trained[name]][what] = value.to(device)
