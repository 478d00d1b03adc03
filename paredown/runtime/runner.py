"""Runner: executes the segments of one route on a backend, and lets the units that have their answer go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor

from paredown.engine import Answering, Settling, run_steps
from paredown.runtime.segments import Segment, segments
from paredown.state import Answer

if TYPE_CHECKING:
    from paredown.network import Network
    from paredown.route import Route


class Runner:
    def __init__(self, network: Network, route: Route, every: int = 1):
        self.network, self.route = network, route
        self.segments = segments(route, every)
        self.settling = Settling(network, route)
        self.backend = network.backend
        self.parameter = next(network.parameters())  # it moves with the model
        self.generation = self._generation
        self.graphs: Any = None
        if self.parameter.is_cuda:
            from paredown.runtime.graphs import Graphs

            self.graphs = Graphs(network, self.settling, self.segments)

    @property
    def _generation(self) -> Any:
        return getattr(self.backend, "generation", None), self.parameter.device

    @property
    def stale(self) -> bool:
        """Whether the layers it would run are not the model's any more."""
        return self.backend is not self.network.backend or self.generation != self._generation

    def embed(self, batch: dict[str, Tensor], bounds: Tensor | None = None) -> Any:
        """A batch before its first layer. `bounds` [units, steps] gives each unit its own; default: the route's."""
        state = self.network.embed(batch, self.route.drops_tokens, backend=self.backend)
        return state if bounds is None else state.bounded(bounds)

    def run(self, segment: Segment, state: Any, answering: Answering) -> Any:
        """The units that stay after a segment."""
        if sum(step.asked for step in segment.steps) == 1:  # nobody settles before its end
            return run_steps(self.backend, segment.steps, state, answering)
        state = run_steps(self.backend, segment.steps, state, self.settling)
        return answering.cut(state, segment.last)

    def answer(self, batch: dict[str, Tensor], bounds: Tensor | None = None) -> Answer:
        """Answer a batch at once."""
        state, answering = self.embed(batch, bounds), Answering(self.network, self.route)
        if self.graphs is None and len(self.segments) == sum(step.asked for step in self.route.steps):
            run_steps(self.backend, self.route.steps, state, answering)
            return answering.answer()
        for segment in self.segments:
            if self.graphs is not None and self.graphs.fit(state):
                self.graphs.run(segment.index, state, answering)
                break
            state = self.run(segment, state, answering)
            if not len(state):
                break
        return answering.answer()
