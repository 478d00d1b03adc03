"""Executor: answers batches and streams of rows of one model, by any of its routes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from paredown.route import Route
from paredown.runtime.job import Job
from paredown.runtime.runner import Runner
from paredown.runtime.stream import Stream
from paredown.state import Answer

if TYPE_CHECKING:
    from paredown.answers import Kind, Prediction
    from paredown.model import AdaptiveModel
    from paredown.plan import Plan

MOST_RUNNERS = 32  # that are kept; on a GPU each has graphs
ROWS = 32  # of a padded batch, where nobody says
# Tokens that make a packed batch worth running: from here on a layer and its head take about as long for each.
CPU_TOKENS, GPU_TOKENS = 2048, 200_000
GPU_SHARE = 0.25  # of its memory, for the widest states of a batch


class Executor:
    def __init__(self, model: AdaptiveModel, name: str, packed: bool = False, exact: bool = True):
        self.model, self.name, self.packed = model, name, packed
        self.exact = exact  # whether answers are the encoder's own, up to rounding
        self.reason = ""  # why it is not a faster one
        self._runners: dict[Route, Runner] = {}

    def runner(self, route: Route) -> Runner:
        runner = self._runners.get(route)
        if runner is None or runner.stale:
            if len(self._runners) >= MOST_RUNNERS:
                self._runners.clear()
            self._runners[route] = runner = Runner(self.model, route)
        return runner

    def answer(self, route: Route, batch: dict[str, Tensor], bounds: Tensor | None = None) -> Answer:
        return self.runner(route).answer(batch, bounds)

    def job(self, kind: Kind, units: Sequence[Any], plans: Sequence[Plan], max_length: int | None = None) -> Job:
        return Job.of(self.model, kind, units, plans, max_length)

    def predict(self, job: Job, batch_size: int | None = None) -> list[Prediction]:
        stream = self.stream(batch_size)
        stream.put(job.rows, job.routes)
        stream.finish()
        answered = stream.take()
        return [] if answered is None else job.predictions(answered)

    def stream(self, batch_size: int | None = None) -> Stream:
        """Where rows go in and answers come out. `batch_size`: no more tokens run at once than so many of the longest
        rows have; None: what suits the device."""
        if not self.packed:
            return Stream(self, batch_size or ROWS, None)
        return Stream(self, batch_size, self._tokens())

    def _tokens(self) -> int:
        device = self.model.device
        if device.type != "cuda":
            return CPU_TOKENS
        widest = 8 * self.model.walk.width * self.model.dtype.itemsize  # what a layer makes of one token
        room = torch.cuda.get_device_properties(device).total_memory * GPU_SHARE
        return min(GPU_TOKENS, int(room / widest))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_runners": {}}
