"""RACE in its official folders and in json lines: questions with options, and every option as a row of its own."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paredown.answers import Row
from paredown.errors import BadInput
from paredown.evaluation.metrics import choice_accuracy, metric_named
from paredown.registry import tasks
from paredown.tasks import Choices
from tests.tasks.real_questions import unpacked

ARTICLE: dict[str, Any] = {
    "article": "Ann has a cat.",
    "questions": ["Who has a cat?", "Ann has a _ ."],
    "options": [["Bob", "Ann", "Eve", "Joe"], ["dog", "cow", "fish", "cat"]],
    "answers": ["B", "D"],
    "id": "high10.txt",
}
LINE: dict[str, Any] = {
    "example_id": "middle1.txt",
    "article": "Ann has a cat.",
    "question": "Who has a cat?",
    "options": ["Bob", "Ann", "Eve", "Joe"],
    "answer": "B",
}
WHO = Choices("10.txt-1", "Ann has a cat.", "Who has a cat?", ("Bob", "Ann", "Eve", "Joe"), 1)
WHAT = Choices("10.txt-2", "Ann has a cat.", "Ann has a _ .", ("dog", "cow", "fish", "cat"), 3)


def write_articles(root: Path, split: str, level: str, **files: Any) -> Path:
    folder = root / "RACE" / split / level
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        text = content if isinstance(content, str) else json.dumps(content)
        (folder / f"{name.lstrip('_')}.txt").write_text(text)
    return folder


def write_lines(root: Path, *lines: Any) -> Path:
    path = root / "validation" / "middle.jsonl"
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines))
    return path


def test_official_folders(tmp_path: Path) -> None:
    write_articles(tmp_path, "dev", "high", _10=ARTICLE)
    read = tasks.make("race", level="high").read(tmp_path, "dev")
    assert (read.rows, read.kind, read.bad) == ([WHO, WHAT], "choice", ())


def test_both_levels_are_one_set_in_the_order_of_the_numbers(tmp_path: Path) -> None:
    write_articles(tmp_path, "dev", "high", high10=ARTICLE, high9=ARTICLE)
    write_articles(tmp_path, "dev", "middle", middle1=ARTICLE)
    rows = tasks.make("race").read(tmp_path, "dev").rows
    assert [row.id for row in rows[::2]] == ["middle1.txt-1", "high9.txt-1", "high10.txt-1"]
    assert [row.id for row in tasks.make("race", level="high").read(tmp_path, "dev").rows[::2]] == [
        row.id for row in rows[2::2]
    ]


def test_json_lines(tmp_path: Path) -> None:
    path = write_lines(tmp_path, LINE, LINE | {"question": "Whose cat?"}, LINE | {"example_id": "middle2.txt"})
    rows = tasks.make("race", level="middle").read(tmp_path, "dev").rows
    assert [row.id for row in rows] == ["middle1.txt-1", "middle1.txt-2", "middle2.txt-1"]
    assert rows[0] == Choices("middle1.txt-1", WHO.context, WHO.question, WHO.options, 1)
    path.rename(tmp_path / "validation_middle.jsonl")  # beside one another instead of in folders
    assert tasks.make("race", level="middle").read(tmp_path, "dev").rows == rows


def test_every_option_is_a_row_and_knows_its_question(tmp_path: Path) -> None:
    write_articles(tmp_path, "test", "high", _10=ARTICLE)
    read = tasks.make("race-options-high").read(tmp_path, "test")
    assert read.rows[:2] == [
        Row("Ann has a cat.", "Who has a cat? Bob", "0"),
        Row("Ann has a cat.", "Who has a cat? Ann", "1"),
    ]
    assert [row.label for row in read.rows] == list("01000001")
    assert read.groups == ("10.txt-1",) * 4 + ("10.txt-2",) * 4
    assert (read.labels, read.kind, read.metric) == (("0", "1"), "single_label", "choice_accuracy")
    scores = np.array([0.1, 0.4, 0.3, 0.2, 0.9, 0.1, 0.1, 0.8])  # the first question right, the second wrong
    labels = np.array([int(row.label) for row in read.rows])
    assert metric_named(read.metric, read.groups)(scores, labels) == 0.5


def test_choice_accuracy() -> None:
    scores, labels = np.array([0.4, 0.3, 0.9, 0.9, 0.2, 0.1]), np.array([1, 0, 1, 0, 0, 1])
    assert choice_accuracy(scores, labels, "aabbcc") == pytest.approx(1 / 3)  # a is right, b a tie, c wrong
    mixed = [5, 0, 3, 1, 2, 4]
    assert choice_accuracy(scores[mixed], labels[mixed], [("aabbcc")[at] for at in mixed]) == pytest.approx(1 / 3)


BROKEN: dict[str, tuple[Any, str]] = {  # the second file, piece of the message
    "not JSON": ('{"article": ', "high/2.txt: line 1, column 13: not JSON"),
    "empty file": ("", "high/2.txt: the file is empty"),
    "a list": ([], "high/2.txt: the file must be a JSON object, not []"),
    "no article": (ARTICLE | {"article": ""}, "high/2.txt: 'article' of the file is empty"),
    "an answer too few": (
        ARTICLE | {"answers": ["A"]},
        "2 questions, 2 lists of options and 1 answers; as many of each",
    ),
    "no questions": (ARTICLE | {"questions": [], "options": [], "answers": []}, "0 questions, 0 lists of options"),
    "an answer beyond the options": (
        ARTICLE | {"answers": ["B", "E"]},
        "high/2.txt, question 2: the answer 'E' is not one of A, B, C, D",
    ),
    "options as text": (
        ARTICLE | {"options": [ARTICLE["options"][0], "ABCD"]},
        "'options' of the question must be a l",
    ),
    "an empty option": (
        ARTICLE | {"options": [["a", ""], ARTICLE["options"][1]]},
        "high/2.txt, question 1: 'options' must be a list of at least two texts, not ['a', '']",
    ),
    "an empty question": (ARTICLE | {"questions": ["Who?", " "]}, "question 2: 'question' of the question is empty"),
}


@pytest.mark.parametrize("case", BROKEN)
@pytest.mark.parametrize("name", ["race", "race-options"])
def test_broken_articles(tmp_path: Path, name: str, case: str) -> None:
    content, piece = BROKEN[case]
    folder = write_articles(tmp_path, "dev", "high", _1=ARTICLE, _2=content)
    task = tasks.make(name, level="high")
    with pytest.raises(BadInput) as caught:
        task.read(tmp_path, "dev")
    assert piece in str(caught.value) and str(folder) in str(caught.value)
    assert "(skip_bad_rows=True reads the other" in str(caught.value)
    read = task.read(tmp_path, "dev", skip_bad_rows=True)
    assert len(read.bad) == 1 and read.rows


LINES: dict[str, tuple[Any, str]] = {  # the second line, piece of the message
    "not JSON": ("{", "line 2: not JSON"),
    "no id": (LINE | {"example_id": 5}, "line 2: 'example_id' of the question must be text, not 5"),
    "no options": ({key: LINE[key] for key in LINE if key != "options"}, "line 2: the question has no 'options'"),
    "a small letter": (LINE | {"answer": "b"}, "line 2: the answer 'b' is not one of A, B, C, D"),
    "no answer": (LINE | {"answer": None}, "line 2: the question has no 'answer'"),
    "a blank line": ("", "line 2: the line is empty"),
}


@pytest.mark.parametrize("case", LINES)
def test_broken_lines(tmp_path: Path, case: str) -> None:
    line, piece = LINES[case]
    path = write_lines(tmp_path, LINE, line, LINE)
    with pytest.raises(BadInput) as caught:
        tasks.make("race", level="middle").read(tmp_path, "dev")
    assert f"{path}, {piece}" in str(caught.value)
    assert len(tasks.make("race", level="middle").read(tmp_path, "dev", skip_bad_rows=True).rows) == 2


def test_missing_and_doubled_files(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"RACE/dev/middle is missing; .*level='middle' or 'high' reads one of the two"):
        tasks.make("race").read(tmp_path, "dev")
    with pytest.raises(BadInput, match="no split is called 'validation'; known: train, dev, test"):
        tasks.make("race").read(tmp_path, "validation")
    write_lines(tmp_path, LINE)
    write_articles(tmp_path, "dev", "middle")
    with pytest.raises(BadInput, match=r"could be in .*dev/middle or in .*validation/middle\.jsonl; keep one"):
        tasks.make("race", level="middle").read(tmp_path, "dev")
    (tmp_path / "validation" / "middle.jsonl").unlink()
    with pytest.raises(BadInput, match="no questions"):
        tasks.make("race", level="middle").read(tmp_path, "dev")


@pytest.mark.parametrize(
    ("split", "articles", "answers"), [("dev", 368, [311, 384, 386, 355]), ("test", 362, [309, 388, 374, 365])]
)
def test_real_questions(tmp_path: Path, split: str, articles: int, answers: list[int]) -> None:
    """RACE-M has 1,436 questions in dev, on 368 articles, and 1,436 in test, on 362 (table 2 of the paper)."""
    root = unpacked("RACE_middle", tmp_path)
    rows = tasks.make("race", level="middle").read(root, split).rows
    assert (len(rows), len({row.context for row in rows})) == (1436, articles)
    assert [Counter(row.label for row in rows)[place] for place in range(4)] == answers
    read = tasks.make("race-options-middle").read(root, split)
    assert (len(read.rows), len(set(read.groups))) == (4 * 1436, 1436)
    assert Counter(row.label for row in read.rows) == {"0": 3 * 1436, "1": 1436}
