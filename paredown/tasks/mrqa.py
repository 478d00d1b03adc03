"""MRQA's json lines (Fisch et al., 2019): NewsQA, Natural Questions and whatever else is in that format."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from paredown.errors import BadInput
from paredown.registry import tasks
from paredown.tasks._files import SPLITS, find_file
from paredown.tasks._questions import (
    Fault,
    Question,
    Questions,
    field_of,
    gather_questions,
    readable,
    text_of,
)
from paredown.tasks._table import Numbered, read_table

# Words that mark a paragraph, a title, a document; TR-BERT gives them BERT's unused tokens (`windows(markers=MARKERS)`).
MARKERS = {"[PAR]": "[unused1]", "[TLE]": "[unused2]", "[DOC]": "[unused3]"}


@tasks.register("mrqa")
@dataclass(frozen=True)
class Mrqa:
    folder: str = "mrqa|MRQA"  # a|b: either; with a file per split in it
    file: str = ""  # or the name of its file in the folders train, dev, test, as MRQA hands them out; a|b: either
    labels: tuple[str, ...] = ()
    spelled: tuple[str, ...] = ()
    kind: str = "span"
    metrics: tuple[str, ...] = ("span_f1", "span_exact")  # the first is the headline
    version: int = 1  # grows when questions, answers or the headline change
    name: ClassVar[str]

    @property
    def metric(self) -> str:
        return self.metrics[0]

    def read(self, root: str | Path, split: str, skip_bad_rows: bool = False) -> list[Question]:
        """The questions of a split (`train`, `dev`, `test`)."""
        return self.load(root, split, skip_bad_rows).rows

    def load(self, root: str | Path, split: str, skip_bad_rows: bool = False) -> Questions[Question]:
        """Questions and what was left out."""
        return self.load_file(self.path(root, split), skip_bad_rows)

    def load_file(self, path: str | Path, skip_bad_rows: bool = False) -> Questions[Question]:
        """The same from any file in this format."""
        table = read_table(Path(path))
        if table.columns is not None:
            raise BadInput(f"{path}: MRQA's questions are json lines; the name must end in .jsonl or .jsonl.gz")
        return gather_questions(path, _found(table.rows), self.kind, skip_bad_rows)

    def path(self, root: str | Path, split: str) -> Path:
        if split not in SPLITS:
            raise BadInput(f"no split is called {split!r}; known: {', '.join(SPLITS)}")
        for stem in self.file.split("|"):
            if stem and any((Path(root) / split).glob(f"{stem}.jsonl*")):
                return find_file(root, [split], stem, f"{split} questions")
        return find_file(root, self.folder.split("|"), split, f"{split} questions")


def _found(lines: Numbered) -> Iterator[tuple[str, Question | str]]:
    for number, record in lines:
        place = f"line {number}"
        if isinstance(record, str):
            yield place, record
            continue
        if "header" in record and "context" not in record:
            continue
        try:
            asked = field_of(record, "qas", list, "the line")
            context = text_of(record, "context", "the line")
        except Fault as fault:
            yield place, str(fault)
            continue
        for below, question in enumerate(asked, 1):
            name = _id(question)
            where = f"{place}, question {name!r}" if isinstance(name, str) else f"{place}, question {below}"
            try:
                yield where, _question(question, context)
            except Fault as fault:
                yield where, str(fault)


def _id(record: Any) -> Any:
    return (record.get("qid") or record.get("id")) if isinstance(record, dict) else None


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
    return Question(key, text, context, texts, spans)


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
    """What must agree between an answer and its place: MRQA's answers differ from the context in case and spaces."""
    return "".join(filter(str.isalnum, unicodedata.normalize("NFKD", text.casefold())))


tasks.alias("newsqa", "mrqa", folder="newsqa|NewsQA", file="NewsQA")
tasks.alias("naturalqa", "mrqa", folder="naturalqa|NaturalQuestions", file="NaturalQuestionsShort|NaturalQuestions")
