"""The packed backend: layers run on the tokens of all rows at once, and no padding is ever computed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.graph import increment_version
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook

from paredown.encoders.padded import PaddedState
from paredown.encoders.probing import evaluating
from paredown.encoders.walk import INPUTS
from paredown.engine import run_steps
from paredown.errors import BadSetting
from paredown.route import Step, straight
from paredown.runtime.attention import HALF
from paredown.runtime.blocks import BLOCKS, Block
from paredown.runtime.packed_state import PackedState, Packing
from paredown.state import State
from paredown.system.freed import keep_freed
from paredown.system.products import prefers_onednn

if TYPE_CHECKING:
    from paredown.answers import Encoded
    from paredown.encoders.walk import Walk

AGREED = 1e-4  # how far hidden states may be from those of the encoder's own layers, of the largest
FACTS = (*INPUTS, "position", "protected")  # of every token of a packed batch
LEAVING = 0.15  # of the tokens, after a layer with a head: a guess that costs little where nobody leaves
STREAMED = 25  # tokens that take as long as weights, which few tokens wait for
COUNTED = ("roberta", "xlm-roberta", "camembert", "mpnet")  # positions begin after the padding id, which has none


class Packed:
    """Runs fast layers made from an encoder's own; they are made anew when its weights have changed."""

    name = "packed"

    def __init__(self, walk: Walk):
        self.walk = walk
        self._blocks: dict[int, Block] = {}
        self._copied: list[tuple[Tensor, tuple[int, int]]] = []  # weights with copies in layers, and how they were
        self._generation = 0
        if (reason := self._objection()) is not None:
            raise BadSetting(f"{walk.family} cannot run {self.name}: {reason}")
        if walk.base.device.type == "cpu":
            keep_freed()

    def _objection(self) -> str | None:
        """Why an encoder cannot run packed; None where it can."""
        walk = self.walk
        if walk.family not in BLOCKS:
            return f"fast layers are known for {', '.join(BLOCKS)}"
        try:
            with evaluating(walk.stock), torch.no_grad():
                apart = self._apart()
        except (AttributeError, TypeError, RuntimeError) as error:
            return f"its layers are not those of a usual {walk.family} ({error})"
        return None if apart <= _tolerance(walk) else f"its layers answer otherwise than those of a usual {walk.family}"

    def _apart(self) -> float:
        """How far hidden states are from the reference's, on rows of different lengths; of the largest."""
        walk, batch = self.walk, self.walk.sample(3, 12, padding=5)
        steps = straight(range(walk.num_base_layers))
        wanted = run_steps(walk, steps, walk.embed(batch)).hidden
        found, mask = run_steps(self, steps, self.embed(batch)).tokens().padded()
        apart, most = (wanted - found)[mask].abs().max(), wanted[mask].abs().max()
        return float(apart / most.clamp(min=1.0))

    # The backend

    def embed(self, batch: dict[str, Tensor], joinable: bool = False, first: int = 0) -> State:
        """The batch before its first layer: a padded one, or one that `batch` made."""
        self._freshen()
        packed = self.packed(batch)
        if packed is None:
            return self.walk.embed(batch, joinable, first)
        device, lengths, group = self.walk.base.device, packed["lengths"], packed.get("group")
        values = {name: packed[name] for name in FACTS if name in packed}
        together = torch.stack([value.long() for value in values.values()]).to(device)  # one transfer, not several
        on = dict(zip(values, together.unbind(), strict=True))
        return PackedState(
            row=torch.arange(first, first + len(lengths), device=device),
            position=on.pop("position"),
            protected=on.pop("protected").bool() if "protected" in on else None,
            hidden=self.embedded(**on),
            group=None if group is None else group.to(device) + first,
            packing=Packing(lengths.to(device), int(lengths.sum()), int(lengths.max())),
            columns=int(packed.get("columns", lengths.max())),
        )

    def packed(self, batch: dict[str, Tensor]) -> dict[str, Tensor] | None:
        """A batch without its padding, on the host, as `batch` makes it; None where that is not at the end of rows."""
        if "lengths" in batch:
            return batch
        # Sizes are the host's business, so packing is done there.
        inputs = {name: value.cpu() for name, value in self.walk.inputs_of(batch).items()}
        ids = inputs["input_ids"]
        columns = ids.shape[1]
        mask = inputs.pop("attention_mask", torch.ones_like(ids)).bool()
        lengths, position = mask.sum(1), torch.arange(columns).expand_as(ids)
        if not bool((mask == (position < lengths.unsqueeze(1))).all()):
            return None
        values = {**inputs, "position": position}
        if "protected" in batch:
            values["protected"] = batch["protected"].cpu()
        if "position_ids" not in values:
            values["position_ids"] = self._position_ids(ids, position)
        if int(lengths.min()) == columns:
            packed = {name: value.flatten() for name, value in values.items()}
        else:
            index = mask.flatten().nonzero().squeeze(1)
            packed = {name: value.flatten()[index] for name, value in values.items()}
        rest = {"lengths": lengths, "columns": torch.tensor(columns)}
        return packed | rest | ({"group": batch["group"]} if "group" in batch else {})

    def batch(self, rows: Sequence[Encoded]) -> dict[str, Tensor]:
        """Rows of token ids as a batch that never was padded."""
        lengths = torch.tensor([len(row) for row in rows])
        tokens = int(lengths.sum())
        found = {}
        for name in rows[0].ids:
            flat = chain.from_iterable(row.ids[name] for row in rows)
            found[name] = torch.from_numpy(np.fromiter(flat, dtype=np.int64, count=tokens))
        starts = (lengths.cumsum(0) - lengths).repeat_interleave(lengths, output_size=tokens)
        position = torch.arange(tokens) - starts
        position_ids = self._position_ids(found["input_ids"], position, starts)
        return {**found, "position": position, "position_ids": position_ids, "lengths": lengths}

    def run(self, state: Any, step: Step) -> State:
        if isinstance(state, PaddedState):
            return self.walk.run(state, step)
        state = state.finished()
        block = self._blocks.get(step.layer) or self._make(step.layer)
        if step.reads_first and _saves(state, 1.0 if step.last else LEAVING):
            return state.begin(block)
        return state.advance(*block(state, step.watch))

    @property
    def pads_nothing(self) -> bool:
        """Whether attention has kernels for rows of different lengths: on a GPU in 16 bits, without a learned bias."""
        weight = next(self.walk.base.parameters())
        return weight.device.type == "cpu" or (weight.dtype in HALF and self.walk.family != "mpnet")

    # Parts

    def _make(self, layer: int) -> Block:
        block = self._block(layer)
        self._copied += [(one, (one.data_ptr(), _version(one))) for one in self._copied_by(block)]
        self._blocks[layer] = block = self._fitted(block, layer)
        return block

    def _block(self, layer: int) -> Block:
        return BLOCKS[self.walk.family](self.walk.layers[layer], self.walk.base)

    def _copied_by(self, block: Block) -> tuple[Tensor, ...]:
        """The weights that a layer does not share."""
        maps = block.sources if self._copies_all(block) else block.qkv.copied
        return (*maps, *(block.distances.copied if block.distances else ()))

    def _copies_all(self, block: Block) -> bool:
        """Whether a layer computes with copies of all its linear maps."""
        return _by_onednn(block)

    def _fitted(self, block: Block, layer: int) -> Block:
        """The layer as this backend runs it."""
        if not _by_onednn(block):
            return block
        return block.with_maps({name: dense.for_onednn() for name, dense in block.maps.items()}).in_parts(rounds=True)

    def _position_ids(self, ids: Tensor, position: Tensor, starts: Tensor | None = None) -> Tensor:
        """What the encoder looks positions up by; of rows that lie one after the other, `starts` says where."""
        if self.walk.family not in COUNTED:
            return position
        embeddings: Any = self.walk.base.embeddings
        real = (ids != embeddings.padding_idx).long()
        up_to = real.cumsum(-1)
        if starts is not None:
            up_to = up_to - up_to[starts] + real[starts]
        return up_to * real + embeddings.padding_idx

    def embedded(self, input_ids: Tensor, **others: Tensor) -> Tensor:
        """[tokens, width] of the encoder's inputs, [tokens] each."""
        base: Any = self.walk.base
        if self.walk.family == "modernbert":
            return base.embeddings(input_ids=input_ids)
        one_row = {name: value.unsqueeze(0) for name, value in others.items()}
        hidden = base.embeddings(input_ids=input_ids.unsqueeze(0), **one_row)
        if hasattr(base, "embeddings_project"):
            hidden = base.embeddings_project(hidden)
        return hidden.squeeze(0)

    @property
    def generation(self) -> int:
        """A number that grows when layers are made anew."""
        self._freshen()
        return self._generation

    def _freshen(self) -> None:
        """Forget layers that were made from other weights."""
        now = [(one.data_ptr(), _version(one)) for one, _ in self._copied]
        if now != [then for _, then in self._copied]:
            self._forget()

    def _forget(self) -> None:
        self._blocks, self._copied = {}, []
        self._generation += 1

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_blocks": {}, "_copied": []}


def _count_change(optimizer: Optimizer, *unused: Any) -> None:
    """Fused optimizers change weights behind the back of their version counters, by which layers know of changes."""
    for group in optimizer.param_groups:
        if group.get("fused"):
            increment_version([one for one in group["params"] if one.grad is not None])


register_optimizer_step_post_hook(_count_change)


def _by_onednn(block: Block) -> bool:
    """Whether products of this layer are faster that way."""
    weight = block.qkv.weight
    plain = weight.device.type == "cpu" and weight.dtype == torch.float32
    return plain and prefers_onednn()


def _saves(state: PackedState, leaving: float) -> bool:
    """Whether first tokens are better taken through the rest of a layer before the others, if this share of tokens
    leaves then. On a GPU the host does not wait to know who."""
    return not state.hidden.is_cuda and leaving * (state.size + STREAMED) > len(state) + STREAMED


def _version(parameter: Tensor) -> int:
    return 0 if parameter.is_inference() else parameter._version


def _tolerance(walk: Walk) -> float:
    return max(AGREED, 8 * torch.finfo(walk.stock.dtype).eps)
