"""SQuAD 1.1 and 2.0 (Rajpurkar et al., 2016 and 2018) in their official JSON; an answer must stand where it says."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from paredown.answers import Question
from paredown.registry import tasks
from paredown.tasks._questions import Fault, Found, field_of, read_json, text_of
from paredown.tasks._records import QuestionFiles


@tasks.register("squad")
@dataclass(frozen=True)
class Squad(QuestionFiles):
    folder: str = "squad|SQuAD|SQuAD_v1.1"
    train: str = "train-v1.1"
    dev: str = "dev-v1.1"
    test: str = "test-v1.1"
    metrics: tuple[str, ...] = ("span_f1",)
    impossible: bool = False  # questions may have no answer, as in 2.0
    kind: ClassVar[str] = "span"

    def questions(self, path: Path) -> Found:
        location = "top level"
        try:
            for number, article in enumerate(field_of(read_json(path), "data", list, "the file"), 1):
                location = f"article {number}"
                paragraphs = field_of(article, "paragraphs", list, "the article")
                for below, paragraph in enumerate(paragraphs, 1):
                    yield from self._paragraph(paragraph, f"{location}, paragraph {below}")
        except Fault as fault:
            yield location, str(fault)

    def _paragraph(self, paragraph: Any, location: str) -> Found:
        try:
            asked = field_of(paragraph, "qas", list, "the paragraph")
            context = text_of(paragraph, "context", "the paragraph")
        except Fault as fault:
            yield location, str(fault)
            return
        for number, question in enumerate(asked, 1):
            where = f"{location}, question {number}"
            if isinstance(question, dict) and isinstance(question.get("id"), str):
                where = f"{location}, question {question['id']!r}"
            try:
                yield where, self._question(question, context)
            except Fault as fault:
                yield where, str(fault)

    def _question(self, record: Any, context: str) -> Question:
        key, text = text_of(record, "id", "the question"), text_of(record, "question", "the question")
        impossible = field_of(record, "is_impossible", bool, "the question", missing=None)
        answers = [_answer(answer, context) for answer in field_of(record, "answers", list, "the question", missing=[])]
        if impossible and not self.impossible:
            raise Fault("'is_impossible' is SQuAD 2.0's; read the file as squad_v2")
        if impossible and answers:
            raise Fault(f"it is impossible and yet has an answer, {context[slice(*answers[0])]!r:.60}")
        if impossible is False and not answers:
            raise Fault("'is_impossible' is false, but there are no answers")
        spans = tuple(dict.fromkeys(answers))  # people who agree say it once
        texts = dict.fromkeys(context[start:end] for start, end in spans)
        return Question(key, text, context, tuple(texts), spans, impossible=bool(impossible))


def _answer(record: Any, context: str) -> tuple[int, int]:
    text = text_of(record, "text", "an answer")
    start = field_of(record, "answer_start", int, f"the answer {text!r:.40}")
    end = start + len(text)
    if start >= 0 and context[start:end] == text:
        return start, end
    if not 0 <= start < len(context):
        raise Fault(f"the answer {text!r:.40} starts at {start}, but the context has {len(context)} characters")
    elsewhere = context.find(text)
    hint = "it is nowhere in the context" if elsewhere < 0 else f"it stands at {elsewhere}"
    raise Fault(f"the answer {text!r:.40} is not at {start}, where the context says {context[start:end]!r:.40}; {hint}")


tasks.alias(
    "squad_v2",
    "squad",
    folder="squad|SQuAD|SQuAD_v2.0|squad_v2",
    train="train-v2.0",
    dev="dev-v2.0",
    test="test-v2.0",
    impossible=True,
)
