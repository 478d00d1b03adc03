"""Plan: how to spend compute, as one value. depth x exit x reduce, three axes that know nothing of each other."""

from __future__ import annotations

import json
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from torch import Tensor

from paredown.errors import BadPlan, BadSetting, UnknownName
from paredown.registry import exits, reducers
from paredown.state import Evidence, Memory

if TYPE_CHECKING:
    from paredown.answers import Kind
    from paredown.network import Network
    from paredown.state import State


class ExitRule(Protocol):
    """When a row may leave. It sees the evidence and its own memory of each row, nothing else."""

    @property
    def certainty_key(self) -> Hashable:
        """The same for rules that have the same certainty, whatever their bounds."""

    def certainty(self, evidence: Evidence, memory: Memory) -> tuple[Tensor, Memory]:
        """[rows] how sure each row is, larger is surer (NaN: never leaves), and the memory for the next head."""

    def bounds(self, steps: Sequence[int]) -> tuple[float, ...]:
        """For each step, the number of layers run: a row leaves where its certainty is strictly above."""

    def answer(self, evidence: Evidence, memory: Memory) -> Tensor:
        """The logits a row leaves with; `memory` is as it was before this head spoke."""

    def check(self, kind: Kind, asked: tuple[int, ...], has_error_probability: bool) -> None:
        """Raise BadPlan where the rule makes no sense; `asked` are the counts of layers run when it is asked."""


class Reducer(Protocol):
    """Which tokens stay. Asked before some layers; answers one boolean per token, never one number per batch."""

    @property
    def reads_attention(self) -> bool:
        """Whether it judges tokens by the attention they received in the layer just run; else by the selectors."""

    def layers_of(self, network: Network, depth: tuple[int, ...]) -> tuple[int, ...]:
        """Numbers of the layers before which it is asked."""

    def keep(self, state: State, scores: Tensor) -> Tensor:
        """[rows, tokens] True where a token stays; `scores` [rows, tokens] are logits of keeping, or attention."""

    def check(self, network: Network, depth: tuple[int, ...]) -> None:
        """Raise BadPlan where this network cannot choose tokens so."""


def default_selecting_layers(depth: Sequence[int]) -> tuple[int, ...]:
    """The layers before which tokens are chosen by default: the second and the middle one of those that run
    (TR-BERT)."""
    return tuple(sorted({depth[min(1, len(depth) - 1)], depth[len(depth) // 2]}))


@dataclass(frozen=True)
class Plan:
    depth: tuple[int, ...] | None = None  # the layers that run, numbered from 0 as in the encoder; None: all
    exit: Any = None  # an ExitRule or its short text ("entropy:0.3"); None: every row runs to the end
    reduce: Any = None  # a Reducer or its short text; None: every token stays

    def __post_init__(self) -> None:
        if self.depth is not None:
            depth = tuple(self.depth)
            if not depth or not all(type(layer) is int and layer >= 0 for layer in depth):
                raise BadPlan(f"depth must name at least one layer, numbered from 0; got {self.depth!r}")
            if len(set(depth)) < len(depth):
                raise BadPlan(f"depth runs every layer once at most; got {list(depth)}")
            object.__setattr__(self, "depth", depth)
        for axis, catalogue in (("exit", exits), ("reduce", reducers)):
            if (value := getattr(self, axis)) is not None:
                object.__setattr__(self, axis, catalogue.of(value))

    @classmethod
    def of(cls, plan: Plan | dict[str, Any] | str | None) -> Plan:
        """A plan from itself, its JSON object, or the short text of an exit rule."""
        if plan is None:
            return cls()
        if isinstance(plan, dict):
            return cls.from_json(plan)
        return cls(exit=plan) if isinstance(plan, str) else plan

    def but(self, **axes: Any) -> Plan:
        """The same plan with some axes changed."""
        return replace(self, **axes)

    def to_json(self) -> dict[str, Any]:
        return {
            "depth": None if self.depth is None else list(self.depth),
            "exit": None if self.exit is None else exits.to_json(self.exit),
            "reduce": None if self.reduce is None else reducers.to_json(self.reduce),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any] | str) -> Plan:
        try:
            plan = json.loads(data) if isinstance(data, str) else data
        except (ValueError, RecursionError) as error:
            raise BadPlan(f"a plan must be JSON: {error}") from None
        axes = {"depth", "exit", "reduce"}
        if not isinstance(plan, dict) or not plan.keys() <= axes:
            raise BadPlan(f"a plan has the keys {', '.join(sorted(axes))} and no others; got {plan!r:.80}")
        depth = plan.get("depth")
        if depth is not None and not isinstance(depth, list):
            raise BadPlan(f"depth must be a list of layer numbers; got {depth!r:.80}")
        try:
            return cls(None if depth is None else tuple(depth), plan.get("exit"), plan.get("reduce"))
        except (BadSetting, UnknownName) as error:
            raise BadPlan(str(error)) from None

    def __str__(self) -> str:
        depth = "all layers" if self.depth is None else f"layers {','.join(map(str, self.depth))}"
        parts = [depth] + [str(axis) for axis in (self.exit, self.reduce) if axis is not None]
        return " · ".join(parts)
