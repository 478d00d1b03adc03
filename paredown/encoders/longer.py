"""More positions for an encoder that learned a table of them: longer texts are read, and short ones as before.

The table is copied again from its start, as Longformer's authors began from RoBERTa: neighbours keep looking like
neighbours, and a short training suffices. The table is found by watching which module is asked for consecutive rows,
so no family is known by name.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from paredown.bundle import FACTS
from paredown.encoders.dtype import check_loaded
from paredown.encoders.pretrained import class_of, torch_weights
from paredown.encoders.probing import evaluating
from paredown.encoders.walk import plain_batch
from paredown.errors import BadBundle, BadSetting
from paredown.model import AdaptiveModel
from paredown.system.saving import staged

if TYPE_CHECKING:
    from transformers import PreTrainedModel

PROBE = 12  # tokens that tell a table of positions from others


@dataclass(frozen=True)
class Positions:
    """A table of learned positions."""

    name: str
    table: Any  # the module that holds it
    first: int  # the row of a text's first token; some families keep rows before it for padding

    @property
    def count(self) -> int:
        """Tokens that can be read."""
        return len(self.table.weight) - self.first


def learned_positions(model: PreTrainedModel) -> Positions | None:
    """The table of an encoder's positions; None where positions are relative or computed."""
    found: list[Positions] = []

    def watch(name: str, module: nn.Module, args: Any) -> None:
        asked = args[0] if args else None
        if isinstance(asked, Tensor) and not asked.is_floating_point() and asked.numel() == PROBE:
            first = int(asked.flatten()[0])
            if asked.flatten().sub(first).tolist() == list(range(PROBE)):
                found.append(Positions(name, module, first))

    hooks = [
        module.register_forward_pre_hook(lambda module, args, name=name: watch(name, module, args))
        for name, module in model.named_modules()
        if isinstance(weight := getattr(module, "weight", None), Tensor) and weight.dim() == 2
    ]
    try:
        _states(model, PROBE)
    finally:
        for hook in hooks:
            hook.remove()
    return found[0] if found else None


def lengthen(
    model: AdaptiveModel | PreTrainedModel, to: int, tokenizer: Any = None, interpolate: bool = False
) -> Positions:
    """Let an encoder, and its tokenizer, read `to` tokens; the model is changed in place.

    Texts that it could read before are answered exactly as before. `interpolate` stretches the table instead: then
    every position changes, and even short texts need training.
    """
    if isinstance(model, AdaptiveModel):
        model, tokenizer = model.stock, tokenizer or model.tokenizer
    family, known = model.config.model_type, learned_positions(model)
    if known is None:
        able = f"it reads {to} tokens as it is; only give max_length" if can_read(model, to) else f"{to} are too many"
        raise BadSetting(f"{family} has no table of positions to lengthen: they are relative or computed; {able}")
    before = known.count
    if to <= before:
        raise BadSetting(f"{family} reads {before} tokens already; lengthen it to more than that, not to {to}")
    old = _states(model, before)
    config = copy.deepcopy(model.config)
    config.max_position_embeddings += to - before
    for owner, leaf, value in list(_longer(model, type(model)(config), known, to, interpolate)):
        _put(owner, leaf, value)
    model.config.max_position_embeddings = config.max_position_embeddings
    if tokenizer is not None:
        tokenizer.model_max_length = to
    now = learned_positions(model)
    same = interpolate or torch.equal(_states(model, before), old)
    if now is None or now.count != to or not same or not bool(_states(model, to).isfinite().all()):
        raise BadSetting(f"{family}: with a longer table it does not read {to} tokens, or short texts in another way")
    return now


def can_read(model: PreTrainedModel, tokens: int) -> bool:
    """Whether a text of so many tokens has positions."""
    if (known := learned_positions(model)) is not None:
        return tokens <= known.count
    try:
        return bool(_states(model, tokens).isfinite().all())
    except (IndexError, RuntimeError, ValueError):  # what is computed in advance ends somewhere too
        return False


@dataclass(frozen=True)
class Longer:
    """A model that was lengthened, and what is written beside it."""

    model: AdaptiveModel | PreTrainedModel
    tokenizer: Any
    before: int  # tokens that it could read
    positions: Positions
    missing: frozenset[str] = frozenset()  # weights that the checkpoint did not have, so that these are random

    def save(self, folder: str | Path) -> None:
        """A bundle or a Hugging Face folder, as it came."""
        if isinstance(self.model, AdaptiveModel):
            return self.model.save_pretrained(folder)
        with staged(folder) as fresh:
            had = {name: value for name, value in self.model.state_dict().items() if name not in self.missing}
            self.model.save_pretrained(fresh, state_dict=had)
            self.tokenizer.save_pretrained(fresh)


def lengthened(source: str | Path, to: int, interpolate: bool = False) -> Longer:
    """`lengthen` for a bundle, or a folder or hub id of Hugging Face, whatever head it has."""
    model: Any
    missing: frozenset[str] = frozenset()
    if (Path(source) / FACTS).is_file():
        model = AdaptiveModel.from_pretrained(source)
        tokenizer, known = model.tokenizer, learned_positions(model.stock)
    else:
        model, tokenizer, missing = _checkpoint(source)
        known = learned_positions(model)
    before = known.count if known else 0
    return Longer(model, tokenizer, before, lengthen(model, to, tokenizer, interpolate), missing)


def _checkpoint(source: str | Path) -> tuple[PreTrainedModel, Any, frozenset[str]]:
    """A model, its tokenizer and what it lacks; no code in it is run."""
    import transformers
    from transformers import AutoConfig, AutoModel, AutoTokenizer, PreTrainedModel

    try:
        config = AutoConfig.from_pretrained(source, trust_remote_code=False)
        named = getattr(transformers, (config.architectures or [""])[0], None)
        cls: Any = named if isinstance(named, type) and issubclass(named, PreTrainedModel) else AutoModel
        wanted = {"config": config, "output_loading_info": True}
        if (weights := torch_weights(source, {})) is None:
            model, info = cls.from_pretrained(source, use_safetensors=True, **wanted)
        else:
            cls = class_of(cls, config) if cls is AutoModel else cls
            model, info = cls.from_pretrained(None, state_dict=weights, **wanted)
        tokenizer = AutoTokenizer.from_pretrained(source, trust_remote_code=False)
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise BadBundle(f"{source} cannot be loaded: {error}") from error
    check_loaded(source, model)
    return model.eval(), tokenizer, frozenset(info["missing_keys"])


def _longer(
    model: PreTrainedModel, template: PreTrainedModel, known: Positions, to: int, interpolate: bool
) -> Iterator[tuple[nn.Module, str, Tensor]]:
    """What has another shape in a model of the new length: tables of positions, and buffers, as the template has."""
    rows = len(known.table.weight)
    shapes = {name: value.shape for name, value in template.named_parameters()}
    for name, value in model.named_parameters():
        if value.shape == shapes[name]:
            continue
        if value.shape[0] != rows or shapes[name] != (known.first + to, *value.shape[1:]):
            raise BadSetting(f"{model.config.model_type}: more than its positions follows the length ({name})")
        table = _stretched(value, known, to) if interpolate else _repeated(value, known, to)
        yield *_owner(model, name), nn.Parameter(table, requires_grad=value.requires_grad)
    ours = dict(model.named_buffers())
    for name, value in template.named_buffers():
        if name in ours and ours[name].shape != value.shape:
            yield *_owner(model, name), value.to(ours[name].device)


def _repeated(table: Tensor, known: Positions, to: int) -> Tensor:
    """The rows of positions beyond the old end are those from the start again."""
    positions = torch.arange(to, device=table.device) % known.count + known.first
    return torch.cat([table[: known.first], table[positions]]).detach()


def _stretched(table: Tensor, known: Positions, to: int) -> Tensor:
    """The old positions lie evenly among the new, which are mixed from the nearest two."""
    last = len(table) - 1
    positions = torch.linspace(known.first, last, to, dtype=torch.double, device=table.device)
    below = positions.floor().long()
    mixed = torch.lerp(table[below].double(), table[(below + 1).clamp(max=last)].double(), (positions - below)[:, None])
    return torch.cat([table[: known.first], mixed.to(table.dtype)]).detach()


def _owner(model: nn.Module, name: str) -> tuple[nn.Module, str]:
    path, _, leaf = name.rpartition(".")
    return model.get_submodule(path), leaf


def _put(owner: nn.Module, leaf: str, value: Tensor) -> None:
    setattr(owner, leaf, value)
    if isinstance(owner, nn.Embedding):
        owner.num_embeddings = len(value)


@torch.no_grad()
def _states(model: PreTrainedModel, tokens: int) -> Tensor:
    """What the encoder makes of a row of so many tokens."""
    with evaluating(model):
        return model.base_model(**plain_batch(model, 1, tokens)).last_hidden_state
