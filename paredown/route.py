"""Route: a plan made ready for one network. Checked once, every step resolved."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from paredown.errors import BadPlan
from paredown.plan import Plan

if TYPE_CHECKING:
    from paredown.network import Network


@dataclass(frozen=True, eq=False)
class Step:
    """One layer on the way, and what happens before and after it."""

    number: int  # from 1
    layer: int
    last: bool = False
    head: Any = None  # answers after the layer; None: nothing does, at the end the model's own classifier
    asked: bool = False  # whether rows may leave after it; the end, where they must, included
    reducer: Any = None  # drops tokens before the layer
    selector: Any = None  # from hidden states to the logits of keeping tokens; None: the attention received before
    watch: bool = False  # the attention in this layer is noted, for the reducer of the next one
    reads_first: bool = False  # rows leave or stay by their first token: those who leave need no others


@dataclass(frozen=True, eq=False)
class Route:
    plan: Plan
    steps: tuple[Step, ...]

    @property
    def drops_tokens(self) -> bool:
        return self.plan.reduce is not None

    @cached_property
    def bounds(self) -> tuple[float, ...]:
        """The certainty above which a row leaves, after each step: infinite where none may."""
        rule, asked = self.plan.exit, {step.number for step in self.steps if step.asked and not step.last}
        known = dict(zip(sorted(asked), rule.bounds(sorted(asked)), strict=True)) if asked else {}
        return tuple(known.get(step.number, float("inf")) for step in self.steps)

    @cached_property
    def key(self) -> Hashable:
        """The same for routes that differ in their bounds alone, so that their rows may share a batch."""
        plan = self.plan
        return plan.depth, plan.reduce, None if plan.exit is None else plan.exit.certainty_key


def row_bounds(routes: Sequence[Route], device: torch.device) -> Tensor:
    """[rows, steps] the bounds of rows that have a route each."""
    index = {route: number for number, route in enumerate(dict.fromkeys(routes))}
    table = torch.tensor([route.bounds for route in index], device=device)
    if len(index) == 1:
        return table.expand(len(routes), -1)
    return table[torch.tensor([index[route] for route in routes], device=device)]


def straight(layers: Iterable[int], watch: bool = False) -> tuple[Step, ...]:
    """Layers one after the other, and nothing between them."""
    return tuple(Step(number, layer, watch=watch) for number, layer in enumerate(layers, 1))


def make_route(plan: Plan, network: Network) -> Route:
    """The steps of a plan; BadPlan where it does not fit the network. Use `network.route`, which keeps them."""
    depth = network.depth_of(plan)
    if unknown := [layer for layer in depth if layer >= network.layers]:
        raise BadPlan(f"the plan runs layer {unknown[0]}, but this model has layers 0 to {network.layers - 1}")
    chosen: tuple[int, ...] = ()
    if plan.reduce is not None:
        if not network.walk.drops_tokens:
            family = network.walk.family
            raise BadPlan(f"{family}: its layers tie tokens to their positions, so none can be dropped; plan without")
        plan.reduce.check(network, depth)
        chosen = plan.reduce.layers_of(network, depth)
    reads_attention = plan.reduce is not None and plan.reduce.reads_attention
    steps = []
    for number, layer in enumerate(depth, 1):
        last, head = number == len(depth), network.head_after(layer)
        reduces = layer in chosen
        selects = reduces and not reads_attention and network.selects_before(layer)
        asks = last or (plan.exit is not None and head is not None)
        steps.append(
            Step(
                number,
                layer,
                last,
                head,
                asked=asks,
                reducer=plan.reduce if reduces else None,
                selector=partial(network.keep_logits, layer) if selects else None,
                watch=reads_attention and not last and depth[number] in chosen,
                reads_first=asks and plan.reduce is None and network.reads_first(head),
            )
        )
    if plan.exit is not None:
        asked = tuple(step.number for step in steps if step.asked and not step.last)
        if not asked:
            raise BadPlan("the plan has an exit rule, but no layer on its way has a head; train exits first")
        plan.exit.check(network.kind, asked, network.error_probability is not None)
    return Route(plan, tuple(steps))
