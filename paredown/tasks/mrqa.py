"""MRQA's json lines (Fisch et al., 2019): NewsQA, Natural Questions and whatever else is in that format."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from paredown.answers import Question
from paredown.registry import tasks
from paredown.tasks._questions import Fault, Found, field_of, readable, text_of
from paredown.tasks._records import QuestionFiles, find_records, numbered_records

# Words that mark a paragraph, a title, a document; TR-BERT reads them as BERT's unused tokens (`markers` of `windows`).
MARKERS = {"[PAR]": "[unused1]", "[TLE]": "[unused2]", "[DOC]": "[unused3]"}


@tasks.register("mrqa")
@dataclass(frozen=True)
class Mrqa(QuestionFiles):
    folder: str = "mrqa|MRQA"
    metrics: tuple[str, ...] = ("span_f1",)
    file: str = ""  # its name in the folders train, dev and test, as MRQA hands them out; a|b: either
    kind: ClassVar[str] = "span"

    def _sources(self, root: Path, split: str) -> list[Path]:
        handed_out = [stem for stem in self.file.split("|") if stem and any((root / split).glob(f"{stem}.json*"))]
        if handed_out:
            return [find_records(root, split, handed_out[0], f"{split} questions")]
        return super()._sources(root, split)

    def questions(self, path: Path) -> Found:
        for location, record in numbered_records(path):
            if isinstance(record, str):
                yield location, record
            elif not ("header" in record and "context" not in record):
                yield from _line(record, location)


def _line(record: dict[str, Any], location: str) -> Found:
    try:
        asked = field_of(record, "qas", list, "the line")
        context = text_of(record, "context", "the line")
    except Fault as fault:
        yield location, str(fault)
        return
    for number, question in enumerate(asked, 1):
        name = (question.get("qid") or question.get("id")) if isinstance(question, dict) else None
        where = f"{location}, question {name!r}" if isinstance(name, str) else f"{location}, question {number}"
        try:
            yield where, _question(question, context)
        except Fault as fault:
            yield where, str(fault)


def _question(record: Any, context: str) -> Question:
    text = text_of(record, "question", "the question")
    key = text_of(record, "qid" if record.get("qid") else "id", "the question")
    answers = field_of(record, "answers", list, "the question", missing=[])
    for answer in answers:
        if not isinstance(answer, str):
            raise Fault(f"an answer must be text, not {answer!r:.40}")
        readable(answer, f"the answer {answer!a:.40}")
    detected = field_of(record, "detected_answers", list, "the question", missing=[])
    spans = tuple(dict.fromkeys(span for answer in detected for span in _spans(answer, context)))
    texts = tuple(dict.fromkeys(answers)) or tuple(dict.fromkeys(context[start:end] for start, end in spans))
    impossible = field_of(record, "is_impossible", bool, "the question", missing=False)
    if impossible and texts:
        raise Fault(f"it is impossible and yet has an answer, {texts[0]!r:.60}")
    return Question(key, text, context, texts, spans, impossible=impossible)


def _spans(record: Any, context: str) -> Iterator[tuple[int, int]]:
    text = field_of(record, "text", str, "a detected answer", missing="")
    for pair in field_of(record, "char_spans", list, "a detected answer"):
        if not (isinstance(pair, list) and len(pair) == 2 and all(type(number) is int for number in pair)):
            raise Fault(f"a span in 'char_spans' must be two whole numbers, not {pair!r:.40}")
        start, last = pair  # the last character itself, not the one after it
        if not 0 <= start <= last < len(context):
            raise Fault(f"the span {start}..{last} is not inside the context's {len(context)} characters")
        there = context[start : last + 1]
        if _letters(text) and _letters(there) != _letters(text):
            raise Fault(f"the answer {text!r:.40} is not at {start}..{last}, where the context says {there!r:.40}")
        yield start, last + 1


def _letters(text: str) -> str:
    """What must agree between an answer and its position: MRQA's answers differ from the context in case and spaces."""
    return "".join(filter(str.isalnum, unicodedata.normalize("NFKD", text.casefold())))


tasks.alias("newsqa", "mrqa", folder="newsqa|NewsQA", file="NewsQA")
tasks.alias("naturalqa", "mrqa", folder="naturalqa|NaturalQuestions", file="NaturalQuestionsShort|NaturalQuestions")
