"""Rows of text: read from lists, pairs, dicts or datasets, turned into token ids, padded into batches.

A question with options is one of them until it becomes as many rows of a batch as it has options.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from numbers import Integral
from typing import Any

import torch
from torch import Tensor

from paredown.columns import Columns, find_columns
from paredown.encoders.frame import Frame
from paredown.errors import BadInput, BadSetting
from paredown.kinds import IGNORED, KINDS, Kind

LONGEST = 512  # tokens of a row, where nobody says
MOST_ASKED = 128  # tokens of a question and one of its options, as TR-BERT has it for RACE
TOGETHER = 256  # questions given to the tokenizer at once


@dataclass(frozen=True)
class Row:
    text: str | tuple[str, ...]  # words where every token is answered
    pair: str | None = None
    label: Any = None  # a name, a number, several of either, or None


@dataclass(frozen=True)
class Choices:
    """A question; one of its options is right."""

    id: str
    context: str  # may be empty
    question: str
    options: tuple[str, ...]
    label: int | None = None  # the right option's place; None where nobody says


@dataclass(frozen=True)
class Encoded:
    """One row as token ids, without padding; or a question, whose options are such rows."""

    ids: dict[str, list[int]] = field(default_factory=dict)  # input_ids, and token_type_ids where the encoder has them
    label: Any = None  # as numbers; of a window, all places that are right: pairs of first and last token, or a marker
    first: tuple[int, ...] | None = None  # places where a word's answer is read; only where every token is answered
    protected: tuple[int, ...] | None = None  # places that must not be dropped beside the first
    sentences: tuple[int, ...] | None = None  # places where a sentence begins; only where support is asked for
    options: tuple[Encoded, ...] = ()
    words: tuple[int, ...] | None = None  # the word that each of `first` begins; one that was cut off is missing

    def __len__(self) -> int:
        return max(map(len, self.options)) if self.options else len(self.ids["input_ids"])


def words_of(row: Row) -> list[str]:
    return row.text.split() if isinstance(row.text, str) else list(row.text)


def flat(rows: Iterable[Encoded]) -> list[Encoded]:
    """What the encoder reads: rows, and of questions their options."""
    return [one for row in rows for one in row.options or (row,)]


def as_rows(inputs: Any, kind: Kind | None = None) -> list[Any]:
    """Rows from one text, a list of texts or pairs, a list of dicts, or a dataset; Choices where `kind` wants them."""
    if isinstance(inputs, (str, Mapping, Row, Choices)):
        inputs = [inputs]
    if not isinstance(inputs, Iterable):
        raise BadInput(f"expected texts, pairs or a dataset, got {type(inputs).__name__}")
    if kind is not None and kind.grouped:
        return [_choices(item, place) for place, item in enumerate(inputs)]
    per_word = None if kind is None else kind.per_word
    return [_row(item, place, per_word) for place, item in enumerate(inputs)]


def _row(item: Any, place: int, per_word: bool | None) -> Row:
    if isinstance(item, Row):
        return item
    if isinstance(item, str):
        return Row(item)
    if isinstance(item, Mapping):
        return _row_from_mapping(item, place, per_word)
    if isinstance(item, (tuple, list)) and item and all(isinstance(part, str) for part in item):
        if per_word:
            return Row(tuple(item))
        if len(item) == 2:
            return Row(item[0], item[1])
    wanted = "a text, a list of words" if per_word else "a text, a pair of texts"
    raise BadInput(f"row {place}: expected {wanted} or a dict, got {item!r:.80}")


@lru_cache
def _columns(names: tuple[str, ...], per_word: bool | None) -> Columns:
    return find_columns("this row", names, per_word=per_word)


def _row_from_mapping(item: Mapping[str, Any], place: int, per_word: bool | None) -> Row:
    try:
        columns = _columns(tuple(str(name) for name, value in item.items() if value is not None), per_word)
    except BadInput as error:
        problem = str(error).removeprefix("this row: ").partition("; say")[0]
        raise BadInput(f"row {place}: {problem}; call them text, pair and label") from None
    (name,) = columns.text
    text = item[name]
    pair, label = (None if its is None else item[its] for its in (columns.pair, columns.label))
    if not isinstance(text, str):
        if not isinstance(text, (list, tuple)) or not all(isinstance(word, str) for word in text):
            raise BadInput(f"row {place}: text must be a string or a list of words, got {text!r:.80}")
        text = tuple(text)
    if pair is not None and not isinstance(pair, str):
        raise BadInput(f"row {place}: the pair must be a string, got {pair!r:.80}")
    return Row(text, pair, label)


def _choices(item: Any, place: int) -> Choices:
    if isinstance(item, Mapping):
        facts = {"id": place, "context": "", "question": None, "options": (), "label": None, **item}
        item = Choices(str(facts["id"]), *(facts[name] for name in ("context", "question", "options", "label")))
    if not isinstance(item, Choices):
        wanted = "Choices, or a dict with a question, its options and, if there is one, a context"
        raise BadInput(f"row {place}: expected {wanted}, got {item!r:.80}")
    where, options = f"row {place} ({item.id!r:.40})", item.options
    if not isinstance(item.context, str) or not isinstance(item.question, str) or not item.question.strip():
        raise BadInput(f"{where}: question and context must be texts, and the question not empty")
    if not isinstance(options, (list, tuple)) or not all(isinstance(one, str) and one.strip() for one in options):
        raise BadInput(f"{where}: options must be a list of texts that are not empty, got {options!r:.80}")
    if len(options) < 2:
        raise BadInput(f"{where}: there must be at least two options to choose from, not {len(options)}")
    return replace(item, options=tuple(options), label=label_number(item.label, KINDS["choice"], options, place))


def label_number(label: Any, kind: Kind, labels: Sequence[str], place: int) -> Any:
    """A label as the model counts them; an unknown one is an error that names the row."""

    def number(one: Any) -> int:
        if isinstance(one, str) and one in labels:
            return labels.index(one)
        if isinstance(one, Integral) and not isinstance(one, bool) and 0 <= int(one) < len(labels):
            return int(one)
        raise BadInput(f"row {place}: label {one!r} is not one of {', '.join(labels[:20])} (or 0..{len(labels) - 1})")

    if label is None:
        return None
    if kind.name == "regression":
        values = label if isinstance(label, (list, tuple)) else [label]
        try:
            return [float(value) for value in values]
        except (TypeError, ValueError):
            raise BadInput(f"row {place}: label {label!r} is not a number") from None
    if kind.name == "multi_label":
        chosen = {number(one) for one in label}
        return [float(place in chosen) for place in range(len(labels))]
    if kind.per_word:
        return [IGNORED if one == IGNORED else number(one) for one in label]
    return number(label)


def usual_length(tokenizer: Any) -> int:
    """Tokens of a row at most, where nobody says."""
    return int(min(tokenizer.model_max_length, LONGEST))


def encode(
    tokenizer: Any, rows: Sequence[Any], kind: Kind, labels: Sequence[str], max_length: int | None = None
) -> list[Encoded]:
    """Token ids for every row, cut at `max_length` (default: what the tokenizer allows), not padded."""
    if not rows:
        return []
    limit = max_length or usual_length(tokenizer)
    if kind.grouped:
        return _encode_choices(tokenizer, rows, limit)
    words = kind.per_word
    texts = [words_of(row) if words else row.text for row in rows]
    if not all(isinstance(text, str) for text in texts) and not words:
        raise BadInput(f"{kind.name} answers one text at a time; a list of words is for token_label")
    pairs = None
    if any(row.pair is not None for row in rows):
        if missing := [place for place, row in enumerate(rows) if row.pair is None]:
            raise BadInput(f"row {missing[0]} has no second text while others do ({len(missing)} of {len(rows)})")
        pairs = [row.pair for row in rows]
    tokens = tokenizer(texts, pairs, truncation=True, max_length=limit, is_split_into_words=words)
    names = [name for name in ("input_ids", "token_type_ids") if name in tokens]
    encoded = []
    for place, row in enumerate(rows):
        label = label_number(row.label, kind, labels, place)
        first = begun = None
        if words:
            word_of = tokens.word_ids(place)
            first = tuple(at for at, word in enumerate(word_of) if word is not None and word != word_of[at - 1])
            if label is not None:
                if len(label) != len(texts[place]):
                    raise BadInput(f"row {place}: {len(label)} labels for {len(texts[place])} words")
                spread = [IGNORED] * len(word_of)
                for at in first:
                    spread[at] = label[word_of[at]]
                label = spread
            begun = tuple(word_of[at] for at in first)
        encoded.append(Encoded({name: tokens[name][place] for name in names}, label, first, words=begun))
    return encoded


def _encode_choices(tokenizer: Any, rows: Sequence[Choices], limit: int) -> list[Encoded]:
    """`[CLS] context [SEP] question option [SEP]` for every option; the context is cut, and only it may be dropped."""
    frame = Frame.of(tokenizer)
    room = limit - len(frame)
    if room < 2:
        raise BadSetting(f"max_length={limit} leaves no room for a text and a question; {len(frame) + 2} is the least")

    def tokens(texts: list[str]) -> list[list[int]]:
        return tokenizer(texts, add_special_tokens=False, return_attention_mask=False, verbose=False)["input_ids"]

    encoded = []
    for start in range(0, len(rows), TOGETHER):
        some = rows[start : start + TOGETHER]
        contexts = list(dict.fromkeys(row.context for row in some))  # questions often share one
        read = dict(zip(contexts, tokens(contexts), strict=True))
        asked = iter(tokens([f"{row.question} {option}" for row in some for option in row.options]))
        for row in some:
            options = [_option(frame, read[row.context], next(asked), room) for _ in row.options]
            encoded.append(Encoded(label=row.label, options=tuple(options)))
    return encoded


def _option(frame: Frame, context: list[int], asked: list[int], room: int) -> Encoded:
    asked = asked[-min(MOST_ASKED, room - 1) :]  # the end, where the option stands
    context = context[: room - len(asked)]
    ids = frame.around(context, asked)
    start = len(frame.special[0])
    after = range(start + len(context), len(ids["input_ids"]))
    return Encoded(ids, protected=(*range(start), *after))


def collate(rows: Sequence[Encoded], pad_id: int, device: Any = None, multiple: int = 1) -> dict[str, Tensor]:
    """A padded batch; its width is a multiple of `multiple` (few distinct shapes suit compiled layers).

    Questions become a row for each option, and `group` says which question a row belongs to.
    """
    if rows[0].options:
        batch = collate(flat(rows), pad_id, device, multiple)
        batch["group"] = torch.tensor([place for place, row in enumerate(rows) for _ in row.options], device=device)
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
        places = [getattr(row, source) for row in rows]
        if any(its is not None for its in places):
            batch[name] = torch.zeros(len(rows), width, dtype=torch.bool)
            for row, its in enumerate(places):
                batch[name][row, list(its or ())] = True
    if all(row.label is not None for row in rows):
        labels = [row.label for row in rows]
        if rows[0].first is not None and isinstance(labels[0], list):  # it ends in one number for each token
            labels = [row.label + [IGNORED] * (width - len(row)) for row in rows]
        elif rows[0].first is not None:  # all places that are right
            most, nowhere = max(map(len, labels)), (IGNORED,) * len(labels[0][0])
            labels = [[*places, *[nowhere] * (most - len(places))] for places in labels]
        batch["labels"] = torch.tensor(labels)
    return {name: value.to(device) for name, value in batch.items()}
