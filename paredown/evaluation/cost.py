"""The work of a row: layers, token-layers, and FLOPs, two for each multiply-add of a matrix product.

Every part of a model (embeddings, each layer, each head, the classifier) does work that is a quadratic of the row's
tokens. Its coefficients are counted once, on four short rows, and are exact integers: no family is known by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from paredown.encoders.longer import learned_positions
from paredown.encoders.probing import evaluating
from paredown.encoders.walk import Walk
from paredown.engine import Observer, kept, run_steps
from paredown.errors import BadSetting, CannotWalk
from paredown.evaluation.record import Record
from paredown.model import AdaptiveModel
from paredown.plan import Plan
from paredown.route import Step, straight
from paredown.state import State

Tokens = TypeVar("Tokens", int, Tensor)
Paper = Literal["fastbert", "elasticbert"]
STEP, CHECKED = 8, 5  # the work is counted at 1, 2 and 3 steps of so many tokens, and checked at 5


@dataclass(frozen=True)
class Work:
    """FLOPs of one part on a row of n tokens: square · n² + linear · n + constant."""

    square: int = 0
    linear: int = 0
    constant: int = 0

    def __call__(self, tokens: Tokens) -> Tokens:
        return (self.square * tokens + self.linear) * tokens + self.constant

    @classmethod
    def through(cls, one: int, two: int, three: int, step: int = STEP) -> Work:
        """The quadratic with these values at 1, 2 and 3 steps."""
        square = (three - 2 * two + one) // (2 * step**2)
        linear = (two - one - 3 * step**2 * square) // step
        return cls(square, linear, one - step**2 * square - step * linear)


@dataclass(frozen=True)
class Cost:
    """What each part of a model costs."""

    start: Work  # embeddings: 0 but for families that project them
    layers: tuple[Work, ...]  # the encoder's own
    classifier: Work  # the model's own, its pooler included
    heads: dict[int, Work]  # by layer number, the error probability included
    selectors: dict[int, Work] = field(default_factory=dict)  # what chooses tokens before a layer, by layer number
    watching: dict[int, Work] = field(default_factory=dict)  # a layer's attention, beyond the layer itself
    padded_to: int | None = None  # count every row as this long, as tools that pad to a fixed length do
    grown: tuple[Work, ...] = ()  # layers that were appended

    @classmethod
    def of(cls, model: AdaptiveModel, plan: Plan | None = None) -> Cost:
        """Counted from the model itself, as torch's counter sees it under eager attention; with the work of choosing
        tokens as `plan` does, which decides nothing else here."""
        known = learned_positions(model.stock)
        step = min(STEP, known.count // CHECKED) if known else STEP
        one, two, three, check = (_count(model, steps * step, plan or Plan()) for steps in (1, 2, 3, CHECKED))
        works = {part: Work.through(one[part], two[part], three[part], step) for part in one}
        for part, work in works.items():
            if work(CHECKED * step) != check[part]:
                raise CannotWalk(f"{model.walk.family}: the work of its {part[0]} is not a quadratic of the length")
        parts = ("start", "layer", "classifier", "head", "selector", "watch")
        kinds: dict[str, dict[int, Work]] = {kind: {} for kind in parts}
        for (kind, layer), work in works.items():
            kinds[kind][layer] = work
        layers = tuple(kinds["layer"][layer] for layer in range(model.walk.num_base_layers))
        grown = tuple(layers[like] for like in model.grown_like)
        start, classifier = kinds["start"][0], kinds["classifier"][0]
        return cls(start, layers, classifier, kinds["head"], kinds["selector"], kinds["watch"], grown=grown)

    @classmethod
    def of_paper(cls, paper: Paper, config: Any, padded_to: int | None = 128, grown: int = 0) -> Cost:
        """The cost as a paper's own tool counted it, from a BERT's config; grown layers have their heads too."""
        if paper not in PAPERS:
            raise BadSetting(f"{paper!r} counted nothing we know; known: {', '.join(PAPERS)}")
        start, layer, head = PAPERS[paper](config)
        own = config.num_hidden_layers
        heads = {layer: head for layer in range(own + grown)}
        return cls(start, (layer,) * own, head, heads, padded_to=padded_to, grown=(layer,) * grown)

    def full(self, lengths: Tokens, depth: Sequence[int] | None = None) -> Tokens:
        """FLOPs of the stock model: every layer (or those of `depth`), its own classifier, no exit."""
        length: Any = lengths
        if self.padded_to is not None:
            length = lengths * 0 + self.padded_to
        layers = self.layers if depth is None else [(self.layers + self.grown)[layer] for layer in depth]
        return self.start(length) + sum(work(length) for work in layers) + self.classifier(length)

    def by_exit(self, record: Record, exits: bool = True) -> Tensor:
        """[questions, layers run] FLOPs of what leaves after 1, 2, … layers; `exits`: asking every head on the way."""
        depth, lengths, tokens = record.depth, record.lengths, record.tokens
        if self.padded_to is not None:
            lengths, tokens = torch.full_like(lengths, self.padded_to), torch.full_like(tokens, self.padded_to)
        total, before, found = self.start(lengths), lengths, []
        for run, layer in enumerate(depth, 1):
            now = tokens[:, run - 1]
            if layer in self.selectors:
                total = total + self.selectors[layer](before)
            total = total + (self.layers + self.grown)[layer](now) + self.watching.get(layer, Work())(now)
            if run == len(depth) or (exits and run in record.logits):
                answered = lengths if record.kind.per_token else now  # dropped tokens are answered too
                total = total + self.heads.get(layer, self.classifier)(answered)
            found.append(total)
            before = now
        return record.summed(torch.stack(found, 1))


@dataclass(frozen=True)
class Bill:
    """What recorded rows cost, by the layer they leave after."""

    record: Record
    cost: Cost | None = None  # without one, FLOPs are left out

    @cached_property
    def token_layers(self) -> Tensor:
        """[rows, layers run], or [questions, layers run]"""
        return self.record.summed(self.record.tokens.cumsum(1))

    @cached_property
    def flops(self) -> tuple[Tensor, Tensor, float]:
        """[rows, layers run] with an exit rule; [rows] to the end without; the stock model's mean."""
        assert self.cost is not None
        at_end = self.cost.by_exit(self.record, exits=False)[:, -1]
        stock = self.record.summed(self.cost.full(self.record.lengths))
        return self.cost.by_exit(self.record), at_end, stock.double().mean().item()

    def of_rows(self, layers: Tensor, exits: bool = True) -> Tensor:
        """[…, rows] FLOPs of rows that leave after so many layers; `exits` False: they ran to the end unasked."""
        on_the_way, at_end, _ = self.flops
        return _at(on_the_way, layers) if exits else at_end.expand_as(layers)

    def mean(self, layers: Tensor, exits: bool = True) -> dict[str, float]:
        """Mean work of a row, and how many times less it is than the stock model's."""
        return {name: value for name, (value,) in self.means(layers.unsqueeze(0), exits).items()}

    def means(self, layers: Tensor, exits: bool = True) -> dict[str, list[float]]:
        """The same for several [rules, rows] of layers run."""
        mean = _means(layers)
        found = {"layers": mean, "speedup": self._depth / mean, "token_layers": _means(_at(self.token_layers, layers))}
        if self.cost is not None:
            flops = _means(self.of_rows(layers, exits))
            found |= {"flops": flops, "flops_speedup": self.flops[2] / flops}
        return {name: values.tolist() for name, values in found.items()}

    @property
    def _depth(self) -> int:
        """Layers of the stock model; without a cost, of the plan."""
        return self.record.stops[-1] if self.cost is None else len(self.cost.layers)


def _at(table: Tensor, layers: Tensor) -> Tensor:
    """[…, rows] of [rows, layers run]: each row's entry after so many layers."""
    rows, depth = table.shape
    return table.take(layers + (depth * torch.arange(rows) - 1))


def _means(counts: Tensor) -> Tensor:
    """[rules] of [rules, rows] whole numbers, whose sums are exact."""
    return counts.sum(1).double() / counts.shape[1]


def _count(model: AdaptiveModel, tokens: int, plan: Plan) -> dict[tuple[str, int], int]:
    """FLOPs of every part on one row of so many tokens."""
    walk = model.walk
    token = min(5, walk.base.config.vocab_size - 1)
    batch = {"input_ids": torch.full((1, tokens), token, device=model.device)}
    batch["attention_mask"] = torch.ones_like(batch["input_ids"])
    batch["group"] = torch.zeros(1, dtype=torch.long, device=model.device)  # of a question, one option
    with _counting(model) as counter:
        counting = _Counting(walk, counter)
        model.stock(**walk.inputs_of(batch))
        total = counting.done()
        state = model.embed(batch)
        counting.note("start", 0)
        run_steps(walk, straight(range(walk.num_base_layers)), state, counting)
        counting.found["classifier", 0] = total - sum(counting.found.values())
        for layer in model.head_layers:
            model.head_logits(model.heads[str(layer)], model.tokens(state), state.answer_mask)
            counting.note("head", layer)
        if plan.reduce is not None:
            # Choosing is counted on a row that loses nothing.
            steps = model.route(plan.but(exit=None)).steps
            counting.chosen_before = {step.number: step for step in steps if step.reducer is not None}
            state = model.embed(batch, joinable=True)
            counting.done()
            run_steps(walk, [replace(step, reducer=None) for step in steps], state, counting)
    return counting.found


class _Counting(Observer):
    """Notes the work of each layer, of watching its attention, and of choosing tokens before it."""

    def __init__(self, walk: Walk, counter: _Counter):
        self.walk, self.counter = walk, counter
        self.found: dict[tuple[str, int], int] = {}
        self.chosen_before: dict[int, Step] = {}
        self._before = 0

    def done(self) -> int:
        """Work since this was last asked."""
        now = self.counter.flops
        since, self._before = now - self._before, now
        return since

    def note(self, part: str, layer: int) -> None:
        self.found[part, layer] = self.done()

    def before(self, state: State, step: Step) -> State:
        if (chosen := self.chosen_before.get(step.number)) is not None:
            kept(state, chosen)
            self.note("selector", step.layer)
        return state

    def after(self, state: State, step: Step) -> State:
        if not self.chosen_before:
            self.note("layer", step.layer)
        elif step.watch:
            self.found["watch", step.layer] = self.done() - self.found["layer", self.walk.like[step.layer]]
        else:
            self.done()
        return state


class _Counter(TorchDispatchMode):
    """FLOPs by torch's own formulas. FlopCounterMode also follows modules, which takes most of its time."""

    flops = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        if formula := flop_registry.get(func.overloadpacket):
            self.flops += formula(*args, **kwargs, out_val=out)
        return out


@contextmanager
def _counting(model: AdaptiveModel) -> Iterator[_Counter]:
    """Attention as plain products, which is how the counter can see it on every device."""
    config, stock = model.config, model.stock
    usual = getattr(config, "_attn_implementation", "eager")
    plain = usual in ("eager", "sdpa")
    # Inference mode would hide the products that an operation is made of.
    with (
        torch.inference_mode(False),
        torch.no_grad(),
        evaluating(model),
        sdpa_kernel(SDPBackend.MATH),
        _Counter() as counter,
    ):
        try:
            if not plain:
                stock.set_attn_implementation("eager")
            yield counter
        finally:
            if not plain:
                stock.set_attn_implementation(usual)


def _fastbert(config: Any) -> tuple[Work, Work, Work]:
    """FastBERT's (Liu et al. 2020): linear maps alone, without attention's products and the last map to the labels."""
    width, inner, size = config.hidden_size, config.intermediate_size, 128
    layer = Work(0, 2 * (4 * width**2 + 2 * width * inner))
    return Work(), layer, Work(0, 2 * (width * size + 4 * size**2), 2 * size**2)


def _elasticbert(config: Any) -> tuple[Work, Work, Work]:
    """ElasticBERT's tool (Liu et al. 2022): attention's scale and softmax and the norms are counted too."""
    width, inner, heads = config.hidden_size, config.intermediate_size, config.num_attention_heads
    norm = 2 * 2 * width
    layer = Work(2 * (2 * heads + 2 * width), 2 * (4 * width**2 + 2 * width * inner) + 2 * norm)
    return Work(0, norm), layer, Work(0, 0, 2 * (width**2 + width * config.num_labels))


# Of each paper: the work of the embeddings, of a layer, and of a head.
PAPERS = {"fastbert": _fastbert, "elasticbert": _elasticbert}
