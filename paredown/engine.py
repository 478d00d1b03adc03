"""The loop over the layers, and its observers: answering, tracing, recording.

Who wants something between two layers observes the loop. A backend embeds a batch and runs one step; the engine does
not know which one it drives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import torch
from torch import Tensor

from paredown.plan import Plan
from paredown.state import Answer, Evidence, Memory, State, Tokens, joined

if TYPE_CHECKING:
    from paredown.network import Network
    from paredown.route import Route, Step

Batch = dict[str, Tensor]
S = TypeVar("S", bound=State)


class Backend(Protocol):
    """How layers are executed."""

    def embed(self, batch: Batch, joinable: bool = False, first: int = 0) -> Any:
        """The batch before its first layer. `joinable`: tokens may be dropped and states joined."""

    def run(self, state: Any, step: Step) -> Any:
        """The state after the step's layer."""


class Observer:
    """Sees the state before and after every layer; what it returns goes on."""

    drops_tokens = False  # whether `before` may drop tokens, in the place of the plan's reducer

    def before(self, state: Any, step: Step) -> Any:
        return state

    def after(self, state: Any, step: Step) -> Any:
        return state


def run_steps(backend: Backend, steps: Sequence[Step], state: S, observer: Observer | None = None) -> S:
    """Run steps until all are done or every row has left."""
    for step in steps:
        if step.reducer is not None:
            state = state.drop(kept(state, step))
        if observer is None:
            state = backend.run(state, step)
            continue
        state = observer.after(backend.run(observer.before(state, step), step), step)
        if not len(state):
            break
    return state


def kept(state: State, step: Step) -> Tensor:
    """[rows, tokens] True where the step's reducer keeps a token."""
    return step.reducer.keep(state, state.received if step.selector is None else step.selector(state.hidden))


# Answering


class Settling(Observer):
    """Units that are sure enough have their answer, with the logits that their exit rule gives them; they run
    on, and nothing waits for the device."""

    def __init__(self, network: Network, route: Route):
        self.network, self.rule, self.bounds = network, route.plan.exit, route.bounds

    def after(self, state: State, step: Step) -> State:
        if not step.asked:
            return state
        state, logits, leave = self.judged(state, step)
        found = _answers(state, step, logits)
        found["leave"] = torch.ones_like(found["layers"], dtype=torch.bool) if leave is None else leave
        return state.settling(_first_of(state.settled, found))

    def judged(self, state: State, step: Step) -> tuple[State, Tensor, Tensor | None]:
        """The state with what the rule remembers, the logits that would be the answer, and [units] who is sure enough;
        None at the end, where all must be."""
        evidence = self.network.evidence(state, step)
        logits = evidence.logits if self.rule is None else self.rule.answer(evidence, state.memory)
        if step.last:
            return state, logits, None
        certainty, memory = self.rule.certainty(evidence, state.memory)
        bounds = self.bounds[step.number - 1] if state.bounds is None else state.bounds[:, step.number - 1]
        state = state if memory is state.memory else state.remembering(memory)
        return state, logits, certainty > bounds


class Answering(Settling):
    """Units leave as soon as they have their answer."""

    def __init__(self, network: Network, route: Route):
        super().__init__(network, route)
        self.left: list[tuple[Tensor, ...]] = []  # units, logits, layers, tokens

    def after(self, state: State, step: Step) -> State:
        if not step.asked:
            return state
        state, logits, leave = self.judged(state, step)
        staying, gone = (None, None) if leave is None else state.split(leave)
        if staying is not None and gone is None:
            return state
        return self._leave(state, _answers(state, step, logits), staying, gone)

    def cut(self, state: State, everyone: bool = False) -> State:
        """Those that have settled leave the batch."""
        settled, rest = state.settled, state.settling({})
        staying, gone = (None, None) if everyone else rest.split(settled["leave"])
        if staying is not None and gone is None:
            return rest
        return self._leave(state, settled, staying, gone)

    def _leave(self, state: State, found: Memory, staying: Any, gone: Tensor | None) -> State:
        """Units by index, or all where nobody stays."""
        units = state.units
        if staying is not None and gone is not None:
            units, found = units[gone], {name: value[gone] for name, value in found.items()}
        self.left.append((units, found["logits"], found["layers"], found["tokens"]))
        return state.nobody() if staying is None else staying

    def answer(self) -> Answer:
        """The answers, in the order of the units' numbers."""
        parts = self.left[0] if len(self.left) == 1 else tuple(joined(part) for part in zip(*self.left, strict=True))
        units, *found = parts
        if len(self.left) > 1:
            order = units.argsort()
            found = [value[order] for value in found]
        return Answer(*found)


def _answers(state: State, step: Step, logits: Tensor) -> Memory:
    """What units would answer after a step, and the work done for it."""
    layers = logits.new_full((len(logits),), step.number, dtype=torch.long)
    return {"logits": logits, "layers": layers, "tokens": state.tokens_run}


def _first_of(settled: Memory, found: Memory) -> Memory:
    """What was found, but for units that have settled before."""
    if not settled:
        return found
    before = settled["leave"]

    def first(name: str) -> Tensor:
        old, new = settled[name], found[name]
        return torch.where(before.view(-1, *[1] * (new.dim() - 1)), old, new)

    return {name: before | found[name] if name == "leave" else first(name) for name in found}


# Recording


@dataclass
class Recording(Observer):
    """Nobody leaves; what every head answers is kept, and the tokens in each layer."""

    network: Network
    evidence: list[Evidence] = field(default_factory=list)
    tokens: list[Tensor] = field(default_factory=list)  # of each layer, [rows]

    def after(self, state: State, step: Step) -> State:
        self.tokens.append(state.lengths())
        if step.last or step.head is not None:
            self.evidence.append(self.network.evidence(state, step))
        return state


# Tracing


@dataclass
class Trace:
    """The logits of every head, with gradients."""

    logits: dict[int, Tensor]  # by layer number, in the order the layers ran
    error_probability: dict[int, Tensor]  # likewise, where the model estimates it
    stock: Tensor  # of the model's own classifier at the end
    answer_mask: Tensor  # [rows, tokens, …] tokens whose answer counts; of a choice [questions, options]
    last: int  # number of the last layer run

    @property
    def final(self) -> Tensor:
        """The answer at full depth: the last layer's head if it has one, else the model's own classifier."""
        return self.logits.get(self.last, self.stock)

    @property
    def exits(self) -> dict[int, Tensor]:
        """Logits of every head a row could leave at, before the end."""
        return {layer: logits for layer, logits in self.logits.items() if layer != self.last}


class _Tracing(Observer):
    """Keeps what the heads will read, as another observer shows it."""

    def __init__(self, network: Network, inner: Observer | None):
        self.network, self.inner = network, inner or Observer()
        self.tokens: dict[Any, Tokens] = {}  # by step

    def before(self, state: State, step: Step) -> State:
        return self.inner.before(state, step)

    def after(self, state: State, step: Step) -> State:
        state = self.inner.after(state, step)
        if step.head is not None or step.last:
            self.tokens[step] = self.network.tokens(state)
        return state


def trace(network: Network, plan: Plan, batch: Batch, observer: Observer | None = None) -> Trace:
    """Run the layers of a plan and all heads on its way; nobody leaves. A frozen encoder runs without gradients."""
    drops = observer is not None and observer.drops_tokens
    route = network.route(Plan(plan.depth, reduce=None if drops else plan.reduce))
    parts = [*network.walk.body(), *(network.selectors.parameters() if drops else ())]
    learning = torch.is_grad_enabled() and any(parameter.requires_grad for parameter in parts)
    tracing = _Tracing(network, observer)
    with torch.set_grad_enabled(learning):
        state = network.embed(batch, joinable=drops or route.drops_tokens)
        run_steps(network.walk, route.steps, state, tracing)
    last = route.steps[-1]
    stock = network.classifier_logits(tracing.tokens[last], state.answer_mask)
    found = Trace({}, {}, stock, network.kind.answer_mask(batch), last.layer)
    for step, tokens in tracing.tokens.items():
        if step.head is not None:
            found.logits[step.layer], estimate = network.head_logits(step.head, tokens, state.answer_mask)
            if estimate is not None:
                found.error_probability[step.layer] = estimate
    return found
