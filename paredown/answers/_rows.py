"""Rows of text: read from lists, pairs, dicts or datasets, and padded into batches of token ids.

A question with options is one row until it becomes as many rows of a batch as it has options.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from numbers import Integral
from typing import Any

import numpy as np
import torch
from torch import Tensor

from paredown.answers._columns import Columns, find_columns
from paredown.answers._questions import Choices, Question
from paredown.errors import BadInput

IGNORED = -100  # the label of a token nobody asks about, as everywhere in Hugging Face


@dataclass(frozen=True)
class Row:
    text: str | tuple[str, ...]  # words where every token is answered
    pair: str | None = None
    label: Any = None  # a name, a number, several of either, or None


@dataclass(frozen=True)
class Encoded:
    """One row as token ids, without padding; or a question, whose options are such rows."""

    ids: dict[str, list[int]] = field(default_factory=dict)  # input_ids, and token_type_ids where the encoder has them
    label: Any = None  # as numbers; of a window, all positions that are right: (first, last token) or (marker,)
    first: tuple[int, ...] | None = None  # positions where a word's answer is read; only where tokens are answered
    protected: tuple[int, ...] | None = None  # positions that must not be dropped beside the first
    sentences: tuple[int, ...] | None = None  # positions where a sentence begins; only where support is asked for
    options: tuple[Encoded, ...] = ()
    words: tuple[int, ...] | None = None  # the word that each of `first` begins; one that was cut off is missing
    asked: Any = field(default=None, repr=False)  # what it was made from, where answers are decoded with its help
    unit: int | None = None  # index of the question that it is a window of; None: it is judged alone

    @property
    def plain(self) -> bool:
        """Whether there is no more to it than its token ids."""
        return not self.options and self.first is None and self.protected is None

    @property
    def teaches(self) -> bool:
        """Whether there is something to learn from: a window may not show the right answer."""
        return True

    def __len__(self) -> int:
        return max(map(len, self.options)) if self.options else len(self.ids["input_ids"])


def flat(rows: Iterable[Encoded]) -> list[Encoded]:
    """What the encoder reads: rows, and of questions their options."""
    return [one for row in rows for one in row.options or (row,)]


def are_encoded(inputs: Any) -> bool:
    return isinstance(inputs, Sequence) and len(inputs) > 0 and isinstance(inputs[0], Encoded)


def as_objects(values: Sequence[Any]) -> np.ndarray:
    """[values] as they are; numpy would look into what has a length."""
    array = np.empty(len(values), dtype=object)
    array[:] = list(values)
    return array


def by_unit(rows: Sequence[Encoded]) -> list[list[int]]:
    """The indexes of the rows of every unit that is judged, in the order of the units."""
    found: dict[int, list[int]] = {}
    for index, row in enumerate(rows):
        found.setdefault(index if row.unit is None else row.unit, []).append(index)
    return [found[unit] for unit in sorted(found)]


def joined(rows: Sequence[Encoded], others: Sequence[Encoded]) -> list[Encoded]:
    """Encoded rows and then others, whose units stay units of their own."""
    known = 1 + max((row.unit for row in rows if row.unit is not None), default=-1)
    return [*rows, *(row if row.unit is None else replace(row, unit=known + row.unit) for row in others)]


def listed(inputs: Any) -> Iterable[Any]:
    """Inputs one by one, be they one text, a list or a dataset."""
    if isinstance(inputs, (str, Mapping, Row, Question, Choices)):
        return [inputs]
    if not isinstance(inputs, Iterable):
        raise BadInput(f"expected texts, pairs or a dataset, got {type(inputs).__name__}")
    return inputs


def row_of(item: Any, index: int, per_word: bool | None = None) -> Row:
    """A row from a text, a pair, a dict or a list of words; `per_word`: whether every word has a label."""
    if isinstance(item, Row):
        return item
    if isinstance(item, str):
        return Row(item)
    if isinstance(item, Mapping):
        return _row_from_mapping(item, index, per_word)
    if isinstance(item, (tuple, list)) and item and all(isinstance(part, str) for part in item):
        if per_word:
            return Row(tuple(item))
        if len(item) == 2:
            return Row(item[0], item[1])
    wanted = "a text, a list of words" if per_word else "a text, a pair of texts"
    raise BadInput(f"row {index}: expected {wanted} or a dict, got {item!r:.80}")


@lru_cache
def _columns(names: tuple[str, ...], per_word: bool | None) -> Columns:
    return find_columns("this row", names, per_word=per_word)


def _row_from_mapping(item: Mapping[str, Any], index: int, per_word: bool | None) -> Row:
    try:
        columns = _columns(tuple(str(name) for name, value in item.items() if value is not None), per_word)
    except BadInput as error:
        problem = str(error).removeprefix("this row: ").partition("; say")[0]
        raise BadInput(f"row {index}: {problem}; call them text, pair and label") from None
    (name,) = columns.text
    text = item[name]
    pair, label = (None if its is None else item[its] for its in (columns.pair, columns.label))
    if not isinstance(text, str):
        if not isinstance(text, (list, tuple)) or not all(isinstance(word, str) for word in text):
            raise BadInput(f"row {index}: text must be a string or a list of words, got {text!r:.80}")
        text = tuple(text)
    if pair is not None and not isinstance(pair, str):
        raise BadInput(f"row {index}: the pair must be a string, got {pair!r:.80}")
    return Row(text, pair, label)


def number_of(label: Any, labels: Sequence[str], index: int) -> int:
    """A label, by name or number, as the model counts them; an unknown one is an error that names the row."""
    if isinstance(label, str) and label in labels:
        return labels.index(label)
    if isinstance(label, Integral) and not isinstance(label, bool) and 0 <= int(label) < len(labels):
        return int(label)
    raise BadInput(f"row {index}: label {label!r} is not one of {', '.join(labels[:20])} (or 0..{len(labels) - 1})")


def pairs_of(rows: Sequence[Row]) -> list[str | None] | None:
    """The second texts, where rows have one; all must, or none."""
    if all(row.pair is None for row in rows):
        return None
    if missing := [index for index, row in enumerate(rows) if row.pair is None]:
        raise BadInput(f"row {missing[0]} has no second text while others do ({len(missing)} of {len(rows)})")
    return [row.pair for row in rows]


def token_rows(
    tokenizer: Any, texts: Sequence[str], pairs: Sequence[str | None] | None, limit: int
) -> list[dict[str, list[int]]]:
    """The token ids of every text, cut at `limit`, with no more around them than the encoder reads: what a tokenizer
    returns takes longer to build than the ids."""
    if not getattr(tokenizer, "is_fast", False):
        tokens = tokenizer(list(texts), pairs, truncation=True, max_length=limit)
        return [token_ids(tokens, index) for index in range(len(texts))]
    from transformers.tokenization_utils_base import PaddingStrategy, TruncationStrategy  # which takes seconds

    tokenizer.set_truncation_and_padding(
        padding_strategy=PaddingStrategy.DO_NOT_PAD,
        truncation_strategy=TruncationStrategy.LONGEST_FIRST,
        max_length=limit,
        stride=0,
        pad_to_multiple_of=None,
        padding_side=None,
    )
    inputs = list(texts) if pairs is None else list(zip(texts, pairs, strict=True))
    found = tokenizer.backend_tokenizer.encode_batch_fast(inputs, add_special_tokens=True)
    if "token_type_ids" not in tokenizer.model_input_names:
        return [{"input_ids": one.ids} for one in found]
    return [{"input_ids": one.ids, "token_type_ids": one.type_ids} for one in found]


def token_ids(tokens: Any, index: int) -> dict[str, list[int]]:
    """What the encoder reads of a row, out of what a tokenizer returned for several."""
    return {name: tokens[name][index] for name in ("input_ids", "token_type_ids") if name in tokens}


def collate(rows: Sequence[Encoded], pad_id: int, device: Any = None, multiple: int = 1) -> dict[str, Tensor]:
    """A padded batch; its width is a multiple of `multiple` (few distinct shapes suit compiled layers).

    Questions become a row for each option, and `group` is the number of the question a row belongs to.
    """
    if rows[0].options:
        batch = collate(flat(rows), pad_id, device, multiple)
        batch["group"] = torch.tensor([index for index, row in enumerate(rows) for _ in row.options], device=device)
        if all(row.label is not None for row in rows):
            batch["labels"] = torch.tensor([row.label for row in rows], device=device)
        return batch
    width = max(len(row) for row in rows)
    width += -width % multiple
    batch = {}
    for name in rows[0].ids:
        fill = pad_id if name == "input_ids" else 0
        batch[name] = torch.tensor([row.ids[name] + [fill] * (width - len(row)) for row in rows])
    batch["attention_mask"] = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows])
    for name, source in (("answer_mask", "first"), ("protected", "protected"), ("sentence_mask", "sentences")):
        positions = [getattr(row, source) for row in rows]
        if any(its is not None for its in positions):
            batch[name] = torch.zeros(len(rows), width, dtype=torch.bool)
            for row, its in enumerate(positions):
                batch[name][row, list(its or ())] = True
    if all(row.label is not None for row in rows):
        batch["labels"] = torch.tensor(_padded_labels(rows, width))
    return {name: value.to(device) for name, value in batch.items()}


def _padded_labels(rows: Sequence[Encoded], width: int) -> list[Any]:
    labels = [row.label for row in rows]
    if rows[0].first is None:
        return labels
    if isinstance(labels[0], list):  # it ends in one number for each token
        return [row.label + [IGNORED] * (width - len(row)) for row in rows]
    most, nowhere = max(map(len, labels)), (IGNORED,) * len(labels[0][0])  # all positions that are right
    return [[*positions, *[nowhere] * (most - len(positions))] for positions in labels]
