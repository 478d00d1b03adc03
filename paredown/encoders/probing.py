"""What must be known of an encoder to walk it, found once by running it: layers, norm, arguments, what it allows.

A self-check refuses a model whose layers, run one by one, do not give its own answers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from paredown.encoders.arguments import Axes
from paredown.encoders.padded import PaddedState
from paredown.encoders.shadows import Epilogue, Prologue, RecordedCall
from paredown.encoders.walk import Walk, logits_of, map_tree, with_padded_row
from paredown.engine import run_steps
from paredown.errors import BadPlan, CannotWalk
from paredown.route import straight

EXACT = 1e-5  # largest difference from the stock forward that adoption accepts; same kernels give 0
LEAK = 1e-4  # largest difference that padding may make to a real token's state, or as much as 16 bits round


@torch.no_grad()
def probe(walk: Walk) -> None:
    """Find out all that `walk` must know."""
    made_of = [type(module) for module in walk.stock.modules()]
    with evaluating(walk.stock), _in_full_precision():
        walk.layers, output = _find_layers(walk)
        walk.num_base_layers = len(walk.layers)
        walk.like = list(range(len(walk.layers)))
        walk.norm, walk.width, early = _find_norm(walk)
        walk.prologue = Prologue(walk.base, walk.layers, output)
        walk.axes = _find_axes(walk)
        _find_epilogue(walk, output, early)
        walk.drops_tokens = _try_dropping(walk)
        walk.shows_attention = _try_watching(walk)
    if made_of != [type(module) for module in walk.stock.modules()]:
        raise CannotWalk(f"{walk.family}: a short text changes it for good, so answers depend on earlier ones")


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Eval mode for a moment, while a model is adopted or trained; every module's own mode comes back."""
    learning = [module for module in model.modules() if module.training]
    for module in learning:
        module.training = False
    try:
        yield
    finally:
        for module in learning:
            module.training = True


@contextmanager
def _in_full_precision() -> Iterator[None]:
    """32 bits in matrix products for a moment: where TF32 is allowed, sums round by as much as padding would change."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@dataclass(frozen=True)
class LayerOutput:
    """Hidden states in the form that a layer returns them: bare, or first in a tuple of so many."""

    tuple_length: int | None

    def __call__(self, hidden: Tensor) -> Any:
        return hidden if self.tuple_length is None else (hidden, *[None] * (self.tuple_length - 1))


@dataclass(frozen=True)
class EncoderOutput:
    """Last hidden states in the form that an encoder returns them."""

    form: type
    norm: nn.Module | None
    pooler: nn.Module | None

    def __call__(self, hidden: Tensor) -> Any:
        final = hidden if self.norm is None else self.norm(hidden)
        return self.form(last_hidden_state=final, **({"pooler_output": self.pooler(final)} if self.pooler else {}))


def _find_layers(walk: Walk) -> tuple[list[nn.Module], LayerOutput]:
    """The layers in the order the encoder calls them, and the form of their output."""
    reasons = []
    wanted = getattr(walk.stock.config, "num_hidden_layers", None)
    for candidates in _candidates(walk):
        order: list[nn.Module] = []
        outputs: list[Any] = []

        def note(module: nn.Module, args: Any, output: Any, order: list = order, outputs: list = outputs) -> None:
            order.append(module)
            outputs.append(output)

        try:
            with _hooked(candidates, note):
                walk.base(**walk.sample(2, 10))
        except Exception as error:  # any failure of foreign code means the same: this model cannot be walked
            raise CannotWalk(f"{walk.family}: its own forward fails on a plain batch ({error})") from error
        if order and wanted in (None, len(order)):
            return order, LayerOutput(len(outputs[0]) if isinstance(outputs[0], tuple) else None)
        reasons.append(f"{len(order)} calls of {type(candidates[0]).__name__}")
    found = f" (saw {', '.join(reasons)})" if reasons else ""
    raise CannotWalk(f"{walk.family}: no stack of {'?' if wanted is None else wanted} layers found{found}")


def _candidates(walk: Walk) -> Iterator[list[nn.Module]]:
    recorded = (getattr(walk.base, "_can_record_outputs", None) or {}).get("hidden_states")
    named = recorded if isinstance(recorded, (list, tuple)) else [recorded]
    classes: Any = tuple(c for c in (getattr(item, "target_class", item) for item in named) if isinstance(c, type))
    if classes and (found := [module for module in walk.base.modules() if isinstance(module, classes)]):
        yield found
    wanted = getattr(walk.stock.config, "num_hidden_layers", None)
    for module in walk.base.modules():
        if isinstance(module, nn.ModuleList) and len(module) == wanted:
            yield list(module)


def _find_norm(walk: Walk) -> tuple[nn.Module | None, int, list[nn.Module]]:
    """The norm that some families apply once, after their last layer; the width of its output; and the modules that
    ran to their end before the first layer."""
    seen: list[tuple[nn.Module, Any, Any]] = []
    inside = {child for layer in walk.layers for child in layer.modules()} - {*walk.layers}
    outside = [module for module in walk.base.modules() if module not in inside]
    with _hooked(outside, lambda *call: seen.append(call)):
        final = walk.base(**walk.sample(2, 10)).last_hidden_state
    began = next(index for index, (module, _, _) in enumerate(seen) if module in walk.layers)
    early, width = [module for module, _, _ in seen[:began]], int(final.shape[-1])
    ended = max(index for index, (module, _, _) in enumerate(seen) if module is walk.layers[-1])
    last = _first(seen[ended][2])
    if _same(last, final):
        return None, width, early
    for module, args, output in seen[ended + 1 :]:
        if args and _same(args[0], last) and _same(_first(output), final):
            return module, width, early
    raise CannotWalk(f"{walk.family}: what follows its last layer is more than a norm")


@contextmanager
def _hooked(modules: list[nn.Module], note: Any) -> Iterator[None]:
    hooks = [module.register_forward_hook(note) for module in modules]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _find_axes(walk: Walk) -> dict[str, Axes]:
    """Which dimensions of each argument move with the rows, which with the tokens, and what hides a token."""
    found: dict[str, Axes] = {}
    base, more_rows, more_tokens, hidden = (
        _leaves(walk.prologue(with_padded_row(walk.sample(*shape), hide=hide))[1])
        for shape, hide in (((1, 10), ()), ((2, 10), ()), ((1, 12), ()), ((1, 10), (4,)))
    )
    for path, value in base.items():
        rows = [d for d, n in enumerate(value.shape) if (n, more_rows[path].shape[d]) == (2, 3)]
        moved = [d for d, n in enumerate(value.shape) if more_tokens[path].shape[d] != n]
        tokens = tuple(d for d in moved if (value.shape[d], more_tokens[path].shape[d]) == (10, 12))
        followed = [d for d, n in enumerate(value.shape) if more_rows[path].shape[d] != n]
        if rows != followed or len(rows) > 1:
            raise CannotWalk(f"{walk.family}: argument {path} mixes rows with another dimension")
        masked = None
        if tokens and not torch.equal(value, hidden[path]):
            masked = hidden[path].select(tokens[-1], 4).flatten()[0].item()
        found[path] = Axes(rows[0] if rows else None, tokens, masked, list(tokens) == moved)
    return found


def _leaves(recorded: list[RecordedCall]) -> dict[str, Tensor]:
    leaves: dict[str, Tensor] = {}
    for layer, call in enumerate(recorded):
        for tree in (call.args, call.kwargs):
            map_tree(tree, lambda value, path: leaves.__setitem__(path, value), f"{layer}")
    return leaves


def _find_epilogue(walk: Walk, output: LayerOutput, early: list[nn.Module]) -> None:
    """Replay against the stock forward, with and without padding, and make sure this is an encoder.

    Where the classifier reads no more of the encoder than its last states and its pooler, a stand-in for the whole
    encoder will do; else its containers run, with given states in the place of layers.
    """
    walked, batches = [], [walk.sample(3, 12, padding) for padding in (0, 3)]
    for inputs in batches:
        state = _through(walk, walk.embed(inputs))
        stock = walk.base(**inputs)
        if not _close(walk.finish(state.hidden)[state.mask], stock.last_hidden_state[state.mask]):
            raise CannotWalk(f"{walk.family}: replaying its layers does not give its own hidden states")
        walked.append((state, logits_of(walk.stock(**inputs))))
    for epilogue in _epilogues(walk, stock, output, early):
        walk.epilogue = epilogue
        try:
            if all(_close(walk.stock_logits(state.hidden, state.mask), expected) for state, expected in walked):
                break
        except (TypeError, ValueError, AttributeError, KeyError, IndexError):  # a classifier that wants more
            continue
    else:
        raise CannotWalk(f"{walk.family}: its classifier reads more than the final hidden states")
    walk.reads_first_token = _reads_first_token(walk, *walked[1])
    _check_encoder(walk, inputs, stock.last_hidden_state)


def _reads_first_token(walk: Walk, state: PaddedState, logits: Tensor) -> bool:
    """Whether the classifier answers each row from its first token alone."""
    if logits.dim() > 2:
        return False
    try:
        return _close(walk.stock_logits(state.hidden[:, :1], state.mask[:, :1]), logits)
    except (RuntimeError, ValueError, IndexError):  # it wants more tokens
        return False


def _epilogues(walk: Walk, stock: Any, output: LayerOutput, early: list[nn.Module]) -> Iterator[Epilogue]:
    given = {name for name, value in stock.items() if value is not None}
    pooler = getattr(walk.base, "pooler", None) if "pooler_output" in given else None
    if walk.base is not walk.stock and given <= {"last_hidden_state", "pooler_output"}:
        yield Epilogue(walk.stock, [walk.base], EncoderOutput(type(stock), walk.norm, pooler), hooks=True)
    yield Epilogue(walk.stock, set(walk.layers), output, muted=early)


def _check_encoder(walk: Walk, inputs: dict[str, Tensor], stock: Tensor) -> None:
    alone = {name: value[:1, :-3] for name, value in inputs.items()}  # the padded row without its padding
    if not _close(walk.base(**alone).last_hidden_state, stock[:1, :-3], _leak(walk)):
        raise CannotWalk(f"{walk.family}: its answers depend on padding, so they would depend on the batch")
    changed = {**inputs, "input_ids": inputs["input_ids"].clone()}
    changed["input_ids"][:, 8] = changed["input_ids"][:, 7]
    if torch.equal(walk.base(**changed).last_hidden_state[:, 0], stock[:, 0]):
        raise CannotWalk(f"{walk.family}: its first token does not see later ones: a decoder, or no attention here")


def _try_dropping(walk: Walk) -> bool:
    """True where a token that is cut out leaves the others as a token that is only hidden does."""
    inputs = walk.sample(2, 10)
    inputs["attention_mask"][0, 4] = inputs["attention_mask"][1, 2] = inputs["attention_mask"][1, 5] = 0
    try:
        hidden, cut = walk.embed(inputs), walk.embed(inputs, joinable=True)
        hidden, cut = _through(walk, hidden), _through(walk, cut.drop(cut.mask))
    except (BadPlan, RuntimeError):  # layers that receive shapes they do not know
        return False
    return _close(cut.hidden[cut.mask], hidden.hidden[hidden.mask], _leak(walk))


def _try_watching(walk: Walk) -> bool:
    try:
        walk.run(walk.embed(walk.sample(2, 10)), straight([0], watch=True)[0])
    except BadPlan:
        return False
    return True


def _through(walk: Walk, state: PaddedState) -> PaddedState:
    return run_steps(walk, straight(range(walk.num_base_layers)), state)


def _leak(walk: Walk) -> float:
    return max(LEAK, 8 * torch.finfo(walk.stock.dtype).eps)


def _first(output: Any) -> Tensor:
    return output[0] if isinstance(output, tuple) else output


def _same(a: Any, b: Any) -> bool:
    return isinstance(a, Tensor) and isinstance(b, Tensor) and a.shape == b.shape and torch.equal(a, b)


def _close(a: Tensor, b: Tensor, tolerance: float = EXACT) -> bool:
    return a.shape == b.shape and bool(((a - b).abs().max() <= tolerance * max(1.0, b.abs().max().item())).item())
