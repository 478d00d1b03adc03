"""Any Hugging Face encoder, layer by layer: its prologue prepares the states, its own layers run one at a time.

The prologue (paredown.encoders.shadows) records how the encoder would call its layers: embeddings, masks, rotary
tables, position biases. Then the real layers run one by one, and between two of them rows may leave and tokens may go.
No family is known by name; what must be known of one is found by probing (paredown.encoders.probing).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from paredown.encoders.arguments import Argument, Axes
from paredown.encoders.attention import Watching
from paredown.encoders.padded import PaddedState
from paredown.encoders.shadows import Epilogue, Prologue, RecordedCall
from paredown.errors import BadPlan, CannotWalk

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from paredown.route import Step

INPUTS = ("input_ids", "attention_mask", "token_type_ids", "position_ids")
BLIND = "its attention cannot be watched: a layer must compute it once, by scaled_dot_product_attention or a softmax"


@dataclass(frozen=True)
class Slot:
    """Where a tensor argument goes in a recorded call."""

    number: int


@dataclass(frozen=True)
class Call:
    args: tuple[Any, ...]  # after the hidden states
    kwargs: dict[str, Any]
    by_name: bool  # the hidden states are passed as hidden_states=…


class Walk:
    """The reference backend: the layers of one encoder, exactly as it would run them."""

    family: str
    layers: list[nn.Module]  # in the order the encoder calls them (ALBERT calls one layer many times)
    num_base_layers: int  # the encoder's own; others may be appended
    like: list[int]  # of each layer, the one of the encoder's whose arguments it gets
    norm: nn.Module | None  # applied once after the last layer, in some families
    width: int
    axes: dict[str, Axes]
    drops_tokens: bool
    shows_attention: bool
    reads_first_token: bool  # whether the classifier answers each row from its first token alone
    prologue: Prologue
    epilogue: Epilogue

    def __init__(self, stock: PreTrainedModel):
        from paredown.encoders.probing import probe

        self.stock = stock
        self.base: PreTrainedModel = stock.base_model
        self.family = stock.config.model_type
        probe(self)

    # The backend

    def embed(self, batch: dict[str, Tensor], joinable: bool = False, first: int = 0) -> PaddedState:
        """The batch before its first layer. `joinable`: tokens will go or rows of other batches come, so every mask
        must be there; `first` is the number of its first row."""
        inputs = self.inputs_of(batch)
        ids = inputs["input_ids"]
        row = torch.arange(first, first + len(ids), device=ids.device)
        mask = inputs["attention_mask"].bool() if "attention_mask" in inputs else torch.ones_like(ids).bool()
        inputs["attention_mask"] = mask.long()
        # An encoder leaves its mask out when nothing is padded; a padded extra row brings it back.
        hidden, recorded = self.prologue(with_padded_row(inputs) if joinable else inputs)
        arguments, calls = self._slots(recorded)
        if joinable:
            index = row - first
            hidden, arguments = hidden[: len(ids)], tuple(argument.take(index) for argument in arguments)
        position = torch.arange(ids.shape[1], device=ids.device).expand_as(ids)
        group = batch.get("group")
        group = group + first if first and group is not None else group
        return PaddedState(
            hidden=hidden,
            mask=mask,
            row=row,
            position=position,
            arguments=arguments,
            calls=calls,
            protected=batch.get("protected"),
            group=group,
        )

    def run(self, state: PaddedState, step: Step) -> PaddedState:
        """Run a layer; where the step asks for it, note how much attention every token receives in it."""
        if not step.watch:
            return state.advance(self._run(step.layer, state))
        with Watching(state.mask) as watching:
            hidden = self._run(step.layer, state)
        if len(watching.received) != 1:
            raise BadPlan(f"{self.family}: {BLIND}")
        return state.advance(hidden, watching.received[0])

    def finish(self, hidden: Tensor) -> Tensor:
        """What the encoder would return if it ended here (families that normalise once at the end do it here)."""
        return hidden if self.norm is None else self.norm(hidden)

    def stock_logits(self, hidden: Tensor, mask: Tensor) -> Tensor:
        """What the model's own classifier answers if the encoder ended here, final norm and pooler included."""
        return logits_of(self.epilogue(hidden, mask))

    # Facts

    def append(self, layer: nn.Module, like: int) -> None:
        """One more layer, for plans to run; it is called with the arguments of the encoder's layer `like`."""
        self.layers.append(layer)
        self.like.append(like)

    def body(self) -> list[nn.Parameter]:
        """The encoder's parameters: embeddings, layers, norms; not the pooler, which only its classifier reads."""
        own = [parameter for name, parameter in self.base.named_parameters() if not name.startswith("pooler.")]
        return own + [parameter for layer in self.layers[self.num_base_layers :] for parameter in layer.parameters()]

    @property
    def pooler(self) -> nn.Linear | None:
        """The square linear map of the encoder's pooler, where it has one."""
        for name, module in self.base.named_modules():
            if name.split(".")[0] == "pooler" and isinstance(module, nn.Linear):
                return module if module.in_features == module.out_features == self.width else None
        return None

    def inputs_of(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """The entries of a batch that the encoder reads."""
        return {name: batch[name] for name in INPUTS if batch.get(name) is not None}

    def sample(self, rows: int, tokens: int, padding: int = 0) -> dict[str, Tensor]:
        return plain_batch(self.base, rows, tokens, padding)

    # Calls

    def _slots(self, recorded: list[RecordedCall]) -> tuple[tuple[Argument, ...], tuple[Call, ...]]:
        """Tensors out of the calls, each kept once however many layers share it."""
        arguments: list[Argument] = []
        known: dict[int, Slot] = {}
        calls: list[Call] = []

        def slot(value: Tensor, path: str) -> Slot:
            if id(value) not in known:
                if path not in self.axes:
                    raise CannotWalk(f"{self.family}: argument {path} was not there when the encoder was adopted")
                known[id(value)] = Slot(len(arguments))
                arguments.append(Argument(value, self.axes[path]))
            return known[id(value)]

        for layer, call in enumerate(recorded):
            if layer and call.repeats(recorded[layer - 1]):
                calls.append(calls[-1])
                continue
            path = str(layer)
            calls.append(Call(map_tree(call.args, slot, path), map_tree(call.kwargs, slot, path), call.by_name))
        return tuple(arguments), tuple(calls)

    def _run(self, layer: int, state: PaddedState) -> Tensor:
        call = state.calls[self.like[layer]]
        if id(call) not in state.filled:
            state.filled[id(call)] = _fill(call.args, state.arguments), _fill(call.kwargs, state.arguments)
        args, kwargs = state.filled[id(call)]
        if call.by_name:
            output = self.layers[layer](*args, hidden_states=state.hidden, **kwargs)
        else:
            output = self.layers[layer](state.hidden, *args, **kwargs)
        return output[0] if isinstance(output, tuple) else output


def map_tree(tree: Any, leaf: Callable[[Tensor, str], Any], path: str) -> Any:
    """The same containers with every tensor replaced by what `leaf` makes of it and its path."""
    if isinstance(tree, Tensor):
        return leaf(tree, path)
    if isinstance(tree, (tuple, list)):
        return type(tree)(map_tree(item, leaf, f"{path}.{index}") for index, item in enumerate(tree))
    if isinstance(tree, dict):
        return {key: map_tree(item, leaf, f"{path}.{key}") for key, item in tree.items()}
    return tree


def _fill(tree: Any, arguments: tuple[Argument, ...]) -> Any:
    """The same containers with every slot replaced by its tensor."""
    if isinstance(tree, Slot):
        return arguments[tree.number].value
    if isinstance(tree, (tuple, list)):
        return type(tree)(_fill(item, arguments) for item in tree)
    if isinstance(tree, dict):
        return {key: _fill(item, arguments) for key, item in tree.items()}
    return tree


def plain_batch(model: PreTrainedModel, rows: int, tokens: int, padding: int = 0) -> dict[str, Tensor]:
    """Some tokens for an encoder to read; the first row ends with `padding` padded positions."""
    config = model.config
    pad = getattr(config, "pad_token_id", None)
    pad = 0 if pad is None else pad
    usable = torch.tensor([token for token in range(min(config.vocab_size, 97)) if token > 4 and token != pad])
    ids = usable[torch.arange(rows * tokens).mul(7).add(3) % len(usable)].view(rows, tokens).to(model.device)
    mask = torch.ones_like(ids)
    if padding:
        ids[0, -padding:], mask[0, -padding:] = pad, 0
    return {"input_ids": ids, "attention_mask": mask}


def with_padded_row(inputs: dict[str, Tensor], hide: tuple[int, ...] = ()) -> dict[str, Tensor]:
    """One more row, padded after its first token, so that no encoder leaves its mask out."""
    inputs = {name: torch.cat([value, value[:1]]) for name, value in inputs.items()}
    inputs["attention_mask"][-1, 1:] = 0
    for position in hide:
        inputs["attention_mask"][0, position] = 0
    return inputs


def logits_of(output: Any) -> Tensor:
    """What a Hugging Face model answers; of a span start and end beside each other, [rows, tokens, 2]."""
    if "logits" in output:
        return output.logits
    return torch.stack([output.start_logits, output.end_logits], -1)
