"""WikiHop's file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from paredown.errors import BadInput
from paredown.registry import tasks
from paredown.tasks import Choices

RECORD: dict[str, Any] = {
    "id": "WH_dev_0",
    "query": "country_of_citizenship ann lee",
    "candidates": ["france", "new  zealand", "peru"],
    "supports": ["Ann Lee was born in Wellington .", "Wellington\nis the capital of New Zealand ."],
    "answer": "new zealand",
}


def load(tmp_path: Path, *records: Any, skip_bad_rows: bool = False) -> Any:
    (tmp_path / "wikihop").mkdir(exist_ok=True)
    (tmp_path / "wikihop" / "dev.json").write_text(json.dumps(list(records)))
    return tasks.make("wikihop").read(tmp_path, "dev", skip_bad_rows)


def test_a_question(tmp_path: Path) -> None:
    read = load(tmp_path, RECORD)
    assert (read.kind, read.bad) == ("marked", ())
    assert read.rows == [
        Choices(
            "WH_dev_0",
            "Ann Lee was born in Wellington .\nWellington is the capital of New Zealand .",
            "country_of_citizenship ann lee",
            ("france", "new zealand", "peru"),
            1,
        )
    ]


def test_a_file_without_answers_is_unlabelled(tmp_path: Path) -> None:
    assert load(tmp_path, {key: RECORD[key] for key in RECORD if key != "answer"}).rows[0].label is None


BROKEN: dict[str, tuple[Any, str]] = {  # changes, piece of the message
    "no id": ({"id": None}, "item 2: the question has no 'id'"),
    "no query": ({"query": ""}, "item 2, question 'x': 'query' of the question is empty"),
    "no candidates": ({"candidates": []}, "'candidates' is empty"),
    "candidates as text": ({"candidates": "peru"}, "'candidates' of the question must be a list, not 'peru'"),
    "a candidate twice": ({"candidates": ["new zealand", "peru", "peru"]}, "the candidate 'peru' is there twice"),
    "an empty support": ({"supports": ["a", " "]}, "number 2 of 'supports' must be a text that is not empty, not ' '"),
    "a support that is a list": ({"supports": [["a"]]}, "number 1 of 'supports' must be a text"),
    "no supports": ({"supports": None}, "the question has no 'supports'"),
    "another answer": ({"answer": "chile"}, "the answer 'chile' is none of the 3 candidates"),
    "no answer": ({"answer": None}, "it has no answer, while others in this file do"),
    "an id twice": ({"id": "WH_dev_0"}, "the id 'WH_dev_0' is taken by item 1"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_questions(tmp_path: Path, case: str) -> None:
    changes, piece = BROKEN[case]
    broken = RECORD | {"id": "x"} | changes
    with pytest.raises(BadInput) as caught:
        load(tmp_path, RECORD, broken)
    assert piece in str(caught.value) and str(tmp_path / "wikihop" / "dev.json, item 2") in str(caught.value)
    read = load(tmp_path, RECORD, broken, skip_bad_rows=True)
    assert len(read.rows) == len(read.bad) == 1
