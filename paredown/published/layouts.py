"""The layouts of published checkpoints: how each is recognised from the names of its tensors, and who loads it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import BertTokenizer

from paredown.encoders.pretrained import check_vocabulary, folder_of, kind_in, name_labels, stock_of, tokenizer_of
from paredown.encoders.tensors import read_tensors
from paredown.errors import BadBundle, BadSetting
from paredown.model import AdaptiveModel
from paredown.published._adopt import label_names, tokenizer_in
from paredown.published._folder import facts_beside, weights_in
from paredown.published.deebert import load_deebert
from paredown.published.elasticbert import load_fine_tuned
from paredown.published.fastbert import load_fastbert
from paredown.published.theseus import load_theseus
from paredown.registry import answers

PLAIN = "plain"
Names = Collection[str]


@dataclass(frozen=True)
class Layout:
    saved_by: str
    fits: Callable[[Names], bool]  # whether tensors have its names
    load: Callable[[Path, Sequence[str] | None, Any], AdaptiveModel]  # (source, labels, tokenizer)


def load_published(
    source: str | Path,
    format: str | None = None,
    labels: Sequence[str] | None = None,
    tokenizer: Any = None,
) -> tuple[str, AdaptiveModel]:
    """The layout of a trained checkpoint, a folder, file or hub id, and the model it holds.

    `tokenizer` is one, a folder or a vocabulary file, for checkpoints without; `labels` in the order of training.
    """
    path = Path(source) if Path(source).exists() else folder_of(source, {})
    if format is not None and format not in LAYOUTS:
        raise BadSetting(f"format is one of {', '.join(LAYOUTS)}, not {format!r}")
    name = format or recognised(path)
    if name is None:
        raise BadBundle(f"{source} is in none of the layouts that are understood: {understood()}")
    model = LAYOUTS[name].load(path, labels, tokenizer)
    if model.tokenizer is None:
        raise BadSetting(f"{source} comes without a vocabulary: give a tokenizer, a folder or a vocabulary file")
    check_vocabulary(source, model.tokenizer, model.stock.get_input_embeddings().num_embeddings)
    return name, model


def recognised(source: Path) -> str | None:
    """The name of a checkpoint's layout; None where it is in none of them."""
    names = read_tensors(weights_in(source)).keys()
    return next((name for name, layout in LAYOUTS.items() if layout.fits(names)), None)


def understood() -> str:
    return "; ".join(f"{name} (saved by {layout.saved_by})" for name, layout in LAYOUTS.items())


def _fastbert(source: Path, labels: Sequence[str] | None, tokenizer: Any) -> AdaptiveModel:
    path = weights_in(source)
    near = [Path(tokenizer)] if isinstance(tokenizer, (str, Path)) else []
    config = next((folder for folder in (*near, path.parent) if (folder / "config.json").is_file()), None)
    words = tokenizer_in(path.parent, BertTokenizer) if tokenizer is None else tokenizer_of(tokenizer, {})
    return load_fastbert(path, labels, config, words)


def _with(load: Callable[..., AdaptiveModel]) -> Callable[[Path, Sequence[str] | None, Any], AdaptiveModel]:
    def loaded(source: Path, labels: Sequence[str] | None, tokenizer: Any) -> AdaptiveModel:
        return load(source, labels=labels, tokenizer=None if tokenizer is None else tokenizer_of(tokenizer, {}))

    return loaded


def _plain(source: Path, labels: Sequence[str] | None, tokenizer: Any) -> AdaptiveModel:
    """Any family that transformers knows; versions before 2.4 did not write which, and had Theseus' BERT."""
    path = weights_in(source)
    facts = facts_beside(path)
    if "model_type" not in facts:
        return _with(load_theseus)(source, labels, tokenizer)
    kind = answers.make(kind_in(facts))
    model = AdaptiveModel(*stock_of(path.parent, kind, None, {}, complete=True, tokenizer=tokenizer), kind)
    if labels is not None:
        name_labels(model.config, list(label_names(labels, model.config.num_labels)["id2label"].values()))
    return model.eval()


def _has(part: str) -> Callable[[Names], bool]:
    return lambda names: any(part in f".{name}" for name in names)


LAYOUTS = {
    "fastbert": Layout("run_fastbert.py or the fastbert package", _has(".output_layer_0."), _fastbert),
    "deebert": Layout("DeeBERT's run_highway_glue.py", _has(".encoder.highway."), _with(load_deebert)),
    "elasticbert": Layout("ElasticBERT's run_glue.py and run_elue_*.py", _has(".elasticbert."), _with(load_fine_tuned)),
    "theseus": Layout("BERT-of-Theseus' run_glue.py", _has(".encoder.scc_layer."), _with(load_theseus)),
    PLAIN: Layout(
        "transformers, with a trained classifier; BERT-of-Theseus' convert_to_hf_ckpt.py", _has(".classifier."), _plain
    ),
}
