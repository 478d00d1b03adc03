"""Columns as in training, separators between labels, and what is said aloud of a file."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from paredown.answers import Row
from paredown.errors import BadInput
from paredown.model import Reading
from paredown.registry import answers
from paredown.tasks import read_rows


def file(tmp_path: Path, text: str, name: str = "a.csv") -> Path:
    (tmp_path / name).write_text(text)
    return tmp_path / name


def test_columns_as_in_training(tmp_path: Path, caplog: Any) -> None:
    trained = read_rows(file(tmp_path, "body,note,stars\na,b,c\n"), text_column="body", label_column="note")
    assert trained.reading == Reading(text_column="body", label_column="note")
    other = file(tmp_path, "text,stars,note,body\na,b,c,d\n", "b.csv")
    assert read_rows(other, usual=trained.reading).rows == [Row("d", None, "c")]
    assert read_rows(other, text_column="text", usual=trained.reading).rows == [Row("a", None, "c")]
    assert not caplog.records
    assert read_rows(file(tmp_path, "text,stars\na,b\n"), usual=trained.reading).rows == [Row("a", None, "b")]
    assert "no column 'body', which was read in training; it has text, stars" in caplog.text


def test_no_header_as_in_training(tmp_path: Path) -> None:
    path = file(tmp_path, "1,good\n0,bad\n")
    trained = read_rows(path, text_column=1, label_column=0, header=False)
    assert trained.reading == Reading(text_column="1", label_column="0", header=False)
    assert read_rows(path, usual=trained.reading).rows == trained.rows


def test_a_separator_makes_several_labels(tmp_path: Path) -> None:
    read = read_rows(file(tmp_path, "text,label\nx,a| b\ny,b\nz,\n"), label_separator="|")
    assert [row.label for row in read.rows] == [("a", "b"), ("b",), ()]
    assert (read.kind, read.labels, read.reading.label_separator) == ("multi_label", ("a", "b"), "|")
    again = read_rows(tmp_path / "a.csv", kind="multi_label", usual=read.reading)
    assert again.rows == read.rows
    with pytest.raises(BadInput, match=r"'a\| b' is not a list of labels, in csv as JSON, or with a label_separator"):
        read_rows(tmp_path / "a.csv", kind="multi_label")


@pytest.mark.parametrize(
    ("labels", "separator"),
    [("a|b b", "|"), ("a;b b;c", ";"), ('"a,b" b', ","), ("a|b c|d", None), ("Sci/Tech World", None), ("1 2", None)],
)
def test_labels_that_look_like_several_are_told(
    tmp_path: Path, labels: str, separator: str | None, caplog: Any
) -> None:
    path = file(tmp_path, "text,label\n" + "".join(f"x,{label}\n" for label in labels.split()))
    read_rows(path)
    assert (f"label_separator={separator!r}" in caplog.text) == (separator is not None)
    caplog.clear()
    read_rows(path, kind="single_label")
    assert not caplog.records


@pytest.mark.parametrize(
    ("header", "row", "unused"),
    [
        ("text,title,label", "a long story,Stories,x", "'title'"),
        ("text,note,label", "a long story,it is very long,x", "'note'"),
        ("text,id,url,label", "a long story,7,http://x.y,x", None),
        ("text,pair,label", "a story,another story told,x", None),
    ],
)
def test_a_text_that_is_not_read_is_told(
    tmp_path: Path, header: str, row: str, unused: str | None, caplog: Any
) -> None:
    path = file(tmp_path, f"{header}\n{row}\n")
    assert len(read_rows(path).rows) == 1
    assert [one.levelno for one in caplog.records] == [logging.WARNING] * (unused is not None)
    assert unused is None or f"not used: {unused}" in caplog.text
    caplog.clear()
    read_rows(path, text_column="text")
    assert not caplog.records, "who names the column knows the others"


def test_rows_in_python_have_the_same_names_as_files() -> None:
    rows = [{"review": "a", "stars": "5"}, {"query": "a", "passage": "b"}, {"phrase": "a", "label": 1}]
    assert answers.make("single_label").units(rows) == [Row("a", None, "5"), Row("a", "b"), Row("a", None, 1)]
    with pytest.raises(BadInput, match="row 0: the text could be text or sentence; call them text, pair and label"):
        answers.make("single_label").units([{"text": "a", "sentence": "b"}])
