"""HotpotQA's files: paragraphs become a context, sentences and answers are found in it, what is broken is named."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from paredown.errors import BadInput
from paredown.registry import tasks
from paredown.tasks import Question
from tests.tasks.real_questions import unpacked

RECORD: dict[str, Any] = {
    "_id": "5a",
    "question": "Who wrote the song of the Jays?",
    "answer": "Ann Lee",
    "supporting_facts": [["The Jays", 0], ["Blue Song", 1]],
    "context": [
        ["Ann Lee", ["Ann Lee was a poet."]],
        ["Blue Song", ["Blue Song is old.", " It is by Ann Lee.", " ", "Ann Leeds sang it; Ann Lee did not."]],
        ["The Jays", ["The Jays sing Blue Song.", " They do."]],
    ],
    "type": "bridge",
    "level": "hard",
}
CONTEXT = (
    "Ann Lee: Ann Lee was a poet.\n"
    "Blue Song: Blue Song is old. It is by Ann Lee. Ann Leeds sang it; Ann Lee did not.\n"
    "The Jays: The Jays sing Blue Song. They do."
)


def load(tmp_path: Path, *records: Any, lines: bool = False, skip_bad_rows: bool = False) -> Any:
    text = "\n".join(map(json.dumps, records)) if lines else json.dumps(list(records))
    folder = tmp_path / "HotpotQA"
    folder.mkdir(exist_ok=True)
    (folder / f"hotpot_dev_distractor_v1.json{'l' * lines}").write_text(text)
    return tasks.make("hotpotqa").read(tmp_path, "dev", skip_bad_rows)


def one(tmp_path: Path, **changes: Any) -> Question:
    return load(tmp_path, RECORD | changes).rows[0]


@pytest.mark.parametrize("lines", [False, True], ids=["a list", "an object a line"])
def test_a_question(tmp_path: Path, lines: bool) -> None:
    read = load(tmp_path, RECORD, lines=lines)
    question = read.rows[0]
    assert (read.kind, read.bad, read.noted) == ("supported_span", (), ())
    assert (question.id, question.question) == ("5a", "Who wrote the song of the Jays?")
    assert question.context == CONTEXT and question.answers == ("Ann Lee",)
    assert question.choice is None and not question.impossible


def test_sentences_know_their_characters_and_whether_they_support(tmp_path: Path) -> None:
    sentences = one(tmp_path).sentences
    assert [(s.title, s.number) for s in sentences if s.support] == [("Blue Song", 1), ("The Jays", 0)]
    assert [CONTEXT[s.start : s.end] for s in sentences if s.support] == [
        "It is by Ann Lee.",
        "The Jays sing Blue Song.",
    ]
    assert [s.number for s in sentences if s.title == "Blue Song"] == [0, 1, 2, 3]
    blank = next(s for s in sentences if (s.title, s.number) == ("Blue Song", 2))
    assert blank.start == blank.end


def test_answers_in_supporting_sentences_come_first(tmp_path: Path) -> None:
    spans = one(tmp_path).spans
    assert all(CONTEXT[start:end] == "Ann Lee" for start, end in spans)
    assert "Ann Leeds" in CONTEXT and len(spans) == 4  # the title, its sentence, two of Blue Song; not within Leeds
    assert [start for start, _ in spans] == [
        CONTEXT.index("Ann Lee. "),  # in a supporting sentence
        CONTEXT.index("Ann Lee did not"),  # in its paragraph
        0,  # elsewhere
        CONTEXT.index("Ann Lee was"),
    ]


def test_an_answer_may_begin_and_end_in_punctuation(tmp_path: Path) -> None:
    context = [["A", ['So "Woody" Allen said.']]]
    question = one(tmp_path, answer='"Woody" Allen', context=context, supporting_facts=[["A", 0]])
    assert [question.context[slice(*span)] for span in question.spans] == ['"Woody" Allen']


def test_yes_and_no_are_choices(tmp_path: Path) -> None:
    question = one(tmp_path, answer="yes")
    assert (question.choice, question.answers, question.spans) == ("yes", ("yes",), ())


def test_what_is_not_in_the_context_is_kept_and_noted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    lost = RECORD | {"_id": "b", "answer": "Bo", "supporting_facts": [["The Jays", 7], ["Nobody", 0], ["The Jays", 0]]}
    with caplog.at_level(logging.WARNING):
        read = load(tmp_path, RECORD, lost, RECORD | {"_id": "c", "context": []})
    assert [row.id for row in read.rows] == ["5a", "b", "c"] and not read.bad
    assert [(one.location, one.reason) for one in read.noted[:3]] == [
        ("question 'b'", "the answer 'Bo' stands nowhere in the context"),
        ("question 'b'", "the supporting fact 'Nobody', 0 names no sentence of the context"),
        ("question 'b'", "the supporting fact 'The Jays', 7 names no sentence of the context"),
    ]
    assert "2 answers and 4 supporting facts are not in their question's context; first: question 'b'" in caplog.text
    supports = [(s.title, s.number, s.end - s.start) for s in read.rows[1].sentences if s.support]
    assert supports == [("The Jays", 0, 24), ("Nobody", 0, 0), ("The Jays", 7, 0)]  # the official score counts all


def test_a_file_without_answers_is_unlabelled(tmp_path: Path) -> None:
    asked = {key: RECORD[key] for key in ("_id", "question", "context")}
    (tmp_path / "hotpot_test_fullwiki_v1.json").write_text(json.dumps([asked]))
    question = tasks.make("hotpotqa").read(tmp_path, "test").rows[0]
    assert (question.answers, question.spans) == ((), ()) and not any(s.support for s in question.sentences)


BROKEN: dict[str, tuple[dict[str, Any], str]] = {  # changes, piece of the message
    "no id": ({"_id": None}, "item 2: the question has no '_id'"),
    "no question": ({"question": " "}, "item 2, question 'x': 'question' of the question is empty"),
    "no context": ({"context": None}, "question 'x': the question has no 'context'"),
    "context is text": ({"context": "all of it"}, "'context' of the question must be a list, not 'all of it'"),
    "a paragraph without sentences": (
        {"context": [["A", ["a."]], ["B"]]},
        "paragraph 2 of the context must be [title, [sentences]], not ['B']",
    ),
    "a sentence that is a number": ({"context": [["A", [1]]]}, "paragraph 1 of the context must be [title, [sent"),
    "a fact without a number": ({"supporting_facts": [["A", "0"]]}, "supporting fact 1 must be [title, number of the"),
    "an answer without facts": ({"supporting_facts": []}, "there is an answer, but no 'supporting_facts'"),
    "answer is a list": ({"answer": ["x"]}, "'answer' of the question must be text, not ['x']"),
    "an answer missing": ({"answer": None}, "it has no answer, while others in this file do"),
    "an id twice": ({"_id": "5a"}, "item 2, question '5a': the id '5a' is taken by item 1, question '5a'"),
    "half a surrogate pair": ({"context": [["A", ["\ud83d"]]]}, "paragraph 1 of the context is not UTF-8"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_questions(tmp_path: Path, case: str) -> None:
    changes, piece = BROKEN[case]
    with pytest.raises(BadInput) as caught:
        load(tmp_path, RECORD, RECORD | {"_id": "x"} | changes)
    assert piece in str(caught.value) and "hotpot_dev_distractor_v1.json, item 2" in str(caught.value)
    assert "(skip_bad_rows=True reads the other 1)" in str(caught.value)
    read = load(tmp_path, RECORD, RECORD | {"_id": "x"} | changes, skip_bad_rows=True)
    assert len(read.rows) == len(read.bad) == 1


def test_broken_files(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"hotpot_dev_distractor_v1 .*is missing; the dev questions belong there"):
        tasks.make("hotpotqa").read(tmp_path, "dev")
    with pytest.raises(BadInput, match="item 1: expected a JSON object, got 'text'"):
        load(tmp_path, "text", RECORD)
    with pytest.raises(BadInput, match="no questions"):
        load(tmp_path)
    path = tmp_path / "HotpotQA" / "hotpot_dev_distractor_v1.json"
    path.write_text('{"data": []}')
    with pytest.raises(BadInput, match=r"expected a list of questions, got \{'data'"):
        tasks.make("hotpotqa").read(tmp_path, "dev")
    path.write_text('[{"_id": "a",')
    with pytest.raises(BadInput, match="line 1, column 14: not JSON"):
        tasks.make("hotpotqa").read(tmp_path, "dev")
    path.with_suffix(".jsonl").write_text("{}\n")
    with pytest.raises(BadInput, match=r"could be in .*v1\.json or in .*v1\.jsonl; keep one"):
        tasks.make("hotpotqa").read(tmp_path, "dev")


# Transformer-XH's file

BY_ANN = "it is by ann lee . ann lee ##ds sang it ; ann lee did not ."
GRAPH: dict[str, Any] = {
    "qid": "5a",
    "question": RECORD["question"],
    "answer": "Ann Lee",
    "node": [
        {
            "name": "Blue_Song",
            "context": f"blue song is old . {BY_ANN}".split(),
            "sent_pos": [[0, 5], [5, 11], [11, 22]],
            "supp_label": [0, 1, 0],
            "spans": [[17, 18], [8, 9]],
            "has_supp": True,
        },
        {
            "name": "The_Jays",
            "context": "the jay ##s sing blue song .".split(),
            "sent_pos": [[0, 7]],
            "supp_label": [1],
            "spans": [],
            "has_supp": True,
        },
    ],
    "edge": [],
}


def graph(tmp_path: Path, *records: Any, last: Any = GRAPH, split: str = "train", skip_bad_rows: bool = False) -> Any:
    name = {"train": "hotpot_train_graph", "dev": "rerank_dev_tok"}[split]
    text = "\n".join(map(json.dumps, (*records, last | {"qid": "last"})))  # lines, though it is called .json
    (tmp_path / f"{name}.json").write_text(text)
    return tasks.make("hotpotqa").read(tmp_path, split, skip_bad_rows)


def test_a_question_of_a_graph(tmp_path: Path) -> None:
    read = graph(tmp_path, GRAPH)
    question = read.rows[0]
    assert question.context == (
        "Blue Song: blue song is old . it is by ann lee . ann leeds sang it ; ann lee did not .\n"
        "The Jays: the jays sing blue song ."
    )
    assert [question.context[start:end] for start, end in question.spans] == ["ann lee", "ann lee"]
    assert question.spans[0][0] == question.context.index("ann lee ."), "in the supporting sentence"
    supports = [sentence for sentence in question.sentences if sentence.support]
    assert [(one.title, one.number) for one in supports] == [("Blue Song", 1), ("The Jays", 0)]
    assert [question.context[one.start : one.end] for one in supports] == [
        "it is by ann lee .",
        "the jays sing blue song .",
    ]
    assert (question.answers, question.any_span, read.noted, read.kind) == (("Ann Lee",), True, (), "supported_span")


def test_a_graph_with_the_words_as_they_were(tmp_path: Path) -> None:
    node = {"name": "Ann_Lee", "context": "ann lee ##ds sang .".split(), "sent_pos": [[0, 5]], "supp_label": [0]}
    node |= {"doc_tokens": ["Ann", "Leeds", "sang."], "tok_to_orig_index": [0, 1, 1, 2, 2]}
    read = graph(tmp_path, GRAPH | {"node": [node], "answer": "Leeds"}, split="dev")
    question = read.rows[0]
    assert question.context == "Ann Lee: Ann Leeds sang." and [one.support for one in question.sentences] == [False]
    assert [question.context[start:end] for start, end in question.spans] == ["Leeds"]


def test_graphs_without_answers_and_with_yes(tmp_path: Path) -> None:
    unlabelled = {name: value for name, value in GRAPH.items() if name != "answer"}
    first = graph(tmp_path, unlabelled, last=unlabelled).rows[0]
    assert not first.answers and not first.spans
    second = graph(tmp_path, GRAPH | {"answer": "Yes"}).rows[0]
    assert (second.choice, second.spans) == ("yes", ())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"node": [5]}, "node 1 must be an object, not 5"),
        ({"qid": None}, "the question has no 'qid'"),
        ({"node": [{"name": "A"}]}, "node 1 has no 'context'"),
        ({"node": [{"name": "A", "context": "words"}]}, "'context' of node 1 must be a list"),
        ({"node": [{"name": "A", "context": ["a", ""]}]}, "'context' of node 1 must be a list of texts"),
        ({"node": [{"name": "A", "context": ["a"]}]}, "node 1 has no 'sent_pos'"),
        (
            {"node": [{"name": "A", "context": ["a"], "sent_pos": [[0, 2]]}]},
            "[0, 2] is not a part of its pieces, 0 to 1",
        ),
        (
            {"node": [{"name": "A", "context": ["a"], "sent_pos": [[0, 1]], "supp_label": []}]},
            "node 1 has 1 sentences in 'sent_pos' and 0 in 'supp_label'",
        ),
        (
            {"node": [{"name": "A", "context": ["a"], "sent_pos": [[0, 1]], "spans": [[0, 1]]}]},
            "'spans' of node 1: [0, 1] is not a part of its pieces, 0 to 0",
        ),
        (
            {"node": [{"name": "A", "context": ["a"], "sent_pos": [], "doc_tokens": ["a"], "tok_to_orig_index": [1]}]},
            "'tok_to_orig_index' of node 1 must hold the number of a word for each of 1 pieces",
        ),
        ({"node": [{"name": "A", "context": ["\ud83d"], "sent_pos": []}]}, "is not UTF-8"),
    ],
)
def test_broken_graphs_are_named(tmp_path: Path, changes: Any, message: str) -> None:
    with pytest.raises(BadInput) as caught:
        graph(tmp_path, GRAPH, GRAPH | changes)
    assert message in str(caught.value) and "hotpot_train_graph.json, line 2" in str(caught.value)
    assert len(graph(tmp_path, GRAPH, GRAPH | changes, skip_bad_rows=True).rows) == 2


def test_real_questions(tmp_path: Path) -> None:
    """500 questions of the dev set with retrieved paragraphs, in which not every answer stands."""
    read = tasks.make("hotpotqa").read(unpacked("HotpotQA_500", tmp_path) / "hotpot_dev_distractor_500.jsonl", "dev")
    assert (len(read.rows), len(read.bad)) == (500, 0)
    assert sum(row.choice is not None for row in read.rows) == 45
    assert sum(bool(row.spans) for row in read.rows) == 284
    assert len(read.noted) == 171 + 485
    for row in read.rows:
        assert all(row.context[start:end] == row.answers[0] for start, end in row.spans)
        assert all(row.context[s.start : s.end].strip() == row.context[s.start : s.end] for s in row.sentences)
