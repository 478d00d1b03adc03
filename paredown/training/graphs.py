"""Gradients as CUDA graphs: a step of a small encoder waits for thousands of launches, and a graph is one.

A graph has fixed shapes and addresses: there is one for every shape of a batch, which reads the batch from memory of
its own and adds to gradients that all graphs share. Random numbers follow the seed at the time of a replay.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from paredown.methods._stage import Stage
from paredown.model import AdaptiveModel
from paredown.system.memory import is_out_of_memory
from paredown.training.halves import Halves, widened

Batch = dict[str, Tensor]
MOST = 64  # graphs; batches of further shapes run as they are
log = logging.getLogger("paredown.training")


def fits(model: AdaptiveModel, stage: Stage) -> bool:
    """Whether the loss does the same work for every batch of a shape, and nothing on the way waits for the device."""
    return bool(stage.repeats) and not (model.kind.per_token or model.kind.grouped) and model.plan.reduce is None


@dataclass(frozen=True)
class StepGraph:
    captured: Any
    batch: Batch  # where it reads
    gradients: dict[nn.Parameter, Tensor]  # where it adds


class StepGraphs:
    """`halves`: what linear maps compute with, where that is not what is trained."""

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        loss: Callable[[Batch, int], Tensor],
        device: torch.device,
        halves: Halves | None = None,
    ):
        self.parameters, self._loss, self.device, self.halves = list(parameters), loss, device, halves
        self.half = {} if halves is None else halves.trained(self.parameters)
        self.share, self.loss = torch.zeros((), device=device), torch.zeros((), device=device)
        self.failed = False
        self.clear()

    def clear(self) -> None:
        """Give the memory back."""
        self.graphs: dict[Hashable, StepGraph] = {}
        self.gradients: dict[nn.Parameter, Tensor] = {}  # that some graph adds to
        self._pool: Any = None

    def reset(self) -> None:
        """Before a step: nothing has been added."""
        if self.gradients:
            torch._foreach_zero_(list(self.gradients.values()))

    def run(self, batch: Batch, share: float, number: int, turn: int) -> Tensor | None:
        """The loss of a batch, which counts by `share`, its gradients added; None where it cannot be a graph."""
        key = (turn, *[(name, tuple(value.shape)) for name, value in batch.items()])
        if key not in self.graphs and not self.failed and len(self.graphs) < MOST:
            self._capture(key, batch, number)
        if (graph := self.graphs.get(key)) is None:
            return None
        for name, value in batch.items():
            graph.batch[name].copy_(value)
        self.share.fill_(share)
        graph.captured.replay()
        for parameter, gradient in graph.gradients.items():
            parameter.grad = gradient
        return self.loss

    def _capture(self, key: Hashable, batch: Batch, number: int) -> None:
        with torch.random.fork_rng([self.device] if self.device.type == "cuda" else []):
            try:
                self.graphs[key] = self._captured({name: value.clone() for name, value in batch.items()}, number)
            except Exception as error:
                self._recover()
                if is_out_of_memory(error):
                    raise
                self.failed = True
                log.warning("warning: a step cannot be a CUDA graph, so it takes longer: %s", error)

    def _captured(self, batch: Batch, number: int) -> StepGraph:
        """A graph that reads this batch."""
        # An encoder leaves its mask out when it sees that nothing is padded, which it cannot see while it is captured.
        batch["attention_mask"][0, -1] = 0
        touched = {one for part in self._aside(lambda: self._differentiated(batch, number)[1]) for one in part}
        gradients = {
            one: self.gradients.setdefault(one, torch.zeros_like(one)) for one in self.parameters if one in touched
        }

        def work() -> None:
            loss, found = self._differentiated(batch, number)
            for part in found:
                if part:
                    torch._foreach_add_([gradients[one] for one in part], list(part.values()))
            self.loss.copy_(loss)

        return StepGraph(self._record(work), batch, gradients)

    def _differentiated(self, batch: Batch, number: int) -> tuple[Tensor, list[dict[nn.Parameter, Tensor]]]:
        """The loss, and the gradients there are of weights as they are read in 32 bits, and in 16."""
        if self.halves is not None:
            self.halves.refresh()
        with self.halves or nullcontext():
            loss = self._loss(batch, number) * self.share
        whole, half = self.parameters, list(self.half)
        found = torch.autograd.grad(loss, [*whole, *self.half.values()], allow_unused=True)
        own = {one: its for one, its in zip(whole, found, strict=False) if its is not None}
        cast = {one: its for one, its in zip(half, found[len(whole) :], strict=True) if its is not None}
        return loss.detach(), [own, dict(zip(cast, widened(list(cast.values())), strict=True))]

    # The device's part

    def _aside(self, work: Callable[[], Any]) -> Any:
        """Run work before it is captured: kernels are chosen and compiled then."""
        aside = torch.cuda.Stream(self.device)
        aside.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(aside):
            found = work()
        torch.cuda.current_stream(self.device).wait_stream(aside)
        return found

    def _record(self, work: Callable[[], None]) -> Any:
        self._pool = self._pool or torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            work()
        torch.cuda.empty_cache()  # what the run before it took: a graph has memory of its own
        return graph

    def _recover(self) -> None:
        """A capture that failed leaves the generator of random numbers in its state; one that succeeds ends that."""
        torch.cuda.synchronize(self.device)
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            self.loss.zero_()
