"""Watching an encoder read some texts, to learn what the inputs of its linear maps lie in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from paredown.answers import Encoded, collate, flat
from paredown.encoders.probing import evaluating
from paredown.engine import run_steps
from paredown.errors import BadSetting
from paredown.ranges import Inputs, Ranges
from paredown.route import straight
from paredown.runtime.blocks import BLOCKS, Block, Dense
from paredown.runtime.packed import Packed
from paredown.runtime.parts import Map

if TYPE_CHECKING:
    from paredown.encoders.walk import Walk
    from paredown.model import AdaptiveModel

TOKENS = 8192  # that ranges are learned from
ROWS = 16  # of one batch


def ranges_in(walk: Walk, batches: Iterable[dict[str, Tensor]], depth: Sequence[int] = ()) -> Ranges:
    """By batches of texts on their way through all of the encoder's layers in 32 bits, and through those of
    `depth`."""
    watching, whole = _Watching(walk), tuple(range(walk.num_base_layers))
    with evaluating(walk.stock), torch.no_grad():
        for batch in batches:
            for layers in {whole, tuple(depth) or whole}:
                run_steps(watching, straight(layers), watching.embed(batch))
    if not watching.seen:
        raise BadSetting("ranges need texts to be seen in, and there were none")
    if not all(value.isfinite().all() for maps in watching.seen.values() for pair in maps.values() for value in pair):
        raise BadSetting("layers of this model meet NaN or infinity, which have no range")
    return Ranges(
        {
            layer: {name: _inputs(name, *extremes) for name, extremes in maps.items()}
            for layer, maps in watching.seen.items()
        }
    )


def _inputs(name: str, low: Tensor, high: Tensor) -> Inputs:
    return Inputs.inner(low, high) if name == "down" else Inputs.between(low, high)


def learn_ranges(model: AdaptiveModel, rows: Iterable[Encoded]) -> Ranges | None:
    """As the first of these rows show them; None where layers cannot be run in eight bits."""
    if model.walk.family not in BLOCKS or model.dtype != torch.float32:
        return None
    try:
        return ranges_in(model.walk, _first(model, rows), model.depth)
    except BadSetting:  # layers unlike those of its family
        return None


def _first(model: AdaptiveModel, rows: Iterable[Encoded]) -> Iterator[dict[str, Tensor]]:
    """Batches of them, until they have tokens enough."""
    left, rows = TOKENS, iter(rows)
    while left > 0 and (some := list(islice(rows, ROWS))):
        left -= sum(len(row) for row in flat(some))
        yield collate(some, model.tokenizer.pad_token_id, model.device)


class _Watching(Packed):
    """Notes the least and the greatest input of every channel."""

    def __init__(self, walk: Walk):
        self.seen: dict[int, dict[str, tuple[Tensor, Tensor]]] = {}
        super().__init__(walk)
        self.seen.clear()  # of the sample that it was compared on

    def _fitted(self, block: Block, layer: int) -> Block:
        return block.with_maps({name: self._noted(dense, layer, name) for name, dense in block.maps.items()})

    def _noted(self, dense: Dense, layer: int, name: str) -> Map:
        def apply(hidden: Tensor) -> Tensor:
            maps = self.seen.setdefault(layer, {})
            low, high = hidden.amin(0), hidden.amax(0)
            known = maps.get(name, (low, high))
            maps[name] = torch.minimum(low, known[0]), torch.maximum(high, known[1])
            return dense(hidden)

        return apply
