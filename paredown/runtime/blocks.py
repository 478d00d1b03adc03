"""Fast layers over packed tokens, made from the modules of the families that are known here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from paredown.ranges import MAPS
from paredown.runtime.attention import HALF, TRITON, Bias, Distances, attend, watch
from paredown.runtime.half_attention import HalfAttention
from paredown.runtime.packed_state import PackedState
from paredown.runtime.parts import INNER, Map, in_parts
from paredown.system.products import laid_out, onednn, suits


@dataclass(frozen=True, eq=False)
class Dense:
    """Linear maps as one, applied to the same input."""

    weight: Tensor
    bias: Tensor | None
    copied: tuple[Tensor, ...] = ()  # what they were made from, where they do not share its memory
    ready: Tensor | None = None  # the weight as oneDNN reads it, where that computes it faster

    @classmethod
    def of(cls, *linears: nn.Linear) -> Dense:
        weights: list[Tensor] = [one.weight for one in linears]
        biases: list[Tensor] = [one.bias for one in linears]
        if len(linears) == 1:
            return cls(weights[0], biases[0])
        parts = (*weights, *(bias for bias in biases if bias is not None))
        return cls(torch.cat(weights), None if biases[0] is None else torch.cat(biases), parts)

    def for_onednn(self) -> Dense:
        return replace(self, ready=laid_out(self.weight))

    def __call__(self, hidden: Tensor, gelu: bool = False) -> Tensor:
        """`gelu`: with an exact GELU after it."""
        if self.ready is not None and suits(hidden, self.weight):
            return onednn(hidden, self.ready, self.bias, gelu)
        found = F.linear(hidden, self.weight, self.bias)
        return F.gelu(found) if gelu else found

    @property
    def sources(self) -> tuple[Tensor, ...]:
        """The parameters that it computes with."""
        return self.copied or tuple(one for one in (self.weight, self.bias) if one is not None)


@dataclass(frozen=True, eq=False)
class Norm:
    """A layer norm, of a sum where there is something to add."""

    module: nn.LayerNorm

    def __call__(self, hidden: Tensor, residual: Tensor) -> Tensor:
        """`hidden` is overwritten."""
        module = self.module
        if hidden.is_cuda and TRITON and hidden.dtype in HALF:
            from paredown.runtime.kernels import add_norm

            return add_norm(hidden, residual, module.weight, module.bias, module.eps)
        return F.layer_norm(hidden.add_(residual), module.normalized_shape, module.weight, module.bias, module.eps)


@dataclass(frozen=True, eq=False)
class Block:
    """What both sorts of layers share."""

    qkv: Dense  # [tokens, width] -> [tokens, 3 * attention heads * size]
    output: Dense
    heads: int
    distances: Distances | None
    feed_forward: FeedForward | Gated
    half: HalfAttention | None = field(default=None, kw_only=True)  # how a CPU attends in bfloat16, where it does

    @property
    def maps(self) -> dict[str, Dense]:
        parts = (self.qkv, self.output, self.feed_forward.up, self.feed_forward.down)
        return dict(zip(MAPS, parts, strict=True))

    @property
    def sources(self) -> tuple[Tensor, ...]:
        """The parameters of its linear maps."""
        return tuple(one for dense in self.maps.values() for one in dense.sources)

    def with_maps(self, maps: Mapping[str, Any]) -> Block:
        """The layer with other linear maps."""
        feed_forward = replace(self.feed_forward, up=maps["up"], down=maps["down"])
        return replace(self, qkv=maps["qkv"], output=maps["output"], feed_forward=feed_forward)

    def in_parts(self, rounds: bool, feed_forward: Map | None = None) -> Block:
        """The layer, a part of the tokens at a time, in numbers that come again if it `rounds` them. `feed_forward`: in
        the place of its own, with small tensors within."""
        after: Any = (
            in_parts(self.feed_forward, rounds, INNER) if feed_forward is None else in_parts(feed_forward, rounds)
        )
        if not rounds:
            return replace(self, feed_forward=after)
        qkv, output = (in_parts(one, rounds) for one in (self.qkv, self.output))
        return replace(self, qkv=qkv, output=output, feed_forward=after)  # type: ignore[arg-type]

    def __call__(self, state: PackedState, watched: bool) -> tuple[Tensor, Tensor | None]:
        """Hidden states after the layer, and the attention that every token received, if it is watched."""
        found, received = self.found(state, watched)
        return self.after(found, state.hidden), received

    def found(self, state: PackedState, watched: bool = False) -> tuple[Tensor, Tensor | None]:
        """[tokens, width] what every token finds among those of its row, and the attention it receives."""
        qkv = self.qkv(self.before(state.hidden))
        query, key, value = self.turned(qkv.unflatten(-1, (3, self.heads, -1)), state)
        bias, received = None, None
        if self.distances is not None:
            bias = Bias(self.distances, state.position, state.whole)
        if watched:
            if self.half is not None:  # tokens are ranked by what they receive
                query, key, value = query.float(), key.float(), value.float()
            found, received = watch(query, key, value, state.packing, bias)
        else:
            found = attend(query, key, value, state.packing, state.packing, bias, self.half)
        return found.flatten(1), received

    def turned(self, qkv: Tensor, state: PackedState) -> tuple[Tensor, ...]:
        return qkv.unbind(1)

    def before(self, hidden: Tensor) -> Tensor:
        """What attention sees of hidden states."""
        return hidden

    def after(self, found: Tensor, hidden: Tensor) -> Tensor:
        """Hidden states after the layer, by what attention has found and those before."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class PostNorm(Block):
    """BERT's: what attention and feed-forward find is added to what came, and normalised."""

    attention_norm: Norm
    output_norm: Norm

    def after(self, found: Tensor, hidden: Tensor) -> Tensor:
        hidden = self.attention_norm(self.output(found), hidden)
        return self.output_norm(self.feed_forward(hidden), hidden)


@dataclass(frozen=True, eq=False)
class PreNorm(Block):
    """ModernBERT's: attention and feed-forward see normalised states; positions turn queries and keys."""

    attention_norm: Map
    feed_forward_norm: Map
    frequencies: Tensor  # [size / 2]
    scaling: float

    def before(self, hidden: Tensor) -> Tensor:
        return self.attention_norm(hidden)

    def after(self, found: Tensor, hidden: Tensor) -> Tensor:
        hidden = self.output(found).add_(hidden)
        return self.feed_forward(self.feed_forward_norm(hidden)).add_(hidden)

    def turned(self, qkv: Tensor, state: PackedState) -> tuple[Tensor, ...]:
        cos, sin = self._rotation(state, qkv.dtype)
        pair, value = qkv[:, :2].float(), qkv[:, 2]
        low, high = pair.chunk(2, -1)
        turned = pair * cos + torch.cat((-high, low), -1) * sin
        query, key = turned.to(qkv.dtype).unbind(1)
        return query, key, value

    def _rotation(self, state: PackedState, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Cosine and sine of every token's angles, the same for all layers with these frequencies."""
        memo, known = state.packing.memo, ("rotation", id(self.frequencies))
        if known not in memo:
            angles = state.position.unsqueeze(-1).float() * self.frequencies
            angles = torch.cat((angles, angles), -1)[:, None, None]
            memo[known] = tuple((part * self.scaling).to(dtype) for part in (angles.cos(), angles.sin()))
        return memo[known]


@dataclass(frozen=True, eq=False)
class FeedForward:
    up: Dense
    activation: Map
    down: Dense

    def __call__(self, hidden: Tensor) -> Tensor:
        if hidden.is_cuda and hidden.dtype in HALF and self.gelu and self.up.bias is not None:
            # The product applies it by tanh, at most 5e-4 from the exact GELU: what 16 bits round values near 1 by.
            return self.down(torch._addmm_activation(self.up.bias, hidden, self.up.weight.t(), use_gelu=True))
        if self.up_with_gelu:
            return self.down(self.up(hidden, gelu=True))
        return self.down(self.activation(self.up(hidden)))

    @cached_property
    def up_with_gelu(self) -> bool:
        return isinstance(self.up, Dense) and self.up.ready is not None and self.gelu

    @cached_property
    def gelu(self) -> bool:
        from transformers.activations import GELUActivation  # importing it takes seconds, and not all need it

        return isinstance(self.activation, GELUActivation)


@dataclass(frozen=True, eq=False)
class Gated:
    """A feed-forward whose one half lets the other pass (GeGLU)."""

    up: Dense
    activation: Map
    down: Dense

    def __call__(self, hidden: Tensor) -> Tensor:
        value, gate = self.up(hidden).chunk(2, -1)
        return self.down(self.activation(value) * gate)


# Families


def bert_block(layer: Any, base: Any) -> PostNorm:
    own, out = layer.attention.self, layer.attention.output
    return PostNorm(
        Dense.of(own.query, own.key, own.value),
        Dense.of(out.dense),
        own.num_attention_heads,
        None,
        FeedForward(
            Dense.of(layer.intermediate.dense), layer.intermediate.intermediate_act_fn, Dense.of(layer.output.dense)
        ),
        Norm(out.LayerNorm),
        Norm(layer.output.LayerNorm),
    )


def distilbert_block(layer: Any, base: Any) -> PostNorm:
    own, ffn = layer.attention, layer.ffn
    return PostNorm(
        Dense.of(own.q_lin, own.k_lin, own.v_lin),
        Dense.of(own.out_lin),
        own.n_heads,
        None,
        FeedForward(Dense.of(ffn.lin1), ffn.activation, Dense.of(ffn.lin2)),
        Norm(layer.sa_layer_norm),
        Norm(layer.output_layer_norm),
    )


def mpnet_block(layer: Any, base: Any) -> PostNorm:
    own, encoder = layer.attention.attn, base.encoder
    reach = base.config.max_position_embeddings
    apart = torch.arange(-reach, reach + 1, device=own.q.weight.device)
    table = encoder.relative_attention_bias(encoder.relative_position_bucket(apart))
    return PostNorm(
        Dense.of(own.q, own.k, own.v),
        Dense.of(own.o),
        own.num_attention_heads,
        Distances(table.detach(), copied=(encoder.relative_attention_bias.weight,)),
        FeedForward(
            Dense.of(layer.intermediate.dense), layer.intermediate.intermediate_act_fn, Dense.of(layer.output.dense)
        ),
        Norm(layer.attention.LayerNorm),
        Norm(layer.output.LayerNorm),
    )


def modernbert_block(layer: Any, base: Any) -> PreNorm:
    own, rotary, sort = layer.attn, base.rotary_emb, layer.attention_type
    distances = None
    if sort == "sliding_attention":
        window = base.config.sliding_window
        reach = base.config.max_position_embeddings
        apart = torch.arange(-reach, reach + 1, device=own.Wqkv.weight.device).abs()
        hidden = torch.zeros_like(apart, dtype=own.Wqkv.weight.dtype).masked_fill(apart > window, float("-inf"))
        distances = Distances(hidden.unsqueeze(-1), window)
    return PreNorm(
        Dense.of(own.Wqkv),
        Dense.of(own.Wo),
        base.config.num_attention_heads,
        distances,
        Gated(Dense.of(layer.mlp.Wi), layer.mlp.act, Dense.of(layer.mlp.Wo)),
        layer.attn_norm,
        layer.mlp_norm,
        getattr(rotary, f"{sort}_inv_freq"),
        float(getattr(rotary, f"{sort}_attention_scaling")),
    )


BLOCKS: dict[str, Callable[[Any, Any], Block]] = {
    **dict.fromkeys(("bert", "roberta", "xlm-roberta", "camembert", "electra"), bert_block),
    "distilbert": distilbert_block,
    "mpnet": mpnet_block,
    "modernbert": modernbert_block,
}
