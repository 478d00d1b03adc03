"""HotpotQA in Transformer-XH's file, which TR-BERT reads too: the paragraphs of a question are nodes of a graph.

Of a node we read its `name` (the title), its `context` (word pieces of BERT), its `sent_pos` (where sentences begin and
end, [start, end) pieces), `supp_label` (which of them support the answer) and `spans` (first and last piece of the
answer). Dev files have the words too, as they were written: `doc_tokens`, and in `tok_to_orig_index` the word of every
piece. Without these the pieces are put together again: lower case, as BERT had them, and a space around punctuation.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from paredown.answers import Sentence
from paredown.tasks._questions import Fault, field_of, readable

PIECE = "##"  # a piece that goes on with the word before

Span = tuple[int, int]  # [start, end) characters


@dataclass(frozen=True)
class Node:
    """A paragraph."""

    title: str
    text: str
    sentences: tuple[Span, ...]
    support: tuple[bool, ...]
    spans: tuple[Span, ...]  # of the answer

    @classmethod
    def of(cls, record: Any, number: int) -> Node:
        where = f"node {number}"
        if not isinstance(record, dict):
            raise Fault(f"{where} must be an object, not {record!r:.60}")
        title = readable(field_of(record, "name", str, where).replace("_", " "), f"the name of {where}")
        text, pieces = _text_of(record, where)
        parts = _ranges(record, "sent_pos", where, len(pieces))
        support = field_of(record, "supp_label", list, where, missing=[0] * len(parts))
        if len(support) != len(parts):
            raise Fault(f"{where} has {len(parts)} sentences in 'sent_pos' and {len(support)} in 'supp_label'")
        whole = [(first, last + 1) for first, last in _ranges(record, "spans", where, len(pieces) - 1, missing=[])]
        sentences, spans = (tuple(_characters(pieces, *its) for its in some) for some in (parts, whole))
        return cls(title, text, sentences, tuple(map(bool, support)), spans)

    def sentences_from(self, start: int) -> list[Sentence]:
        """Its sentences in a context where its text begins at a character."""
        each = enumerate(zip(self.sentences, self.support, strict=True))
        return [Sentence(self.title, number, start + a, start + b, support) for number, ((a, b), support) in each]


def nodes_of(record: dict[str, Any]) -> list[Node]:
    return [Node.of(one, number) for number, one in enumerate(field_of(record, "node", list, "the question"), 1)]


def _text_of(record: dict[str, Any], where: str) -> tuple[str, list[Span]]:
    """The text, and the characters of every piece: its own, or those of the word it belongs to."""
    pieces = _texts(record, "context", where)
    if "doc_tokens" not in record:
        text, positions = "", []
        for piece in pieces:
            glued = piece.startswith(PIECE) and bool(text)
            text += "" if glued or not text else " "
            start = len(text)
            text += piece.removeprefix(PIECE) if glued else piece
            positions.append((start, len(text)))
        return text, positions
    words = _texts(record, "doc_tokens", where)
    ends = list(accumulate(len(word) + 1 for word in words))
    known = [(end - 1 - len(word), end - 1) for word, end in zip(words, ends, strict=True)]
    owners = field_of(record, "tok_to_orig_index", list, where)
    if len(owners) != len(pieces) or not all(type(word) is int and 0 <= word < len(words) for word in owners):
        raise Fault(f"'tok_to_orig_index' of {where} must hold the number of a word for each of {len(pieces)} pieces")
    return " ".join(words), [known[word] for word in owners]


def _texts(record: dict[str, Any], name: str, where: str) -> list[str]:
    listed = field_of(record, name, list, where)
    if not listed or not all(isinstance(one, str) and one for one in listed):
        raise Fault(f"{name!r} of {where} must be a list of texts, not {listed!r:.60}")
    return [readable(one, f"{name!r} of {where}") for one in listed]


def _ranges(record: dict[str, Any], name: str, where: str, most: int, **missing: Any) -> list[Span]:
    """Pairs of pieces, from 0 to `most`."""
    found = []
    for one in field_of(record, name, list, where, **missing):
        match one:
            case [int(first), int(last)] if 0 <= first <= last <= most:
                found.append((first, last))
            case _:
                raise Fault(f"{name!r} of {where}: {one!r:.40} is not a part of its pieces, 0 to {most}")
    return found


def _characters(pieces: list[Span], first: int, end: int) -> Span:
    """Of the pieces [first, end); those of none are nothing."""
    if first == end:
        return (0, 0)
    return pieces[first][0], pieces[end - 1][1]
