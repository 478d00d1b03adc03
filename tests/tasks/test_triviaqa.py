"""TriviaQA in TR-BERT's file: aliases, all detected places, and what is broken."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from paredown.errors import BadInput
from paredown.registry import tasks
from paredown.tasks import Question

CONTEXT = "The Big Apple, or New York, is big. NYC is new york."
QUESTION: dict[str, Any] = {
    "qid": "qb_1",
    "question": "Which city never sleeps?",
    "answers": {"Aliases": ["New York", "NYC", "New York", " "]},
    "detected_answers": [{"char_spans": [[18, 25], [43, 50]]}, {"text": "nyc", "char_spans": [[36, 38], [36, 38]]}],
}
ITEM: dict[str, Any] = {"context": CONTEXT, "qas": [QUESTION]}


def load(tmp_path: Path, *items: Any, skip_bad_rows: bool = False) -> Any:
    (tmp_path / "triviaqa").mkdir(exist_ok=True)
    (tmp_path / "triviaqa" / "dev.json").write_text(json.dumps(list(items)))
    return tasks.make("triviaqa").read(tmp_path, "dev", skip_bad_rows)


def changed(**changes: Any) -> dict[str, Any]:
    return {"context": CONTEXT, "qas": [QUESTION | {"qid": "x"} | changes]}


def test_all_spans_are_kept_and_their_last_character_belongs_to_them(tmp_path: Path) -> None:
    question = load(tmp_path, ITEM).rows[0]
    assert question == Question(
        "qb_1",
        "Which city never sleeps?",
        CONTEXT,
        ("New York", "NYC"),
        ((18, 26), (36, 39), (43, 51)),
        any_span=True,
    )
    assert [CONTEXT[slice(*span)] for span in question.spans] == ["New York", "NYC", "new york"]


def test_aliases_that_stand_nowhere_still_count(tmp_path: Path) -> None:
    question = load(tmp_path, changed(detected_answers=[])).rows[0]
    assert question.answers == ("New York", "NYC") and question.spans == () and not question.impossible


def test_a_file_without_answers_is_unlabelled(tmp_path: Path) -> None:
    asked = {"context": CONTEXT, "qas": [{"qid": "a", "question": "q"}]}
    assert load(tmp_path, asked).rows == [Question("a", "q", CONTEXT)]


def test_the_cut_of_mrqa(tmp_path: Path) -> None:
    lines = [{"header": {"dataset": "TriviaQA-web"}}, ITEM | {"qas": [QUESTION | {"answers": ["New York", "NYC"]}]}]
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "TriviaQA-web.jsonl").write_text("\n".join(map(json.dumps, lines)))
    question = tasks.make("triviaqa-web").read(tmp_path, "dev").rows[0]
    assert question.answers == ("New York", "NYC") and set(question.spans) == {(18, 26), (36, 39), (43, 51)}


BROKEN: dict[str, tuple[Any, str]] = {  # an item, piece of the message
    "no context": ({"qas": [QUESTION | {"qid": "x"}]}, "item 2, question 'x': the item has no 'context'; it has qas"),
    "no questions": ({"context": CONTEXT, "qas": []}, "item 2: 'qas' must hold one question about the context, not 0"),
    "two questions": ({"context": CONTEXT, "qas": [QUESTION] * 2}, "must hold one question about the context, not 2"),
    "no qid": (changed(qid=None), "item 2: the question has no 'qid'"),
    "answers as a list": (changed(answers=["NYC"]), "'answers' of the question must be a JSON object, not ['NYC']"),
    "no aliases": (changed(answers={"Value": "NYC"}), "'answers' has no 'Aliases'; it has Value"),
    "empty aliases": (changed(answers={"Aliases": [""]}), "'Aliases' of 'answers' is empty"),
    "an alias that is a number": (changed(answers={"Aliases": [7]}), "'Aliases' must hold texts, not 7"),
    "a span beyond the end": (
        changed(detected_answers=[{"char_spans": [[40, 52]]}]),
        "the span 40..52 is not inside the context's 52 characters",
    ),
    "a span that runs backwards": (changed(detected_answers=[{"char_spans": [[9, 8]]}]), "the span 9..8 is not inside"),
    "a span of one number": (changed(detected_answers=[{"char_spans": [[9]]}]), "must be two whole numbers, not [9]"),
    "ends that are one too far": (
        changed(detected_answers=[{"text": "New York", "char_spans": [[18, 28]]}]),
        "the answer 'New York' is not at 18..28, where the context says 'New York, i'",
    ),
    "no spans": (changed(detected_answers=[{}]), "a detected answer has no 'char_spans'"),
    "an id twice": (ITEM, "the id 'qb_1' is taken by item 1, question 'qb_1'"),
    "no answer": (changed(answers=None), "it has no answer, while others in this file do"),
    "no object": (["x"], "item 2: expected a JSON object, got ['x']"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_items(tmp_path: Path, case: str) -> None:
    item, piece = BROKEN[case]
    with pytest.raises(BadInput) as caught:
        load(tmp_path, ITEM, item)
    assert piece in str(caught.value) and str(tmp_path / "triviaqa" / "dev.json, item 2") in str(caught.value)
    read = load(tmp_path, ITEM, item, skip_bad_rows=True)
    assert len(read.rows) == len(read.bad) == 1
