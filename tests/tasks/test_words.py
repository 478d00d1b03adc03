"""Words with labels: CoNLL's format, lists in json lines and csv, datasets; what is broken is named."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from datasets import ClassLabel, Dataset, Features, Sequence, Value

from paredown.answers import Row
from paredown.errors import BadInput
from paredown.model import Reading
from paredown.tasks import read_rows

CONLL = """\
-DOCSTART- -X- -X- O

EU NNP B-NP B-ORG
rejects VBZ B-VP O

# sent_id = 2
Peter NNP B-NP B-PER

"""
SENTENCES = [Row(("EU", "rejects"), None, ("B-ORG", "O")), Row(("Peter",), None, ("B-PER",))]


def file(tmp_path: Path, name: str, text: str) -> Path:
    (tmp_path / name).write_text(text)
    return tmp_path / name


@pytest.mark.parametrize("name", ["a.conll", "a.bio", "a.iob", "a.iob2"])
def test_a_word_a_line(tmp_path: Path, name: str) -> None:
    read = read_rows(file(tmp_path, name, CONLL))
    assert read.rows == SENTENCES and read.labels == ("B-ORG", "B-PER", "O")
    assert (read.kind, read.metric, read.reading) == ("token_label", "accuracy", Reading())


@pytest.mark.parametrize("name", ["a.txt", "a.tsv", "a.conll"])
def test_tabs_and_the_kind_make_a_file_of_words(tmp_path: Path, name: str) -> None:
    text = "\ufeffEU\tB-ORG\r\nrejects\tO\r\n\r\n\r\nPeter\tB-PER"
    assert read_rows(file(tmp_path, name, text), kind="token_label").rows == SENTENCES


def test_packed_and_in_a_folder(tmp_path: Path) -> None:
    (tmp_path / "train.conll.gz").write_bytes(gzip.compress(CONLL.encode()))
    file(tmp_path, "valid.txt", CONLL)
    assert read_rows(tmp_path, split="train").rows == SENTENCES
    assert read_rows(tmp_path, split="dev", kind="token_label").rows == SENTENCES


def test_words_alone_are_unlabelled(tmp_path: Path) -> None:
    assert read_rows(file(tmp_path, "a.conll", "EU\nrejects\n\n#\n")).rows == [Row(("EU", "rejects")), Row(("#",))]


RECORDS = [{"tokens": ["EU", "rejects"], "ner_tags": ["B-ORG", "O"]}, {"tokens": ["Peter"], "ner_tags": ["B-PER"]}]


def test_lists_in_json_lines(tmp_path: Path) -> None:
    text = "".join(json.dumps({"id": "x", "pos_tags": [1], **one}) + "\n" for one in RECORDS)
    read = read_rows(file(tmp_path, "a.jsonl", text))
    assert read.rows == SENTENCES and read.kind == "token_label"
    assert read.reading == Reading(text_column="tokens", label_column="ner_tags")


@pytest.mark.parametrize(
    "header, first, second",
    [
        ("words,tags", '"[""EU"", ""rejects""]","[""B-ORG"", ""O""]"', "Peter,B-PER"),
        ("tokens,labels", "EU rejects,B-ORG O", "Peter,B-PER"),
    ],
    ids=["json", "spaces"],
)
def test_lists_in_csv(tmp_path: Path, header: str, first: str, second: str) -> None:
    read = read_rows(file(tmp_path, "a.csv", f"{header}\n{first}\n{second}\n"), kind="token_label")
    assert read.rows == SENTENCES


def test_a_tsv_with_named_columns_stays_one(tmp_path: Path) -> None:
    path = file(tmp_path, "a.tsv", "text\ttags\nEU rejects\tB-ORG O\nPeter\tB-PER\n")
    assert read_rows(path, kind="token_label").rows == SENTENCES


def test_whole_numbers_and_those_that_do_not_count(tmp_path: Path) -> None:
    path = file(tmp_path, "a.jsonl", '{"tokens": ["a", "b", "c"], "labels": [10, 2, -100]}\n')
    read = read_rows(path)
    assert read.rows[0].label == ("10", "2", -100) and read.labels == ("2", "10")


def test_class_names_of_a_dataset() -> None:
    names = ["O", "B-PER", "B-ORG"]
    features = Features({"tokens": Sequence(Value("string")), "ner_tags": Sequence(ClassLabel(names=names))})
    read = read_rows(Dataset.from_dict({"tokens": [["EU", "rejects"]], "ner_tags": [[2, 0]]}, features=features))
    assert read.rows == SENTENCES[:1] and read.labels == tuple(names)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.conll", "EU B-ORG\nrejects\n", "a.conll, line 2: 1 columns where other words have 2; no row"),
        ("a.conll", "EU\n\nPeter B-PER\n", "line 3: 2 columns where other words have 1"),
        ("a.conll", "EU B-ORG\n\nPeter \udcff\n", "is not UTF-8"),
        ("a.conll", "\n\n", "no rows"),
        ("a.jsonl", '{"tokens": ["a", "b"], "tags": ["O"]}', "line 1: 1 labels for 2 words"),
        ("a.jsonl", '{"tokens": ["a", " "], "tags": ["O", "O"]}', "expected a list of words, none of them empty"),
        ("a.jsonl", '{"tokens": [], "tags": []}', "expected a list of words"),
        ("a.jsonl", '{"tokens": [1], "tags": ["O"]}', "expected a list of words"),
        ("a.txt", "EU B-ORG\n", "kind='token_label' reads a .txt"),
    ],
)
def test_what_is_broken_is_named(tmp_path: Path, name: str, text: str, message: str) -> None:
    path = tmp_path / name
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(BadInput) as error:
        read_rows(path)
    assert message in str(error.value)


def test_other_kinds_do_not_read_words(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="a word and its label on each line"):
        read_rows(file(tmp_path, "a.conll", CONLL), kind="single_label")
    with pytest.raises(BadInput, match="not one of O"):
        read_rows(file(tmp_path, "a.conll", CONLL), labels=("O",))


# In Python


def test_lists_of_words_are_predicted(tokenizer: Any) -> None:
    from tests.families import adaptive

    model = adaptive("bert", "token_label", tokenizer=tokenizer)
    as_lists = model.predict([["good", "plot"], ("the", "cast", "was", "bad")])
    assert as_lists == model.predict(["good plot", "the cast was bad"])
    assert [len(one.label) for one in as_lists] == [2, 4]
    with pytest.raises(BadInput, match="row 0: expected a text, a list of words or a dict"):
        model.predict([[1, 2]])


def test_words_that_are_cut_off_have_no_label(tokenizer: Any) -> None:
    from tests.families import adaptive

    model = adaptive("bert", "token_label", tokenizer=tokenizer)
    (said,) = model.predict([["good", "\u200b", "plot", "was", "bad"]], max_length=5)
    assert [label is None for label in said.label] == [False, True, False, False, True]
    assert [scores is None for scores in said.scores] == [label is None for label in said.label]
