"""Runner: executes the segments of one route on a backend, and lets the units that have their answer go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor

from paredown.engine import Answering, Verdict, run_steps
from paredown.runtime.segments import Segment, segments
from paredown.state import Answer

if TYPE_CHECKING:
    from paredown.network import Network
    from paredown.route import Route


class Runner:
    def __init__(self, network: Network, route: Route):
        self.network, self.route = network, route
        self.segments = segments(route)
        self.backend: Any = network.backend
        self.parameter = next(network.parameters())  # it moves with the model
        self.generation = self._generation
        self.graphs: Any = self._graphs() if self.parameter.is_cuda else None

    def _graphs(self) -> Any:
        from paredown.runtime.capture import Cuda
        from paredown.runtime.graphs import Graphs

        graphs = Graphs(self.network, self.route, self.segments, Cuda())
        return graphs if graphs.able else None

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

    def ask(self, segment: Segment, state: Any, answering: Answering) -> Verdict:
        """Run a segment; nothing waits for the device."""
        return answering.ask(run_steps(self.backend, segment.steps, state), segment.asked)

    def answer(self, batch: dict[str, Tensor], bounds: Tensor | None = None) -> Answer:
        """Answer a batch at once."""
        if self.graphs is not None and (packed := self.backend.packed(batch)) is not None:
            return self.graphs.answer(packed, bounds) or self._shrinking(packed, bounds)
        state, answering = self.embed(batch, bounds), Answering(self.network, self.route)
        run_steps(self.backend, self.route.steps, state, answering)
        return answering.answer()

    def _shrinking(self, batch: dict[str, Tensor], bounds: Tensor | None) -> Answer:
        """Answer a batch that is large at first."""
        state, answering = self.embed(batch, bounds), Answering(self.network, self.route)
        for segment in self.segments:
            if self.graphs.finish(segment.index, state, answering):
                break
            state = answering.part(self.ask(segment, state, answering))
            if not len(state):
                break
        return answering.answer()
