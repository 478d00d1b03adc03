"""Every way a file of questions can arrive broken is an error that names the place and what would be right."""

from __future__ import annotations

import gzip
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from paredown.errors import BadInput
from paredown.registry import tasks

BOOK = "Ann wrote it. Bob read it."
ANN = {"text": "Ann", "answer_start": 0}
GOOD = {"id": "good", "question": "Who wrote it?", "answers": [ANN]}
HERE = "article 1, paragraph 1, question"


def squad(*questions: Any, context: Any = BOOK) -> bytes:
    return json.dumps({"data": [{"paragraphs": [{"context": context, "qas": [GOOD, *questions]}]}]}).encode()


def asked(**changes: Any) -> dict[str, Any]:
    return {name: value for name, value in {**GOOD, "id": "x", **changes}.items() if value is not ...}


def answered(text: Any, start: Any) -> dict[str, Any]:
    return asked(answers=[{"text": text, "answer_start": start}])


def two_paragraphs(second: Any) -> bytes:
    first = {"context": BOOK, "qas": [GOOD]}
    return json.dumps({"data": [{"paragraphs": [first]}, {"paragraphs": [first | {"qas": []}, second]}]}).encode()


SQUAD: dict[str, tuple[bytes, str]] = {  # content, piece of the message
    "empty file": (b"", "dev-v2.0.json: the file is empty"),
    "not JSON": (b'{"data": [\n{"x": 1,, ]}', "dev-v2.0.json, line 2, column 9: not JSON"),
    "cut short": (squad()[:-20], "dev-v2.0.json, line 1, column"),
    "UTF-16": (squad().decode().encode("utf-16"), "this is UTF-16; save the file as UTF-8"),
    "nested too deeply": (b"[" * 200_000, "dev-v2.0.json: lists or objects are nested too deeply"),
    "a list": (b"[]", "dev-v2.0.json, top level: the file must be a JSON object, not []"),
    "no data": (b'{"version": "1.1"}', "top level: the file has no 'data'; it has version"),
    "data is no list": (b'{"data": {"a": 1}}', "top level: 'data' of the file must be a list, not {'a': 1}"),
    "no questions": (b'{"data": []}', "dev-v2.0.json: the file has no questions"),
    "article without paragraphs": (b'{"data": [{"title": "t"}]}', "article 1: the article has no 'paragraphs'"),
    "paragraph is text": (two_paragraphs("x"), "article 2, paragraph 2: the paragraph must be a JSON object, not 'x'"),
    "paragraph without context": (
        two_paragraphs({"qas": []}),
        "paragraph 2: the paragraph has no 'context'; it has qas",
    ),
    "paragraph without questions": (two_paragraphs({"context": BOOK}), "paragraph 2: the paragraph has no 'qas'"),
    "empty context": (squad(context=" "), "article 1, paragraph 1: 'context' of the paragraph is empty"),
    "question is no object": (squad(7), f"{HERE} 2: the question must be a JSON object, not 7"),
    "no id": (squad(asked(id=...)), f"{HERE} 2: the question has no 'id'; it has question, answers"),
    "id is a number": (squad(asked(id=3)), f"{HERE} 2: 'id' of the question must be text, not 3"),
    "id twice": (squad(GOOD), f"{HERE} 'good': the id 'good' is taken by {HERE} 'good'"),
    "no question": (squad(asked(question=...)), f"{HERE} 'x': the question has no 'question'"),
    "empty question": (squad(asked(question="\n")), f"{HERE} 'x': 'question' of the question is empty"),
    "not UTF-8": (squad(asked(question="caf\u00e9")).replace(b"\\u00e9", b"\xe9"), "is not UTF-8 (at character 3"),
    "half a character": (squad(asked(question="caf\ud83d")), "'question' of the question is not UTF-8 (at character 3"),
    "NUL": (squad(asked(question="a\0b")), "'question' of the question holds a NUL character"),
    "answers are text": (
        squad(asked(answers="Ann")),
        f"{HERE} 'x': 'answers' of the question must be a list, not 'Ann'",
    ),
    "answer is text": (squad(asked(answers=["Ann"])), "an answer must be a JSON object, not 'Ann'"),
    "answer without place": (squad(asked(answers=[{"text": "Ann"}])), "the answer 'Ann' has no 'answer_start'"),
    "place is text": (
        squad(answered("Ann", "0")),
        "'answer_start' of the answer 'Ann' must be a whole number, not '0'",
    ),
    "place is true": (squad(answered("Ann", True)), "must be a whole number, not True"),
    "empty answer": (squad(answered("", 0)), "'text' of an answer is empty"),
    "place after the end": (
        squad(answered("Ann", 99)),
        "the answer 'Ann' starts at 99, but the context has 26 characters",
    ),
    "negative place": (squad(answered("it.", -3)), "the answer 'it.' starts at -3"),
    "place off by one": (
        squad(answered("Bob", 13)),
        f"{HERE} 'x': the answer 'Bob' is not at 13, where the context says ' Bo'; it stands at 14",
    ),
    "answer not in the text": (squad(answered("Eve", 0)), "says 'Ann'; it is nowhere in the context"),
    "impossible with an answer": (squad(asked(is_impossible=True)), "it is impossible and yet has an answer, 'Ann'"),
    "possible without": (
        squad(asked(is_impossible=False, answers=[])),
        "'is_impossible' is false, but there are no answers",
    ),
    "impossible is text": (squad(asked(is_impossible="yes")), "'is_impossible' of the question must be true or false"),
    "no answer where others have one": (squad(asked(answers=[])), "it has no answer, while others in this file do"),
}


@pytest.mark.parametrize("case", SQUAD)
def test_squad(tmp_path: Path, case: str) -> None:
    content, message = SQUAD[case]
    (tmp_path / "dev-v2.0.json").write_bytes(content)
    with pytest.raises(BadInput) as caught:
        tasks.make("squad_v2").read(tmp_path, "dev")
    assert message in str(caught.value) and str(tmp_path) in str(caught.value)


SPAN = {"text": "Ann", "char_spans": [[0, 2]]}
MINE = {"qid": "good", "question": "Who wrote it?", "answers": ["Ann"], "detected_answers": [SPAN]}


def line(*questions: Any, **changes: Any) -> bytes:
    record = {"context": BOOK, "qas": [MINE, *questions], **changes}
    return json.dumps({name: value for name, value in record.items() if value is not ...}).encode() + b"\n"


def detected(*answers: Any) -> dict[str, Any]:
    return MINE | {"qid": "x", "detected_answers": list(answers)}


MRQA: dict[str, tuple[bytes, str]] = {
    "only a header": (b'{"header": {"dataset": "NewsQA"}}\n', "dev.jsonl: the file has no questions"),
    "blank line": (line() + b"\n" + line(MINE | {"qid": "y"}), "dev.jsonl, line 2: the line is empty"),
    "not JSON": (line() + b"{'context': 1}\n", "dev.jsonl, line 2: not JSON"),
    "a list": (line() + b"[1]\n", "dev.jsonl, line 2: expected a JSON object, got [1]"),
    "no context": (line(context=...), "dev.jsonl, line 1: the line has no 'context'; it has qas"),
    "no questions": (line(qas=...), "line 1: the line has no 'qas'"),
    "id twice": (line() + line(), "line 2, question 'good': the id 'good' is taken by line 1, question 'good'"),
    "no id": (line({"question": "Who?"}), "line 1, question 2: the question has no 'id'; it has question"),
    "question is text": (line("Who?"), "line 1, question 2: the question must be a JSON object, not 'Who?'"),
    "answer is a number": (line(MINE | {"qid": "x", "answers": [3]}), "question 'x': an answer must be text, not 3"),
    "spans are missing": (line(detected({"text": "Ann"})), "a detected answer has no 'char_spans'; it has text"),
    "impossible with an answer": (line(MINE | {"qid": "x", "is_impossible": True}), "and yet has an answer, 'Ann'"),
    "span of one number": (line(detected({"char_spans": [[3]]})), "must be two whole numbers, not [3]"),
    "span after the end": (
        line(detected({"char_spans": [[20, 26]]})),
        "line 1, question 'x': the span 20..26 is not inside the context's 26 characters",
    ),
    "span backwards": (line(detected({"char_spans": [[5, 3]]})), "the span 5..3 is not inside"),
    "span ends after its answer": (
        line(detected({"text": "An", "char_spans": [[0, 2]]})),
        "the answer 'An' is not at 0..2, where the context says 'Ann'",
    ),
}


@pytest.mark.parametrize("case", MRQA)
def test_mrqa(tmp_path: Path, case: str) -> None:
    content, message = MRQA[case]
    (tmp_path / "newsqa").mkdir()
    (tmp_path / "newsqa" / "dev.jsonl").write_bytes(content)
    with pytest.raises(BadInput) as caught:
        tasks.make("newsqa").read(tmp_path, "dev")
    assert message in str(caught.value) and str(tmp_path) in str(caught.value)


def test_bad_questions_are_counted_and_can_be_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "dev-v1.1.json").write_bytes(squad(answered("Bob", 13), asked(id="y", question="")))
    with pytest.raises(
        BadInput, match=r"it stands at 14; and 1 more question \(skip_bad_rows=True reads the other 1\)"
    ):
        tasks.make("squad").read(tmp_path, "dev")
    with caplog.at_level(logging.WARNING):
        read = tasks.make("squad").read(tmp_path, "dev", skip_bad_rows=True)
    assert [row.id for row in read.rows] == ["good"] and [bad.location for bad in read.bad] == [
        f"{HERE} 'x'",
        f"{HERE} 'y'",
    ]
    assert "left out 2 of 3 questions" in caplog.text
    (tmp_path / "dev-v1.1.json").write_bytes(squad(context=""))
    with pytest.raises(BadInput, match="no question of the file is good"):
        tasks.make("squad").read(tmp_path, "dev", skip_bad_rows=True)


def test_files_that_are_missing_damaged_or_two(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"train-v1.1 .*is missing; the train questions belong there"):
        tasks.make("squad").read(tmp_path, "train")
    with pytest.raises(BadInput, match="no split is called 'validation'; known: train, dev, test"):
        tasks.make("newsqa").read(tmp_path, "validation")
    (tmp_path / "dev-v1.1.json.gz").write_bytes(gzip.compress(squad())[:-9])
    with pytest.raises(BadInput, match=r"dev-v1.1.json.gz: the file is cut short or damaged"):
        tasks.make("squad").read(tmp_path, "dev")
    (tmp_path / "dev-v1.1.json").write_bytes(squad())
    with pytest.raises(BadInput, match=r"could be in .*dev-v1.1.json or in .*dev-v1.1.json.gz; keep one"):
        tasks.make("squad").read(tmp_path, "dev")
