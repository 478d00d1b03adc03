"""TriviaQA (Joshi et al., 2017) in TR-BERT's file: a context for every question, all positions that hold an alias."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from paredown.answers import Question
from paredown.registry import tasks
from paredown.tasks._questions import Fault, field_of, readable, text_of
from paredown.tasks._records import Records
from paredown.tasks.mrqa import _spans as detected_spans


@tasks.register("triviaqa")
@dataclass(frozen=True)
class TriviaQA(Records):
    """A question whose aliases were detected nowhere keeps its answers and has no spans: it is scored all the same."""

    folder: str = "triviaqa|TriviaQA"
    metrics: tuple[str, ...] = ("trivia_f1", "trivia_exact")
    version: int = 2
    kind: ClassVar[str] = "span"

    def _name_of(self, record: dict[str, Any]) -> Any:
        match record.get("qas"):
            case [{"qid": name}]:
                return name

    def _asked(self, record: dict[str, Any]) -> Question:
        context = text_of(record, "context", "the item")
        asked = field_of(record, "qas", list, "the item")
        if len(asked) != 1:
            raise Fault(f"'qas' must hold one question about the context, not {len(asked)}")
        name = text_of(asked[0], "qid", "the question")
        question = text_of(asked[0], "question", "the question")
        answers = field_of(asked[0], "answers", dict, "the question", missing=None)
        if answers is None:
            return Question(name, question, context)
        detected = field_of(asked[0], "detected_answers", list, "the question", missing=[])
        spans = {span for one in detected for span in detected_spans(one, context)}
        return Question(name, question, context, _aliases(answers), tuple(sorted(spans)), any_span=True)


def _aliases(answers: dict[str, Any]) -> tuple[str, ...]:
    listed = field_of(answers, "Aliases", list, "'answers'")
    for alias in listed:
        if not isinstance(alias, str):
            raise Fault(f"'Aliases' must hold texts, not {alias!r:.40}")
    aliases = tuple(dict.fromkeys(readable(alias, "an alias") for alias in listed if alias.strip()))
    if not aliases:
        raise Fault("'Aliases' of 'answers' is empty")
    return aliases


# As MRQA cut it to single documents, scored as all of MRQA is.
tasks.alias("triviaqa-web", "mrqa", folder="triviaqa-web|TriviaQA-web", file="TriviaQA-web")
