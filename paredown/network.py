"""Network: an encoder and what was added to it (layers, heads, error probability, selectors): parameters."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from paredown.encoders.walk import Walk
from paredown.errors import BadSetting
from paredown.plan import Plan, default_selecting_layers
from paredown.registry import heads as head_registry
from paredown.route import Route, Step, make_route
from paredown.state import Evidence, State, Tokens

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from paredown.answers import Kind
    from paredown.engine import Backend

ALIGNMENT = 64  # bytes; where torch's own allocations start
MOST_ROUTES = 256  # that are kept; methods that draw a depth at random make many


@dataclass(frozen=True)
class HeadShape:
    """What a head needs to know of the model it grows on."""

    width: int
    labels: int
    layers: tuple[int, ...]  # numbers of the layers that get a head
    per_token: bool
    dropout: float
    pooler: nn.Linear | None  # the encoder's own, to start from or to share
    words: tuple[int, ...] | None = None  # vocabulary and width of the encoder's word embeddings
    poolers: Mapping[int, nn.Linear] = field(default_factory=dict)  # by layer, pre-trained each for its own


class Selector(nn.Module):
    """How much every token matters: a small map from its state to the logit of keeping it (TR-BERT)."""

    def __init__(self, width: int, size: int):
        super().__init__()
        self.size = size
        self.dense, self.out = nn.Linear(width, size), nn.Linear(size, 1)
        for linear in (self.dense, self.out):
            nn.init.normal_(linear.weight, std=0.02)
            nn.init.zeros_(linear.bias)

    def forward(self, hidden: Tensor) -> Tensor:
        """[rows, tokens, width] -> [rows, tokens]"""
        return self.out(nn.functional.gelu(self.dense(hidden))).squeeze(-1)


class Network(nn.Module):
    """An encoder with heads after its layers and selectors before them. Each part grows once and is then trained."""

    def __init__(self, stock: PreTrainedModel, kind: Kind):
        super().__init__()
        self.stock, self.kind = stock, kind
        self.walk = Walk(stock)
        self.backend: Backend = self.walk  # what runs the layers; another must give the same answers
        self._routes: dict[Plan, Route] = {}
        self.grown = nn.ModuleList()  # layers that were appended to the encoder's own
        self.grown_like: tuple[int, ...] = ()  # the layer each of them began as
        self.poolers: dict[int, nn.Linear] = {}  # pre-trained for single layers: what pooler heads begin as
        self.head: Any = None  # the spec all heads were built from
        self.heads = nn.ModuleDict()  # by layer number
        self.error_probability: nn.Linear | None = None  # learned estimate of a head being wrong, shared by all heads
        self.selectors = nn.ModuleDict()  # by number of the layer before which they choose tokens
        # What a method needs while it trains: part of checkpoints, never of a bundle, dropped when the method is done.
        self.companions = nn.ModuleDict()
        for module in (self, self.grown, self.heads, self.selectors, self.companions):
            module.training = stock.training

    # Running

    def route(self, plan: Plan) -> Route:
        """A plan made ready; BadPlan where it does not fit."""
        if (route := self._routes.get(plan)) is None:
            if len(self._routes) >= MOST_ROUTES:
                self._routes.clear()
            self._routes[plan] = route = make_route(plan, self)
        return route

    def embed(
        self, batch: dict[str, Tensor], joinable: bool = False, first: int = 0, backend: Backend | None = None
    ) -> Any:
        """The batch before its first layer, as a backend (default: the walk) sees it, with what may be answered."""
        state = (backend or self.walk).embed(batch, joinable, first)
        mask = self.kind.candidate_mask(batch)
        return state if mask is None else state.asking(mask.to(state.row.device), self.kind.per_token)

    def tokens(self, state: State) -> Tokens:
        """The tokens that answers are read from: where every token has one, dropped ones too."""
        return state.tokens(all=self.kind.per_token)

    def evidence(self, state: State, step: Step) -> Evidence:
        """What an exit rule sees after a step."""
        tokens, mask = self.tokens(state), state.answer_mask
        if step.head is None:
            return Evidence(self.kind, self.classifier_logits(tokens, mask), step.number, mask)
        logits, estimate = self.head_logits(step.head, tokens, mask)
        return Evidence(self.kind, logits, step.number, mask, estimate)

    def head_logits(self, head: Any, tokens: Tokens, answer_mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Logits of a head, and the learned estimate of their being wrong."""
        feature = head.feature(tokens.map(self.walk.finish))
        logits = head.score(feature)
        if answer_mask is not None:
            logits = self.kind.ruled_out(logits, answer_mask)
        if self.error_probability is None:
            return logits, None
        estimate = self.error_probability(self.kind.error_features(feature)).float().sigmoid().flatten(1)
        return logits, estimate if answer_mask is None else self.kind.averaged(estimate, answer_mask)

    def reads_first(self, head: Any) -> bool:
        """Whether a head, or without one the model's own classifier, answers by the first token of each row alone."""
        if head is None:
            return self.walk.reads_first_token and not self.kind.per_token
        return bool(head.reads_first)

    def classifier_logits(self, tokens: Tokens, answer_mask: Tensor | None) -> Tensor:
        """Logits of the model's own classifier."""
        if self.reads_first(None):
            tokens = tokens.first()
        logits = self.walk.stock_logits(*tokens.padded())
        return logits if answer_mask is None else self.kind.ruled_out(logits, answer_mask)

    def keep_logits(self, layer: int, hidden: Tensor) -> Tensor:
        """[…] of hidden states […, width]: the logit of keeping each token, by the selector before a layer."""
        return self.selectors[str(layer)](self.walk.finish(hidden)).float()

    def head_after(self, layer: int) -> Any:
        return self.heads._modules.get(str(layer))

    def selects_before(self, layer: int) -> bool:
        return str(layer) in self.selectors

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_routes": {}}

    # Growing

    @property
    def layers(self) -> int:
        """Layers there are, those that were appended included."""
        return len(self.walk.layers)

    @property
    def depth(self) -> tuple[int, ...]:
        """Numbers of the layers that run by default."""
        return tuple(range(self.walk.num_base_layers))

    def depth_of(self, plan: Plan) -> tuple[int, ...]:
        return tuple(range(self.walk.num_base_layers)) if plan.depth is None else plan.depth

    def align(self) -> None:
        """Move parameters to aligned memory. Those mapped from a file start anywhere, and some kernels round
        differently there: a run that goes on in another process would not repeat its bits."""
        for parameter in self.parameters():
            if parameter.data_ptr() % ALIGNMENT:
                parameter.data = parameter.data.clone()

    def grow_layers(self, like: Sequence[int]) -> tuple[int, ...]:
        """Append copies of the encoder's layers, for plans to run instead; returns their numbers. Growing the same
        again changes nothing."""
        if not all(0 <= layer < self.walk.num_base_layers for layer in like):
            raise BadSetting(f"the encoder has layers 0 to {self.walk.num_base_layers - 1} to copy; got {list(like)}")
        if self.grown and self.grown_like != tuple(like):
            raise BadSetting(f"this model already has layers grown from {list(self.grown_like)}; export it first")
        if not self.grown:
            self.grown_like = tuple(like)
            for layer in like:
                self.grown.append(copy.deepcopy(self.walk.layers[layer]))
                self.walk.append(self.grown[-1], layer)
            self._routes.clear()
        return tuple(range(self.walk.num_base_layers, self.layers))

    def grow_heads(self, spec: Any, layers: Sequence[int] | None = None) -> None:
        """Put heads after some layers (default: all that run but the last). Growing the same again changes nothing."""
        spec = head_registry.of(spec)
        wanted = self.depth[:-1] if layers is None else tuple(sorted(layers))
        if not wanted or not all(0 <= layer < self.layers for layer in wanted):
            raise BadSetting(f"heads sit after layers 0 to {self.layers - 1}; got {list(wanted)}")
        if self.head is not None:
            if (self.head, self.head_layers) == (spec, wanted):
                return
            raise BadSetting(
                f"this model already has {self.head.name} heads after layers {list(self.head_layers)}; "
                f"drop_heads() first to grow {spec.name} after {list(wanted)}"
            )
        config: Any = self.stock.config
        dropout = next((getattr(config, n) for n in ("hidden_dropout_prob", "dropout") if hasattr(config, n)), 0.1)
        facts = (self.walk.width, config.num_labels, wanted, self.kind.per_token, float(dropout or 0.0))
        words = tuple(self.stock.get_input_embeddings().weight.shape)
        shape = HeadShape(*facts, self.walk.pooler, words, self.poolers)
        self.head = spec
        for layer, head in spec.build(shape).items():
            self.heads[str(layer)] = self._ready(head)
        self._routes.clear()

    def grow_error_probability(self) -> None:
        """Let the model learn to foresee its heads' errors, for the learned exit rule."""
        if not self.heads:
            raise BadSetting("grow heads before the error probability: it reads what the heads read")
        if self.error_probability is None:
            head: Any = next(iter(self.heads.values()))
            self.error_probability = self._ready(nn.Linear(head.size, 1))
            self._routes.clear()

    def drop_heads(self) -> None:
        self.head, self.error_probability = None, None
        self.heads = nn.ModuleDict()
        self._routes.clear()

    @property
    def head_layers(self) -> tuple[int, ...]:
        return tuple(sorted(int(layer) for layer in self.heads))

    def grow_selectors(self, layers: Sequence[int] | None = None, size: int = 32) -> None:
        """Let the model choose tokens before some layers (default: the second and the middle one of those that run).
        Growing the same again changes nothing."""
        wanted = tuple(sorted(default_selecting_layers(self.depth) if layers is None else layers))
        if not wanted or size < 1 or not all(0 <= layer < self.layers for layer in wanted):
            raise BadSetting(f"selectors sit before layers 0 to {self.layers - 1}; got {list(wanted)}")
        if self.selectors:
            if (self.selector_layers, self.selector_size) == (wanted, size):
                return
            known = f"of size {self.selector_size} before layers {list(self.selector_layers)}"
            raise BadSetting(f"this model already has selectors {known}; drop_selectors() first to grow others")
        for layer in wanted:
            self.selectors[str(layer)] = self._ready(Selector(self.walk.width, size))
        self._routes.clear()

    def drop_selectors(self) -> None:
        self.selectors = nn.ModuleDict()
        self._routes.clear()

    @property
    def selector_layers(self) -> tuple[int, ...]:
        return tuple(sorted(int(layer) for layer in self.selectors))

    @property
    def selector_size(self) -> int:
        return next((int(selector.size) for selector in self.selectors.values()), 0)  # type: ignore[arg-type]

    def _ready(self, part: Any) -> Any:
        """The module on the encoder's device, with its type and mode."""
        return part.to(device=self.stock.device, dtype=self.stock.dtype).train(self.training)
