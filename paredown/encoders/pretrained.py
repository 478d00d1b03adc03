"""The Hugging Face side of a checkpoint, from a folder or a hub id: no code in it is run, no pickle opened.

safetensors are read by transformers, PyTorch files by `paredown.encoders.tensors`. A classifier is kept where its
labels are the ones asked for; else a new one is made and that is logged.
"""

from __future__ import annotations

import copy
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from paredown.encoders.dtype import check_loaded
from paredown.encoders.tensors import read_tensors
from paredown.errors import BadBundle, BadSetting
from paredown.registry import answers, tasks

if TYPE_CHECKING:
    from paredown.answers import Kind

log = logging.getLogger(__name__)
SAFE = ("model.safetensors", "model.safetensors.index.json")
TORCH, TORCH_INDEX = "pytorch_model.bin", "pytorch_model.bin.index.json"
NAMED = 8  # labels that a message names


def stock_of(
    source: str | Path,
    kind: Kind,
    names: list[str] | None,
    settings: dict[str, Any],
    complete: bool = False,
    tokenizer: Any = None,
) -> tuple[Any, Any]:
    """The Hugging Face model and tokenizer; `complete`: no weight may be missing."""
    from transformers import AutoConfig

    hub = hub_settings(settings)
    with _refused_as_bad(source, kind):
        config = AutoConfig.from_pretrained(source, trust_remote_code=False, **hub)
        weights = torch_weights(source, hub)
    stock = built(source, config, weights, kind, names, settings, complete)
    with _refused_as_bad(source, kind):
        words = tokenizer_of(source if tokenizer is None else tokenizer, hub)
    if tokenizer is not None:
        check_vocabulary(source, words, stock.get_input_embeddings().num_embeddings)
    return stock, words


def built(
    source: str | Path,
    config: Any,
    weights: dict[str, Tensor] | None,  # None: the safetensors of the source
    kind: Kind,
    names: list[str] | None,
    settings: dict[str, Any],
    complete: bool = False,
) -> Any:
    """A Hugging Face model that answers the labels asked for, from its config and weights."""
    import transformers

    theirs = labels_in(config)
    kept = kept_labels(theirs, names)
    if names is not None and not (kept is not None and is_numbered(names)):
        name_labels(config, names)
    if kind.problem_type is not None:
        config.problem_type = kind.problem_type
    auto = getattr(transformers, kind.auto_class)
    wanted = {"config": config, "output_loading_info": True, "ignore_mismatched_sizes": kept is None, **settings}
    with _refused_as_bad(source, kind):
        answering = {} if names is None else _label_parameters(auto, config)
        if weights is None:
            stock, info = auto.from_pretrained(source, use_safetensors=True, trust_remote_code=False, **wanted)
        else:
            stock, info = class_of(auto, config).from_pretrained(None, state_dict=weights, **wanted)
    other = {key[0] for key in info["mismatched_keys"]}
    if strange := sorted(other - answering.keys()):
        raise BadBundle(f"{source}: {', '.join(strange[:5])} has another size than its config.json says")
    if complete and info["missing_keys"]:
        lacking = ", ".join(sorted(info["missing_keys"])[:5])
        raise BadBundle(f"{source} lacks weights that {type(stock).__name__} has: {lacking}")
    check_loaded(source, stock)
    if not kind.outputs:  # there the size of a classifier tells what it answers, whatever its config.json calls it
        _relabel(stock, answering, kept, other)
        if names and answering.keys() - info["missing_keys"]:
            _log_labels(source, theirs, names, kept)
    return stock


@contextmanager
def _refused_as_bad(source: str | Path, kind: Kind) -> Iterator[None]:
    """What transformers raises for a checkpoint that it cannot load, as our error."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise BadBundle(f"{source} cannot be loaded as a {kind.name} model: {error}") from error


# Labels


def labels_in(config: Any) -> list[str]:
    return [config.id2label.get(index, f"LABEL_{index}") for index in range(config.num_labels)]


def name_labels(config: Any, names: Sequence[str]) -> None:
    config.num_labels = len(names)
    config.id2label = dict(enumerate(names))
    config.label2id = {name: index for index, name in enumerate(names)}


def is_numbered(labels: Sequence[str]) -> bool:
    """Whether labels have no names, only transformers' numbers."""
    return list(labels) == [f"LABEL_{index}" for index in range(len(labels))]


def kept_labels(theirs: Sequence[str], ours: Sequence[str] | None) -> list[int] | None:
    """For every label of ours its index in the checkpoint's classifier; None where that answers something else.

    Labels agree by name, whatever the case of their letters. Labels that are only numbered agree by index.
    """
    same = ours is None or (len(ours) == len(theirs) and (len(ours) == 1 or is_numbered(ours) or is_numbered(theirs)))
    if ours is None or same:
        return list(range(len(theirs)))
    for spelled in (str, str.casefold):
        numbers = {spelled(label): number for number, label in enumerate(theirs)}
        wanted = [spelled(label) for label in ours]
        if len(numbers) == len(theirs) == len(ours) and numbers.keys() == set(wanted):
            return [numbers[label] for label in wanted]
    return None


def in_their_order(names: Sequence[str], kept: Sequence[int]) -> list[str]:
    """Our names of the labels in the order of the checkpoint's classifier."""
    return [names[kept.index(index)] for index in range(len(kept))]


def _label_parameters(auto: Any, config: Any) -> dict[str, int]:
    """The parameters whose size follows the number of labels, with the dimension that does."""

    def shapes(labels: int) -> dict[str, torch.Size]:
        other = copy.deepcopy(config)
        other.num_labels = labels
        with torch.device("meta"):
            model = auto.from_config(other, trust_remote_code=False)
        return {name: parameter.shape for name, parameter in model.named_parameters()}

    here, more = shapes(config.num_labels), shapes(config.num_labels + 1)
    return {
        name: dim
        for name, shape in here.items()
        for dim, (size, larger) in enumerate(zip(shape, more[name], strict=True))
        if size != larger
    }


def class_of(auto: Any, config: Any) -> Any:
    """The class that one of transformers' auto classes makes of a config."""
    with torch.device("meta"):
        return type(auto.from_config(config, trust_remote_code=False))


@torch.no_grad()
def _relabel(stock: Any, answering: dict[str, int], kept: list[int] | None, fresh: set[str]) -> None:
    """Bring a classifier's labels into our order; make it new where its labels are others. `fresh` is new already."""
    parameters = dict(stock.named_parameters())
    for name, dim in answering.items():
        value = parameters[name]
        if kept is not None:
            value.copy_(value.index_select(dim, torch.tensor(kept)))
        elif name not in fresh:
            nn.init.normal_(value, std=0.02) if value.dim() > 1 else nn.init.zeros_(value)


def _log_labels(source: str | Path, theirs: list[str], ours: list[str], kept: list[int] | None) -> None:
    if kept is None:
        log.warning(
            "%s answers %s, not %s: a new classifier was made, the encoder is kept",
            *(source, listed_labels(theirs), listed_labels(ours)),
        )
    elif is_numbered(theirs) and not is_numbered(ours):
        log.info("%s numbers its labels: they are taken for %s, in this order", source, listed_labels(ours))


def listed_labels(labels: Sequence[str]) -> str:
    more = f", … {len(labels) - NAMED} more" if len(labels) > NAMED else ""
    return f"{len(labels)} label{'s' * (len(labels) != 1)} ({', '.join(labels[:NAMED])}{more})"


# Files


def torch_weights(source: str | Path, hub: dict[str, Any]) -> dict[str, Tensor] | None:
    """The tensors of a checkpoint that has PyTorch files only; None where it has safetensors."""
    if any(_file(source, name, hub) for name in SAFE):
        return None
    if (path := _file(source, TORCH, hub)) is not None:
        return read_tensors(path)
    if (index := _file(source, TORCH_INDEX, hub)) is None:
        return None  # transformers will say what is missing
    shards = _shards(index)
    tensors: dict[str, Tensor] = {}
    for name in sorted(set(shards.values())):
        if (path := _file(source, name, hub)) is None:
            raise BadBundle(f"{index} names {name!r:.80}, which is not there")
        tensors |= read_tensors(path)
    if missing := sorted(shards.keys() - tensors.keys()):
        raise BadBundle(f"{index} names tensors that its files do not hold: {', '.join(missing[:5])}")
    return tensors


def _shards(index: Path) -> dict[str, str]:
    """The file of every tensor; only files beside the index are opened."""
    try:
        files = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        if all(isinstance(name, str) and Path(name).name == name for name in files.values()):
            return dict(files)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        pass
    raise BadBundle(f"{index} does not say which file holds which tensor")


def _file(source: str | Path, name: str, hub: dict[str, Any]) -> Path | None:
    """A file of a folder or hub id, fetched if need be; None where there is none."""
    from transformers.utils import cached_file

    try:
        found = cached_file(str(source), name, **hub)
    except (OSError, ValueError):  # ValueError: neither a folder nor what a hub id may look like
        return None
    return None if found is None else Path(found)


def folder_of(source: str | Path, hub: dict[str, Any]) -> Path:
    """A folder itself; of a hub id, a local copy of its model and tokenizer files."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    if Path(source).is_dir():
        return Path(source)
    try:
        return Path(snapshot_download(str(source), allow_patterns=["*.json", "*.txt", "*.safetensors", "*.bin"], **hub))
    except (OSError, HfHubHTTPError, HFValidationError) as error:
        raise BadBundle(f"{source} cannot be fetched: {error}") from error


def tokenizer_of(source: Any, hub: dict[str, Any]) -> Any:
    """A tokenizer as it is; that of a folder or hub id; or one over a BERT vocabulary, a text file of a word a line."""
    from transformers import AutoTokenizer, BertTokenizer

    if not isinstance(source, (str, Path)):
        return source
    if not Path(source).is_file():
        return AutoTokenizer.from_pretrained(source, trust_remote_code=False, **hub)
    words = Path(source).read_text(encoding="utf-8").splitlines()
    cased = "A" in words  # a vocabulary of lower-cased text has no capital letters
    return BertTokenizer(vocab={word: index for index, word in enumerate(words)}, do_lower_case=not cased)


def check_vocabulary(source: str | Path, tokenizer: Any, size: int) -> None:
    """Raise BadSetting where a tokenizer writes ids that a model has no embedding for."""
    if tokenizer is not None and len(tokenizer) > size:
        raise BadSetting(f"the tokenizer knows {len(tokenizer):,} tokens, but {source} has embeddings of {size:,}")


def config_facts(source: str | Path, hub: dict[str, Any]) -> dict[str, Any]:
    """What config.json says, of whatever family; nothing where it cannot be read, for loading will say it better."""
    from transformers.utils import cached_file

    path = Path(source) / "config.json"
    if not Path(source).exists():
        try:
            path = Path(str(cached_file(str(source), path.name, **hub)))
        except (OSError, ValueError) as error:
            raise BadBundle(f"{source} cannot be loaded: {str(error).splitlines()[0]}") from error
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return facts if isinstance(facts, dict) else {}


def kind_in(facts: Mapping[str, Any]) -> str:
    """The kind of answer that the config.json of a checkpoint was made for; a bare encoder's is single_label."""
    kinds = [answers.make(name) for name in answers.names()]
    for architecture in map(str, facts.get("architectures") or ()):
        for kind in kinds:
            if kind.architecture and architecture.endswith(kind.architecture):
                return kind.name
    kept = facts.get("problem_type")
    return next((kind.name for kind in kinds if kind.problem_type and kind.problem_type == kept), "single_label")


def hub_settings(settings: dict[str, Any]) -> dict[str, Any]:
    return {name: settings[name] for name in ("revision", "token", "cache_dir", "local_files_only") if name in settings}


def kind_of(task: str | None) -> tuple[Kind, list[str] | None]:
    """The kind of answer a task wants, and its labels where they are known."""
    if task is None or task in answers:
        return answers.make(task or "single_label"), None
    entry = tasks.make(task)
    return answers.make(entry.kind or "single_label"), list(entry.labels) or None  # some find both in their files


def labels_of(kind: Kind, number: int | None, names: list[str] | None) -> list[str] | None:
    if names is not None and number is not None and len(names) != number:
        raise BadSetting(f"num_labels={number}, but {len(names)} labels are named: {', '.join(names)}")
    if kind.outputs:
        if names is not None or number not in (None, len(kind.outputs)):
            problem = f"a model of the kind {kind.name!r} predicts {', '.join(kind.outputs)}"
            raise BadSetting(f"{problem}, whatever the question; leave labels and num_labels out")
        return list(kind.outputs)
    if names is None and kind.numeric:
        number = number or 1
    return names if names is not None else None if number is None else [f"LABEL_{index}" for index in range(number)]
