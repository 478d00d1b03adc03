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
from paredown.state import Answer, Evidence, Leaving, Memory, State, Tokens, joined

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


@dataclass
class Verdict:
    """What the units of a batch would answer after a step, and who of them is sure enough to leave with it."""

    state: Any
    answers: Memory  # logits, layers, tokens
    leaving: Leaving | None  # None: all of them


class Answering(Observer):
    """Units leave as soon as they are sure enough, with the logits that their exit rule gives them."""

    def __init__(self, network: Network, route: Route):
        self.network, self.rule, self.bounds = network, route.plan.exit, route.bounds
        self.left: list[tuple[Tensor, ...]] = []  # units, logits, layers, tokens

    def after(self, state: State, step: Step) -> State:
        return self.part(self.ask(state, step)) if step.asked else state

    def ask(self, state: State, step: Step) -> Verdict:
        """Nothing waits for the device."""
        state, logits, leave = self.judged(state, step, self.network.evidence(state, step))
        layers = logits.new_full((len(logits),), step.number, dtype=torch.long)
        answers = {"logits": logits, "layers": layers, "tokens": state.tokens_run}
        return Verdict(state, answers, None if leave is None else Leaving(state, leave))

    def part(self, verdict: Verdict) -> State:
        """Units that are sure enough leave; those that stay."""
        state, answers = verdict.state, verdict.answers
        staying, gone = (None, None) if verdict.leaving is None else state.split(verdict.leaving)
        if staying is not None and gone is None:
            return staying
        units = state.units
        if staying is not None:
            units, answers = units[gone], {name: value[gone] for name, value in answers.items()}
        self.left.append((units, *answers.values()))
        return state.nobody() if staying is None else staying

    def judged(self, state: State, step: Step, evidence: Evidence) -> tuple[State, Tensor, Tensor | None]:
        """The state with what the rule remembers, the logits that would be the answer, and [units] who is sure enough;
        None at the end, where all must be."""
        logits = evidence.logits if self.rule is None else self.rule.answer(evidence, state.memory)
        if step.last:
            return state, logits, None
        certainty, memory = self.rule.certainty(evidence, state.memory)
        bounds = self.bounds[step.number - 1] if state.bounds is None else state.bounds[:, step.number - 1]
        state = state if memory is state.memory else state.remembering(memory)
        return state, logits, certainty > bounds

    def answer(self) -> Answer:
        """The answers, in the order of the units' numbers."""
        parts = self.left[0] if len(self.left) == 1 else tuple(joined(part) for part in zip(*self.left, strict=True))
        units, *found = parts
        if len(self.left) > 1:
            order = units.argsort()
            found = [value[order] for value in found]
        return Answer(*found)


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
