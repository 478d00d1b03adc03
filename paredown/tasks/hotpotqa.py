"""HotpotQA (Yang et al., 2018): a question over several paragraphs, and the sentences that support its answer.

The official files, distractor or fullwiki, as a JSON list or an object a line. TR-BERT's graph files are not read: they
hold the word pieces of one tokenizer, not text.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from paredown.registry import tasks
from paredown.tasks._questions import BadQuestion, Fault, Question, Questions, Sentence, field_of, readable, text_of
from paredown.tasks._records import Records

# A paragraph of the context is its title, `: `, its sentences without the white space around them and a space between
# two; paragraphs stand on lines of their own. Plain text, so that it reads the same to every tokenizer.
AFTER_TITLE, BETWEEN_SENTENCES, BETWEEN_PARAGRAPHS = ": ", " ", "\n"
CHOICES = ("yes", "no")

log = logging.getLogger(__name__)

Paragraph = tuple[str, list[str]]
Fact = tuple[str, int]


@dataclass(frozen=True)
class HotpotQuestions(Questions[Question]):
    noted: tuple[BadQuestion, ...] = ()  # kept, though the answer or a supporting fact stands nowhere in the context


@tasks.register("hotpotqa")
@dataclass(frozen=True)
class HotpotQA(Records[Question]):
    folder: str = "HotpotQA|hotpotqa|hotpot"
    train: str = "hotpot_train_v1.1"
    dev: str = "hotpot_dev_distractor_v1"  # of the other setting: hotpot_dev_fullwiki_v1
    test: str = "hotpot_test_fullwiki_v1"  # without answers and supporting facts
    metrics: tuple[str, ...] = ("hotpot_f1", "hotpot_em", "hotpot_sp_f1", "hotpot_joint_f1")
    version: int = 2
    kind: ClassVar[str] = "supported_span"

    def load(self, root: str | Path, split: str, skip_bad_rows: bool = False) -> HotpotQuestions:
        """Questions, what was left out, and what was kept though it is not all there.

        A few supporting facts of the official files name no sentence, and retrieved paragraphs (fullwiki) often lack
        the answer; such questions stay, because a score over the others would not be the official one.
        """
        read = super().load(root, split, skip_bad_rows)
        noted = tuple(BadQuestion(f"question {row.id!r}", reason) for row in read.rows for reason in missing(row))
        if noted:
            answers = sum(one.reason.startswith("the answer") for one in noted)
            said = f"{answers} answers and {len(noted) - answers} supporting facts are not in their question's context"
            log.warning("%s: %s; first: %s: %s", read.source, said, noted[0].place, noted[0].reason)
        return HotpotQuestions(read.source, read.rows, read.kind, read.bad, noted)

    def _name_of(self, record: dict[str, Any]) -> Any:
        return record.get("_id")

    def _asked(self, record: dict[str, Any]) -> Question:
        if "node" in record and "context" not in record:
            raise Fault("this is a graph file of TR-BERT, of ready word pieces; read the official file, with 'context'")
        name = text_of(record, "_id", "the question")
        question = text_of(record, "question", "the question")
        paragraphs = list(_paragraphs(field_of(record, "context", list, "the question")))
        facts = set(_facts(field_of(record, "supporting_facts", list, "the question", missing=[])))
        context, sentences = _context(paragraphs, facts)
        if field_of(record, "answer", str, "the question", missing=None) is None:
            return Question(name, question, context, sentences=sentences)
        if not facts:
            raise Fault("there is an answer, but no 'supporting_facts'")
        answer = text_of(record, "answer", "the question").strip()
        if answer in CHOICES:
            return Question(name, question, context, (answer,), choice=answer, sentences=sentences)
        spans = _spans(context, answer, sentences)
        return Question(name, question, context, (answer,), spans, sentences=sentences, any_span=True)


def missing(question: Question) -> list[str]:
    """What a question says of its context that is not there."""
    said = [
        f"the supporting fact {sentence.title!r}, {sentence.number} names no sentence of the context"
        for sentence in question.sentences
        if sentence.support and sentence.start == sentence.end
    ]
    if question.answers and not question.spans and question.choice is None:
        said.insert(0, f"the answer {question.answers[0]!r:.60} stands nowhere in the context")
    return said


def _paragraphs(listed: list[Any]) -> Iterator[Paragraph]:
    for number, paragraph in enumerate(listed, 1):
        where = f"paragraph {number} of the context"
        match paragraph:
            case [str(title), [*sentences]] if all(isinstance(sentence, str) for sentence in sentences):
                yield readable(title, f"the title of {where}"), [readable(sentence, where) for sentence in sentences]
            case _:
                raise Fault(f"{where} must be [title, [sentences]], not {paragraph!r:.60}")


def _facts(listed: list[Any]) -> Iterator[Fact]:
    for number, fact in enumerate(listed, 1):
        match fact:
            case [str(title), int(sentence)] if not isinstance(sentence, bool):
                yield title, sentence
            case _:
                raise Fault(f"supporting fact {number} must be [title, number of the sentence], not {fact!r:.60}")


def _context(paragraphs: list[Paragraph], facts: set[Fact]) -> tuple[str, tuple[Sentence, ...]]:
    """The text of all paragraphs, and its sentences.

    An empty sentence has no characters (start = end), and neither has a supporting fact that names no sentence: it is
    kept at the end, because the official score counts it as one that was not found.
    """
    context, sentences = "", []
    for title, texts in paragraphs:
        context += (BETWEEN_PARAGRAPHS if context else "") + title + AFTER_TITLE
        first = len(context)
        for number, text in enumerate(map(str.strip, texts)):
            context += BETWEEN_SENTENCES if text and len(context) > first else ""
            start = len(context)
            context += text
            sentences.append(Sentence(title, number, start, len(context), (title, number) in facts))
    known = {(sentence.title, sentence.number) for sentence in sentences}
    lost = [Sentence(title, number, 0, 0, True) for title, number in sorted(facts - known)]
    return context, (*sentences, *lost)


def _spans(context: str, answer: str, sentences: tuple[Sentence, ...]) -> tuple[tuple[int, int], ...]:
    """Every place of the answer as whole words: in supporting sentences, then their paragraphs, then elsewhere."""
    supports = [sentence for sentence in sentences if sentence.support]
    titles = {sentence.title for sentence in supports}
    around = [sentence for sentence in sentences if sentence.title in titles]

    def rank(span: tuple[int, int]) -> int:
        within = [any(one.start <= span[0] and span[1] <= one.end for one in some) for some in (supports, around)]
        return [*within, True].index(True)

    # Bounds only where the answer itself begins or ends in a letter or digit: `"Woody" Allen` has none on the left.
    left, right = (r"(?<!\w)" if answer[0].isalnum() else "", r"(?!\w)" if answer[-1].isalnum() else "")
    found = [match.span() for match in re.finditer(left + re.escape(answer) + right, context)]
    return tuple(sorted(found, key=rank))
