"""Dev rows: what a model scores on them while it trains, and what it is worth in the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from paredown.answers import Encoded
from paredown.encoders.probing import evaluating
from paredown.engine import Backend
from paredown.errors import BadSetting
from paredown.evaluation.choosing import suspicion
from paredown.evaluation.metrics import Metric
from paredown.evaluation.record import record
from paredown.methods._stage import Stage
from paredown.model import AdaptiveModel
from paredown.plan import Plan
from paredown.system.memory import is_out_of_memory
from paredown.training.outcome import Outcome, conclude

Found = TypeVar("Found")


class DevRows:
    def __init__(self, model: AdaptiveModel, rows: Sequence[Encoded], metric: Metric, batch_size: int):
        self.model, self.rows, self.metric = model, rows, metric
        self.batch_size = batch_size  # halved where memory does not suffice
        self.backend = backend_for(model)

    def scores(self, stage: Stage) -> tuple[dict[int, float], str | None]:
        """The metric at every exit; and why it looks as if nothing had been learnt, if it does."""
        plan = Plan(stage.depth or self.model.depth, reduce=stage.reduce or self.model.plan.reduce)
        seen = self._tried(lambda: record(self.model, self.rows, self.batch_size, plan, hashed=False))
        return seen.scores(self.metric), suspicion(seen, self.metric)

    def conclude(self, max_drop: float | None) -> Outcome:
        return self._tried(lambda: conclude(self.model, self.rows, self.metric, max_drop, self.batch_size))

    def _tried(self, work: Callable[[], Found]) -> Found:
        """What is found with as many rows at once as fit."""
        while True:
            try:
                with evaluating(self.model), running(self.model, self.backend):
                    return work()
            except RuntimeError as error:
                if not is_out_of_memory(error) or self.batch_size == 1:
                    raise
            self.batch_size //= 2


def backend_for(model: AdaptiveModel) -> Backend:
    """The packed backend where the encoder has one, unless another was put in place."""
    if model.backend is not model.walk:
        return model.backend
    from paredown.runtime.packed import Packed

    try:
        return Packed(model.walk)
    except BadSetting:
        return model.backend


@contextmanager
def running(model: AdaptiveModel, backend: Backend) -> Iterator[None]:
    """Another backend for a moment."""
    before, model.backend = model.backend, backend
    try:
        yield
    finally:
        model.backend = before
