"""HotpotQA (Yang et al., 2018): a question over several paragraphs, and the sentences that support its answer.

The official files, distractor or fullwiki, as a JSON list or an object a line; and Transformer-XH's, whose records
have the paragraphs as nodes of a graph.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from paredown.answers import Question, Sentence
from paredown.registry import tasks
from paredown.tasks._graphs import Span, nodes_of
from paredown.tasks._questions import Fault, field_of, readable, text_of
from paredown.tasks._records import Records
from paredown.tasks._task import Problem, Split

# A paragraph of the context is its title, `: `, its sentences without the white space around them and a space between
# two; paragraphs stand on lines of their own. Plain text, so that it reads the same to every tokenizer.
AFTER_TITLE, BETWEEN_SENTENCES, BETWEEN_PARAGRAPHS = ": ", " ", "\n"
CHOICES = ("yes", "no")

log = logging.getLogger(__name__)

Paragraph = tuple[str, list[str]]
Fact = tuple[str, int]


@tasks.register("hotpotqa")
@dataclass(frozen=True)
class HotpotQA(Records):
    folder: str = "HotpotQA|hotpotqa|hotpot"
    train: str = "hotpot_train_v1.1|hotpot_train_graph"
    dev: str = "hotpot_dev_distractor_v1|rerank_dev_tok"  # of the other setting: hotpot_dev_fullwiki_v1
    test: str = "hotpot_test_fullwiki_v1"  # without answers and supporting facts
    metrics: tuple[str, ...] = ("hotpot_f1", "hotpot_em", "hotpot_sp_f1", "hotpot_joint_f1")
    version: int = 2
    kind: ClassVar[str] = "supported_span"

    def read(self, root: str | Path, split: str, skip_bad_rows: bool = False) -> Split:
        """Questions, what was left out, and what was kept though it is not all there.

        A few supporting facts of the official files name no sentence, and retrieved paragraphs (fullwiki) often lack
        the answer; such questions stay, because a score over the others would not be the official one.
        """
        found = super().read(root, split, skip_bad_rows)
        noted = tuple(Problem(f"question {row.id!r}", reason) for row in found.rows for reason in missing(row))
        if noted:
            answers = sum(one.reason.startswith("the answer") for one in noted)
            said = f"{answers} answers and {len(noted) - answers} supporting facts are not in their question's context"
            log.warning("%s: %s; first: %s: %s", found.source, said, noted[0].location, noted[0].reason)
        return replace(found, noted=noted)

    def _name_of(self, record: dict[str, Any]) -> Any:
        return record.get("qid" if _is_graph(record) else "_id")

    def _asked(self, record: dict[str, Any]) -> Question:
        if _is_graph(record):
            return _asked_of_graph(record)
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


def _is_graph(record: dict[str, Any]) -> bool:
    return "node" in record and "context" not in record


def _asked_of_graph(record: dict[str, Any]) -> Question:
    """A question whose paragraphs are ready word pieces, with the answer's positions where the file has them."""
    name, question = (text_of(record, field, "the question") for field in ("qid", "question"))
    context, sentences, spans = "", [], []
    for node in nodes_of(record):
        context += (BETWEEN_PARAGRAPHS if context else "") + node.title + AFTER_TITLE
        start = len(context)
        sentences += node.sentences_from(start)
        spans += [(start + first, start + end) for first, end in node.spans]
        context += node.text
    if field_of(record, "answer", str, "the question", missing=None) is None:
        return Question(name, question, context, sentences=tuple(sentences))
    answer = text_of(record, "answer", "the question").strip()
    if answer.lower() in CHOICES:
        choice = answer.lower()
        return Question(name, question, context, (choice,), choice=choice, sentences=tuple(sentences))
    found = sorted(spans, key=_rank(sentences)) or _spans(context, answer, sentences, re.IGNORECASE)
    return Question(name, question, context, (answer,), tuple(found), sentences=tuple(sentences), any_span=True)


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


def _spans(context: str, answer: str, sentences: Sequence[Sentence], flags: int = 0) -> tuple[Span, ...]:
    """Every position of the answer as whole words, the likeliest first."""
    # Bounds only where the answer itself begins or ends in a letter or digit: `"Woody" Allen` has none on the left.
    left, right = (r"(?<!\w)" if answer[0].isalnum() else "", r"(?!\w)" if answer[-1].isalnum() else "")
    found = [match.span() for match in re.finditer(left + re.escape(answer) + right, context, flags)]
    return tuple(sorted(found, key=_rank(sentences)))


def _rank(sentences: Sequence[Sentence]) -> Callable[[Span], int]:
    """Of positions of an answer: those in supporting sentences come first, then in their paragraphs, then elsewhere."""
    supports = [sentence for sentence in sentences if sentence.support]
    titles = {sentence.title for sentence in supports}
    around = [sentence for sentence in sentences if sentence.title in titles]

    def rank(span: Span) -> int:
        within = [any(one.start <= span[0] and span[1] <= one.end for one in some) for some in (supports, around)]
        return [*within, True].index(True)

    return rank
