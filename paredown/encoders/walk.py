"""Any Hugging Face encoder, layer by layer: record once how its layers are called, replay them, check itself.

For one call every layer is replaced by a recorder that hands its input on. The encoder prepares its own embeddings,
masks, rotary tables and position biases, and we keep them; then the real layers run one by one, and between two of
them rows may leave and tokens may go. No family is known by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from paredown.encoders.attention import watching
from paredown.encoders.patched import patched
from paredown.errors import BadPlan, CannotWalk
from paredown.state import Argument, Axes, State

if TYPE_CHECKING:
    from transformers import PreTrainedModel

INPUTS = ("input_ids", "attention_mask", "token_type_ids", "position_ids")
EXACT = 1e-5  # largest difference from the stock forward that adoption accepts; same kernels give 0
BLIND = "its attention cannot be watched: only sdpa and eager, called as transformers' registry has them, can be"
LEAK = 1e-4  # largest difference that padding may make to a real token's state, or as much as 16 bits round


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
    """The layers of one encoder and how to run them one at a time."""

    def __init__(self, stock: PreTrainedModel):
        self.stock = stock
        self.base: PreTrainedModel = stock.base_model
        self.family: str = stock.config.model_type
        self._axes: dict[str, Axes] = {}
        self._tuple_length: int | None = None  # layers that answer a tuple, hidden states first
        self._leak = max(LEAK, 8 * torch.finfo(stock.dtype).eps)
        made_of = [type(module) for module in stock.modules()]
        with torch.no_grad(), evaluating(stock):
            self.layers = self._find_layers()
            self.own = len(self.layers)  # the encoder's; others may be appended
            self.like = list(range(self.own))  # of each layer, the one of the encoder's whose arguments it gets
            self.norm = self._find_norm()
            self._probe_axes()
            self._check()
            self.drops_tokens = self._try_dropping()
        if made_of != [type(module) for module in stock.modules()]:
            raise CannotWalk(f"{self.family}: a short text changes it for good, so answers depend on earlier ones")

    # Walking

    def start(self, inputs: dict[str, Tensor], may_drop: bool = False) -> State:
        """The batch before its first layer. `may_drop`: tokens will go, so every mask must be there to be cut."""
        if may_drop and not self.drops_tokens:
            raise BadPlan(f"{self.family}: its layers tie tokens to their places, so none can be dropped")
        protected, group = inputs.get("protected"), inputs.get("group")
        inputs = self.inputs_of(inputs)
        ids = inputs["input_ids"]
        row = torch.arange(len(ids), device=ids.device)
        mask = inputs.get("attention_mask", torch.ones_like(ids)).bool()
        inputs["attention_mask"] = mask.long()
        # An encoder leaves its mask out when nothing is padded; a padded extra row brings it back.
        hidden, recorded = self._record(_with_padded_row(inputs) if may_drop else inputs)
        arguments, calls = self._slots(recorded)
        if may_drop:
            hidden, arguments = hidden[: len(ids)], tuple(argument.keep_rows(row) for argument in arguments)
        position = torch.arange(ids.shape[1], device=ids.device).expand_as(ids)
        return State(hidden, mask, row, position, arguments, calls, protected=protected, group=group)

    def step(self, state: State, layer: int, watch: bool = False) -> State:
        """Run one layer. `watch`: note how much attention every token receives in it."""
        run = partial(self._run, self.layers[layer], state.calls[self.like[layer]], state.hidden, state.arguments)
        if not watch:
            return state.advance(run())
        with watching(state.mask) as seen:
            hidden = run()
        if len(seen) != 1:
            raise BadPlan(f"{self.family}: {BLIND}")
        return state.advance(hidden, seen[0])

    @cached_property
    def shows_attention(self) -> bool:
        """Whether a layer can be watched."""
        with torch.no_grad(), evaluating(self.stock):
            try:
                self.step(self.start(self.sample(2, 10)), 0, watch=True)
            except BadPlan:
                return False
        return True

    def append(self, layer: nn.Module, like: int) -> None:
        """One more layer, for plans to run; it is called with the arguments of the encoder's layer `like`."""
        self.layers.append(layer)
        self.like.append(like)

    def finish(self, hidden: Tensor) -> Tensor:
        """What the encoder would return if it ended here (families that normalise once at the end do it here)."""
        return hidden if self.norm is None else self.norm(hidden)

    def stock_logits(self, hidden: Tensor, mask: Tensor) -> Tensor:
        """What the model's own classifier says if the encoder ended here, final norm and pooler included."""
        places = {"input_ids": mask.long(), "attention_mask": mask.long()}  # only their shape and mask are read
        with patched(self.layers, "forward", lambda *args, **kwargs: self._as_output(hidden)):
            return logits_of(self.stock(**places))

    def body(self) -> list[nn.Parameter]:
        """The encoder's parameters: embeddings, layers, norms; not the pooler, which only its classifier reads."""
        own = [parameter for name, parameter in self.base.named_parameters() if not name.startswith("pooler.")]
        return own + [parameter for layer in self.layers[self.own :] for parameter in layer.parameters()]

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

    # Adoption

    def _find_layers(self) -> list[nn.Module]:
        """The layers in the order the encoder calls them (ALBERT calls one layer many times)."""
        reasons = []
        for candidates in self._candidates():
            order: list[nn.Module] = []
            outputs: list[Any] = []

            def note(module: nn.Module, args: Any, output: Any, order: list = order, outputs: list = outputs) -> None:
                order.append(module)
                outputs.append(output)

            hooks = [module.register_forward_hook(note) for module in candidates]
            try:
                self.base(**self.sample(2, 10))
            except Exception as error:  # any failure of foreign code means the same: this model cannot be walked
                raise CannotWalk(f"{self.family}: its own forward fails on a plain batch ({error})") from error
            finally:
                for hook in hooks:
                    hook.remove()
            if len(order) == getattr(self.stock.config, "num_hidden_layers", len(order)) and order:
                self._tuple_length = len(outputs[0]) if isinstance(outputs[0], tuple) else None
                return order
            reasons.append(f"{len(order)} calls of {type(candidates[0]).__name__}")
        raise CannotWalk(
            f"{self.family}: no stack of {getattr(self.stock.config, 'num_hidden_layers', '?')} layers found"
            + (f" (saw {', '.join(reasons)})" if reasons else "")
        )

    def _candidates(self) -> Iterator[list[nn.Module]]:
        recorded = (getattr(self.base, "_can_record_outputs", None) or {}).get("hidden_states")
        named = recorded if isinstance(recorded, (list, tuple)) else [recorded]
        classes: Any = tuple(c for c in (getattr(item, "target_class", item) for item in named) if isinstance(c, type))
        if classes and (found := [module for module in self.base.modules() if isinstance(module, classes)]):
            yield found
        wanted = getattr(self.stock.config, "num_hidden_layers", None)
        for module in self.base.modules():
            if isinstance(module, nn.ModuleList) and len(module) == wanted:
                yield list(module)

    def _find_norm(self) -> nn.Module | None:
        """The norm that some families apply once, after their last layer."""
        seen: list[tuple[nn.Module, Any, Any]] = []
        inside = {child for layer in self.layers for child in layer.modules()} - {self.layers[-1]}
        outside = [module for module in self.base.modules() if module not in inside]
        hooks = [module.register_forward_hook(lambda *call: seen.append(call)) for module in outside]
        try:
            final = self.base(**self.sample(2, 10)).last_hidden_state
        finally:
            for hook in hooks:
                hook.remove()
        ran = max(place for place, (module, _, _) in enumerate(seen) if module is self.layers[-1])
        last = _first(seen[ran][2])
        self.width = int(final.shape[-1])
        if _same(last, final):
            return None
        for module, args, output in seen[ran + 1 :]:
            if args and _same(args[0], last) and _same(_first(output), final):
                return module
        raise CannotWalk(f"{self.family}: what follows its last layer is more than a norm")

    def _probe_axes(self) -> None:
        """Which dimensions of each argument move with the rows, which with the tokens, and what hides a token."""
        base, more_rows, more_tokens, hidden = (
            self._leaves(self._record(_with_padded_row(self.sample(*shape), hide=hide))[1])
            for shape, hide in (((1, 10), ()), ((2, 10), ()), ((1, 12), ()), ((1, 10), (4,)))
        )
        for path, value in base.items():
            rows = [d for d, n in enumerate(value.shape) if (n, more_rows[path].shape[d]) == (2, 3)]
            moved = [d for d, n in enumerate(value.shape) if more_tokens[path].shape[d] != n]
            tokens = tuple(d for d in moved if (value.shape[d], more_tokens[path].shape[d]) == (10, 12))
            followed = [d for d, n in enumerate(value.shape) if more_rows[path].shape[d] != n]
            if rows != followed or len(rows) > 1:
                raise CannotWalk(f"{self.family}: argument {path} mixes rows with another dimension")
            masked = None
            if tokens and not torch.equal(value, hidden[path]):
                masked = hidden[path].select(tokens[-1], 4).flatten()[0].item()
            self._axes[path] = Axes(rows[0] if rows else None, tokens, masked, list(tokens) == moved)

    def _check(self) -> None:
        """Replay against the stock forward, with and without padding; and make sure this is an encoder."""
        for padding in (0, 3):
            inputs = self.sample(3, 12, padding)
            expected = logits_of(self.stock(**inputs))
            state = self.start(inputs)
            for layer in range(len(self.layers)):
                state = self.step(state, layer)
            finished = self.finish(state.hidden)
            real = state.mask
            stock = self.base(**inputs).last_hidden_state
            if not _close(finished[real], stock[real]):
                raise CannotWalk(f"{self.family}: replaying its layers does not give its own hidden states")
            if not _close(self.stock_logits(state.hidden, real), expected):
                raise CannotWalk(f"{self.family}: its classifier reads more than the final hidden states")
        alone = {name: value[:1, :-3] for name, value in inputs.items()}  # the padded row without its padding
        if not _close(self.base(**alone).last_hidden_state, stock[:1, :-3], self._leak):
            raise CannotWalk(f"{self.family}: its answers depend on padding, so they would depend on the batch")
        changed = {**inputs, "input_ids": inputs["input_ids"].clone()}
        changed["input_ids"][:, 8] = changed["input_ids"][:, 7]
        if torch.equal(self.base(**changed).last_hidden_state[:, 0], stock[:, 0]):
            raise CannotWalk(f"{self.family}: its first token does not see later ones: a decoder, or no attention here")

    def _try_dropping(self) -> bool:
        """True where a token that is cut out leaves the others as a token that is only hidden does."""
        inputs = self.sample(2, 10)
        inputs["attention_mask"][0, 4] = inputs["attention_mask"][1, 2] = inputs["attention_mask"][1, 5] = 0
        self.drops_tokens = True  # until shown otherwise
        try:
            hidden, cut = self.start(inputs), self.start(inputs, may_drop=True)
            cut = cut.keep_tokens(cut.mask)
            for layer in range(len(self.layers)):
                hidden, cut = self.step(hidden, layer), self.step(cut, layer)
        except (BadPlan, RuntimeError):  # layers that receive shapes they do not know
            return False
        return _close(cut.hidden[cut.mask], hidden.hidden[hidden.mask], self._leak)

    def sample(self, rows: int, tokens: int, padding: int = 0) -> dict[str, Tensor]:
        return plain_batch(self.base, rows, tokens, padding)

    # Recording

    def _record(self, inputs: dict[str, Tensor]) -> tuple[Tensor, list[tuple[tuple, dict, bool]]]:
        """The hidden states before the first layer, and the arguments of every layer call."""
        first: list[Tensor] = []
        calls: list[tuple[tuple, dict, bool]] = []

        def recorder(*args: Any, **kwargs: Any) -> Any:
            by_name = "hidden_states" in kwargs
            hidden = kwargs.pop("hidden_states") if by_name else args[0]
            if not first:
                first.append(hidden)
            calls.append((args if by_name else args[1:], kwargs, by_name))
            return self._as_output(hidden)

        with patched(self.layers, "forward", recorder):
            self.base(**inputs)
        return first[0], calls

    def _slots(self, recorded: list[tuple[tuple, dict, bool]]) -> tuple[tuple[Argument, ...], tuple[Call, ...]]:
        """Tensors out of the calls, each kept once however many layers share it."""
        arguments: list[Argument] = []
        known: dict[int, Slot] = {}

        def slot(value: Tensor, path: str) -> Slot:
            if id(value) not in known:
                if path not in self._axes:
                    raise CannotWalk(f"{self.family}: argument {path} was not there when the encoder was adopted")
                known[id(value)] = Slot(len(arguments))
                arguments.append(Argument(value, self._axes[path]))
            return known[id(value)]

        calls = tuple(
            Call(_map(args, slot, f"{place}"), _map(kwargs, slot, f"{place}"), by_name)
            for place, (args, kwargs, by_name) in enumerate(recorded)
        )
        return tuple(arguments), calls

    def _leaves(self, recorded: list[tuple[tuple, dict, bool]]) -> dict[str, Tensor]:
        leaves: dict[str, Tensor] = {}
        for place, (args, kwargs, _) in enumerate(recorded):
            for tree in (args, kwargs):
                _map(tree, lambda value, path: leaves.__setitem__(path, value), f"{place}")
        return leaves

    def _as_output(self, hidden: Tensor) -> Any:
        return hidden if self._tuple_length is None else (hidden, *[None] * (self._tuple_length - 1))

    def _run(self, layer: nn.Module, call: Call, hidden: Tensor, arguments: tuple[Argument, ...]) -> Tensor:
        args, kwargs = _fill(call.args, arguments), _fill(call.kwargs, arguments)
        output = layer(*args, hidden_states=hidden, **kwargs) if call.by_name else layer(hidden, *args, **kwargs)
        return _first(output)


def _map(tree: Any, leaf: Callable[[Tensor, str], Any], path: str) -> Any:
    """The same containers with every tensor replaced by what `leaf` says of it and its path."""
    if isinstance(tree, Tensor):
        return leaf(tree, path)
    if isinstance(tree, (tuple, list)):
        return type(tree)(_map(item, leaf, f"{path}.{place}") for place, item in enumerate(tree))
    if isinstance(tree, dict):
        return {key: _map(item, leaf, f"{path}.{key}") for key, item in tree.items()}
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
    """Some tokens for an encoder to read; the first row ends with `padding` padded places."""
    config = model.config
    pad = getattr(config, "pad_token_id", None)
    pad = 0 if pad is None else pad
    usable = torch.tensor([token for token in range(min(config.vocab_size, 97)) if token > 4 and token != pad])
    ids = usable[torch.arange(rows * tokens).mul(7).add(3) % len(usable)].view(rows, tokens).to(model.device)
    mask = torch.ones_like(ids)
    if padding:
        ids[0, -padding:], mask[0, -padding:] = pad, 0
    return {"input_ids": ids, "attention_mask": mask}


def _with_padded_row(inputs: dict[str, Tensor], hide: tuple[int, ...] = ()) -> dict[str, Tensor]:
    """One more row, padded after its first token, so that no encoder leaves its mask out."""
    inputs = {name: torch.cat([value, value[:1]]) for name, value in inputs.items()}
    inputs["attention_mask"][-1, 1:] = 0
    for place in hide:
        inputs["attention_mask"][0, place] = 0
    return inputs


def logits_of(output: Any) -> Tensor:
    """What a Hugging Face model answers; of a span start and end beside each other, [rows, tokens, 2]."""
    if "logits" in output:
        return output.logits
    return torch.stack([output.start_logits, output.end_logits], -1)


def _first(output: Any) -> Tensor:
    return output[0] if isinstance(output, tuple) else output


def _same(a: Any, b: Any) -> bool:
    return isinstance(a, Tensor) and isinstance(b, Tensor) and a.shape == b.shape and torch.equal(a, b)


def _close(a: Tensor, b: Tensor, tolerance: float = EXACT) -> bool:
    return a.shape == b.shape and bool(((a - b).abs().max() <= tolerance * max(1.0, b.abs().max().item())).item())


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Eval mode for a moment; every module's own mode comes back."""
    learning = [module for module in model.modules() if module.training]
    for module in learning:
        module.training = False
    try:
        yield
    finally:
        for module in learning:
            module.training = True
