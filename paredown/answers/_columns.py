"""Which columns hold the text, its pair and the label: as named, as in training, or guessed when it is obvious."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from paredown.errors import BadInput
from paredown.model import Reading

PAIRS = (
    ("sentence1", "sentence2"),
    ("text_a", "text_b"),
    ("text1", "text2"),
    ("question1", "question2"),
    ("premise", "hypothesis"),
    ("question", "sentence"),
    ("query", "passage"),
    ("text", "text_pair"),
    ("text", "pair"),
    ("#1 string", "#2 string"),
)
# An earlier group wins over a later one; two names of the same group are ambiguous.
TEXT = (
    ("text", "sentence", "text_a", "sentence1", "text1", "premise", "question", "question1"),
    ("review", "content", "document", "body", "comment", "tweet", "message", "query", "utterance"),
)
LABEL = (
    ("label", "labels", "gold_label"),
    ("target", "class", "category", "intent", "sentiment", "score", "stars", "rating", "is_duplicate", "quality"),
)
WORDS = ("tokens", "words")  # a list, where every word has a label
TAGS = ("ner_tags", "tags")  # the labels of those words
TEXT_NAMES = frozenset(name for group in (*TEXT, WORDS, *PAIRS) for name in group)
LABEL_NAMES = frozenset(name for group in (*LABEL, TAGS) for name in group)
Column = str | int | None

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Columns:
    text: tuple[str, ...]  # several are joined by a space
    pair: str | None = None
    label: str | None = None
    group: str | None = None

    @property
    def of_words(self) -> bool:
        """Whether their names say that every word has a label."""
        return self.text[0].lower() in WORDS and (self.label or "").lower() in TAGS


def find_columns(
    source: str,
    columns: Sequence[str],
    text: Column = None,
    pair: Column = None,
    label: Column = None,
    group: Column = None,
    *,
    usual: Reading | None = None,
    per_word: bool | None = None,
) -> Columns:
    """The columns to read, out of those there are. What is not named is as in `usual`, where there is such a column,
    else guessed; `per_word`: whether every word has a label, None where nobody knows."""
    names = tuple(columns)
    text, pair, label = _as_usual(source, names, (text, pair, label), usual or Reading())
    lower = {name.lower(): name for name in names}
    twins = [name for name in names if lower[name.lower()] != name]
    if twins and (text is None or label is None):
        raise BadInput(f"{source}: {twins[0]!r} and {lower[twins[0].lower()]!r} differ only in case; name all columns")
    if per_word is None:
        per_word = any(name in lower for name in WORDS) and any(name in lower for name in TAGS)
    labels, texts = ((TAGS, *LABEL), (WORDS, *TEXT)) if per_word else ((*LABEL, TAGS), (*TEXT, WORDS))
    chosen_label = _named(source, names, label) if label is not None else _guess(source, lower, labels, "label")
    if text is not None:
        chosen_text, chosen_pair = _named(source, names, text), None
    else:
        chosen_text, chosen_pair = _guess_texts(source, lower, chosen_label, texts, () if per_word else PAIRS)
    if pair is not None:
        chosen_pair = _named(source, names, pair)
    chosen_group = None if group is None else _named(source, names, group)
    return Columns((chosen_text,), chosen_pair, chosen_label, chosen_group)


def _as_usual(
    source: str, names: tuple[str, ...], given: tuple[Column, Column, Column], usual: Reading
) -> tuple[Column, Column, Column]:
    """What is given; else the usual columns, if they are there. Text and pair belong together."""
    text, pair, label = given
    if label is None and usual.label_column in names:
        label = usual.label_column
    if text is not None or pair is not None or usual.text_column is None:
        return text, pair, label
    if lost := [name for name in (usual.text_column, usual.pair_column) if name is not None and name not in names]:
        log.warning("%s has no column %r, which was read in training; it has %s", source, lost[0], ", ".join(names))
        return None, None, label
    return usual.text_column, usual.pair_column, label


def _named(source: str, names: tuple[str, ...], wanted: str | int) -> str:
    if isinstance(wanted, int) and -len(names) <= wanted < len(names):
        return names[wanted]
    if wanted in names:
        return str(wanted)
    raise BadInput(f"{source}: no column {wanted!r}; it has {', '.join(names)}")


def _guess_texts(
    source: str,
    lower: dict[str, str],
    label: str | None,
    texts: tuple[tuple[str, ...], ...],
    known_pairs: tuple[tuple[str, str], ...],
) -> tuple[str, str | None]:
    pairs = [pair for pair in known_pairs if pair[0] in lower and pair[1] in lower]
    if len(pairs) > 1:
        listed = ", ".join(f"{lower[a]} with {lower[b]}" for a, b in pairs)
        raise BadInput(f"{source}: the texts could be {listed}; say which with text_column and pair_column")
    if pairs:
        return lower[pairs[0][0]], lower[pairs[0][1]]
    found = _guess(source, lower, texts, "text")
    rest = [name for name in lower.values() if name != label]
    if found is None and len(rest) == 1 and (label is not None or len(lower) == 1):
        found = rest[0]
    if found is None:
        raise BadInput(
            f"{source}: which column holds the text? It has {', '.join(lower.values())}; say text_column "
            "(a file without a header line: header=False, and columns by number)"
        )
    return found, None


def _guess(source: str, lower: dict[str, str], groups: tuple[tuple[str, ...], ...], role: str) -> str | None:
    for group in groups:
        found = [lower[name] for name in group if name in lower]
        if len(found) > 1:
            raise BadInput(f"{source}: the {role} could be {' or '.join(found)}; say which with {role}_column")
        if found:
            return found[0]
    return None
