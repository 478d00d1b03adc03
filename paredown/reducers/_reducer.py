"""What every reducer shares: a knob, and where on the plan's way it may choose."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from torch import Tensor

from paredown.encoders.walk import BLIND
from paredown.errors import BadPlan
from paredown.network import Network
from paredown.plan import default_selecting_layers
from paredown.registry import Knob
from paredown.state import State


class ChosenTokens(Knob, ABC):
    """Base of the reducers: a frozen dataclass of plain values. Every row is judged alone."""

    score: Any = "selector"  # what ranks the tokens; a field, like the next, where the user may say
    layers: Any = None  # before which it chooses

    @property
    def reads_attention(self) -> bool:
        return bool(self.score == "attention")

    def layers_of(self, network: Network, depth: tuple[int, ...]) -> tuple[int, ...]:
        """The layers it names, else those with selectors, else the second and the middle one of those that run."""
        if self.layers is not None:
            return self.layers
        chosen = [layer for layer in network.selector_layers if layer in depth]
        return tuple(chosen) if chosen or not self.reads_attention else default_selecting_layers(depth)

    @abstractmethod
    def keep(self, state: State, scores: Tensor) -> Tensor:
        """[rows, tokens] True where a token stays."""

    def check(self, network: Network, depth: tuple[int, ...]) -> None:
        family, chosen = network.walk.family, self.layers_of(network, depth)
        if self.layers is not None and not self.layers:
            raise BadPlan(f"{self.name}.layers must name a layer, or be none for the usual ones; it is empty")
        if foreign := [layer for layer in chosen if layer not in depth]:
            raise BadPlan(f"{self.name} chooses before layer {foreign[0]}, but the plan runs {list(depth)}")
        if not self.reads_attention:
            self._check_selectors(network, chosen)
        elif not network.walk.shows_attention:
            raise BadPlan(f"{family}: {BLIND}; train selectors and use them instead")
        elif depth[0] in chosen:
            raise BadPlan(f"{self.name} reads the attention of the layer before, and before layer {depth[0]} none runs")

    def _check_selectors(self, network: Network, chosen: tuple[int, ...]) -> None:
        untrained = "or choose by attention, which needs no training"
        if not network.selectors:
            raise BadPlan(f"{self.name} asks the model's selectors, but it has none; train some, {untrained}")
        known = f"its selectors sit before layers {list(network.selector_layers)}"
        if not chosen:
            raise BadPlan(f"{self.name}: {known}, and the plan runs none of them; run one of them, {untrained}")
        if missing := [layer for layer in chosen if layer not in network.selector_layers]:
            raise BadPlan(f"{self.name} asks a selector before layer {missing[0]}, but {known}")
