"""What may be added to an encoder: layers, heads, learned doubt, selectors. Each grows once and is then trained."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from paredown.encoders.walk import Walk, evaluating, logits_of
from paredown.errors import BadSetting
from paredown.plan import Plan, usual_places
from paredown.registry import heads as head_registry

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from paredown.answers import Kind

ALIGNMENT = 64  # bytes; where torch's own allocations start


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
        self.price = nn.Parameter(torch.zeros(()))  # of keeping a token, learned where training has a target
        for linear in (self.dense, self.out):
            nn.init.normal_(linear.weight, std=0.02)
            nn.init.zeros_(linear.bias)

    def forward(self, hidden: Tensor) -> Tensor:
        """[rows, tokens, width] -> [rows, tokens]"""
        return self.out(nn.functional.gelu(self.dense(hidden))).squeeze(-1)


class Network(nn.Module):
    """The parts of a model that its encoder did not come with."""

    def __init__(self, stock: PreTrainedModel, kind: Kind, plan: Plan):
        super().__init__()
        self.stock, self.kind, self.plan = stock, kind, plan
        self.walk = Walk(stock)
        self.grown = nn.ModuleList()  # layers that were appended to the encoder's own
        self.grown_like: tuple[int, ...] = ()  # the layer each of them began as
        self.poolers: dict[int, nn.Linear] = {}  # pre-trained for single layers: what pooler heads begin as
        self.head: Any = None  # the spec all heads were built from
        self.heads = nn.ModuleDict()  # by layer number
        self.doubt: nn.Linear | None = None  # learned estimate of a head being wrong, shared by all heads
        self.selectors = nn.ModuleDict()  # by number of the layer before which they choose tokens
        self.teacher: PreTrainedModel | None = None  # the model as it once was; lives as long as training does

    @property
    def layers(self) -> int:
        """Layers there are, those that were appended included."""
        return len(self.walk.layers)

    @property
    def depth(self) -> tuple[int, ...]:
        """Numbers of the layers that the plan runs: what methods train and judge."""
        return self.depth_of(self.plan)

    def depth_of(self, plan: Plan) -> tuple[int, ...]:
        return tuple(range(self.walk.own)) if plan.depth is None else plan.depth

    def align(self) -> None:
        """Move parameters to aligned memory. Those mapped from a file start anywhere, and some kernels round
        differently there: a run that goes on in another process would not repeat its bits."""
        for parameter in self.parameters():
            if parameter.data_ptr() % ALIGNMENT:
                parameter.data = parameter.data.clone()

    def grow_layers(self, like: Sequence[int]) -> tuple[int, ...]:
        """Append copies of the encoder's layers, for plans to run instead; returns their numbers. Network the same
        again changes nothing."""
        if not all(0 <= layer < self.walk.own for layer in like):
            raise BadSetting(f"the encoder has layers 0 to {self.walk.own - 1} to copy; got {list(like)}")
        if self.grown and self.grown_like != tuple(like):
            raise BadSetting(f"this model already has layers grown from {list(self.grown_like)}; export it first")
        if not self.grown:
            self.grown_like = tuple(like)
            for layer in like:
                self.grown.append(copy.deepcopy(self.walk.layers[layer]))
                self.walk.append(self.grown[-1], layer)
        return tuple(range(self.walk.own, self.layers))

    def grow_heads(self, spec: Any, layers: Sequence[int] | None = None) -> None:
        """Put heads after some layers (default: all that run but the last). Network the same again changes nothing."""
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

    def grow_doubt(self) -> None:
        """Let the model learn to foresee its heads' errors, for the learned exit rule."""
        if not self.heads:
            raise BadSetting("grow heads before doubt: it reads what the heads read")
        if self.doubt is None:
            head: Any = next(iter(self.heads.values()))
            self.doubt = self._ready(nn.Linear(head.size, 1))

    def drop_heads(self) -> None:
        self.head, self.doubt = None, None
        self.heads = nn.ModuleDict()

    @property
    def head_layers(self) -> tuple[int, ...]:
        return tuple(sorted(int(layer) for layer in self.heads))

    def grow_selectors(self, layers: Sequence[int] | None = None, size: int = 32) -> None:
        """Let the model choose tokens before some layers (default: the second and the middle one of those that run).
        Network the same again changes nothing."""
        wanted = tuple(sorted(usual_places(self.depth) if layers is None else layers))
        if not wanted or size < 1 or not all(0 <= layer < self.layers for layer in wanted):
            raise BadSetting(f"selectors sit before layers 0 to {self.layers - 1}; got {list(wanted)}")
        if self.selectors:
            if (self.selector_layers, self.selector_size) == (wanted, size):
                return
            known = f"of size {self.selector_size} before layers {list(self.selector_layers)}"
            raise BadSetting(f"this model already has selectors {known}; drop_selectors() first to grow others")
        for layer in wanted:
            self.selectors[str(layer)] = self._ready(Selector(self.walk.width, size))

    def drop_selectors(self) -> None:
        self.selectors = nn.ModuleDict()

    @property
    def selector_layers(self) -> tuple[int, ...]:
        return tuple(sorted(int(layer) for layer in self.selectors))

    @property
    def selector_size(self) -> int:
        return next((int(selector.size) for selector in self.selectors.values()), 0)  # type: ignore[arg-type]

    def grow_teacher(self) -> None:
        """Keep a copy of the model as it is, to be imitated; `teach` brings it up to date."""
        if self.teacher is None:
            self.teacher = copy.deepcopy(self.stock)

    def teach(self) -> None:
        """From now on the present weights are imitated."""
        assert self.teacher is not None
        self.teacher.load_state_dict(self.stock.state_dict())

    @torch.no_grad()
    def taught(self, batch: dict[str, Tensor]) -> Tensor:
        """What the teacher answers."""
        assert self.teacher is not None
        with evaluating(self.teacher):
            logits = logits_of(self.teacher(**self.walk.inputs_of(batch)))
        return self.kind.ruled_out(logits, self.kind.answer_mask(batch))

    def _ready(self, part: Any) -> Any:
        """Where and as the encoder is."""
        return part.to(device=self.stock.device, dtype=self.stock.dtype).train(self.training)
