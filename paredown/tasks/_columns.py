"""Which columns hold the text, its pair and the label: as named by the caller, or guessed when it is obvious."""

from __future__ import annotations

from collections.abc import Sequence

from paredown.errors import BadInput
from paredown.tasks._reading import Columns

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
Column = str | int | None


def find_columns(
    source: str,
    columns: Sequence[str],
    text: Column = None,
    pair: Column = None,
    label: Column = None,
    group: Column = None,
) -> Columns:
    """The columns to read, out of those a file has; what is not named is guessed."""
    names = tuple(columns)
    lower = {name.lower(): name for name in names}
    twins = [name for name in names if lower[name.lower()] != name]
    if twins and (text is None or label is None):
        raise BadInput(f"{source}: {twins[0]!r} and {lower[twins[0].lower()]!r} differ only in case; name all columns")
    chosen_label = _named(source, names, label) if label is not None else _guess(source, lower, LABEL, "label")
    if text is not None:
        chosen_text, chosen_pair = _named(source, names, text), None
    else:
        chosen_text, chosen_pair = _guess_texts(source, lower, chosen_label)
    if pair is not None:
        chosen_pair = _named(source, names, pair)
    chosen_group = None if group is None else _named(source, names, group)
    return Columns((chosen_text,), chosen_pair, chosen_label, chosen_group)


def _named(source: str, names: tuple[str, ...], wanted: str | int) -> str:
    if isinstance(wanted, int) and -len(names) <= wanted < len(names):
        return names[wanted]
    if wanted in names:
        return str(wanted)
    raise BadInput(f"{source}: no column {wanted!r}; it has {', '.join(names)}")


def _guess_texts(source: str, lower: dict[str, str], label: str | None) -> tuple[str, str | None]:
    pairs = [pair for pair in PAIRS if pair[0] in lower and pair[1] in lower]
    if len(pairs) > 1:
        listed = ", ".join(f"{lower[a]} with {lower[b]}" for a, b in pairs)
        raise BadInput(f"{source}: the texts could be {listed}; say which with text_column and pair_column")
    if pairs:
        return lower[pairs[0][0]], lower[pairs[0][1]]
    found = _guess(source, lower, TEXT, "text")
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
