"""Every way a file can arrive broken is an error that names the file, the line, and what would be right."""

from __future__ import annotations

import gzip
import logging
from pathlib import Path
from typing import Any

import pytest

from paredown.errors import BadInput, BadSetting, ParedownError
from paredown.registry import tasks
from paredown.tasks import read_rows

HEAD = b"sentence\tlabel\n"
GOOD = b"fine film\t1\n"
PACKED = gzip.compress((HEAD + GOOD * 2000), mtime=0)

BROKEN: dict[str, tuple[str, bytes, dict[str, Any], str]] = {  # file name, bytes, settings, piece of the message
    "empty file": ("a.tsv", b"", {}, "a.tsv: the file is empty"),
    "only a header": ("a.tsv", HEAD, {}, "a.tsv: the file has no rows"),
    "empty json lines": ("a.jsonl", b"\n", {}, "a.jsonl: the file has no rows"),
    "missing column": (
        "a.tsv",
        b"sentence\tstars_\nx\t1\n",
        {"label_column": "label"},
        "a.tsv: no column 'label'; it has sentence, stars_",
    ),
    "no column looks like text": (
        "a.tsv",
        b"foo\tbar\nx\ty\n",
        {},
        "which column holds the text? It has foo, bar; say text_column",
    ),
    "two columns look like text": (
        "a.tsv",
        b"text\tsentence\tlabel\nx\ty\t1\n",
        {},
        "the text could be text or sentence; say which with text_column",
    ),
    "two columns look like labels": (
        "a.tsv",
        b"text\tlabel\tgold_label\nx\t0\t1\n",
        {},
        "the label could be label or gold_label; say which with label_column",
    ),
    "two pairs of texts": (
        "a.tsv",
        b"premise\thypothesis\tsentence1\tsentence2\tlabel\na\tb\tc\td\t1\n",
        {},
        "could be sentence1 with sentence2, premise with hypothesis; say which with text_column and pair_column",
    ),
    "columns differ in case": (
        "a.csv",
        b"Text,text,label\nx,y,1\n",
        {},
        "'Text' and 'text' differ only in case; name all columns",
    ),
    "column named twice": ("a.csv", b"text,label,label\nx,1,0\n", {}, "line 1: the header names 'label' twice"),
    "empty text": ("a.tsv", HEAD + GOOD + b"  \t1\n", {}, "a.tsv, line 3: empty text in column 'sentence'"),
    "empty pair": (
        "a.tsv",
        b"premise\thypothesis\tlabel\na\tb\t1\na\t\t1\n",
        {},
        "a.tsv, line 3: empty text in column 'hypothesis'",
    ),
    "no label": ("a.tsv", HEAD + GOOD + b"x\t\n", {}, "a.tsv, line 3: no label in column 'label'"),
    "label outside the set": (
        "a.tsv",
        HEAD + GOOD + b"x\tmaybe\n",
        {"labels": ("0", "1")},
        "a.tsv, line 3: label 'maybe' is not one of 0, 1",
    ),
    "label that is no number": (
        "a.tsv",
        HEAD + b"x\t0.5\ny\thigh\n",
        {},
        "a.tsv, line 3: label 'high' is not a number as others in this file are; kind='single_label'",
    ),
    "label that is not finite": ("a.jsonl", b'{"text": "x", "label": Infinity}\n', {}, "label inf is not a finite"),
    "label that is no list": (
        "a.jsonl",
        b'{"text": "x", "label": ["a"]}\n{"text": "y", "label": "a"}\n',
        {},
        "line 2: label 'a' is not a list of labels",
    ),
    "0 or 1 for each label": (
        "a.jsonl",
        b'{"text": "x", "label": [0, 1, 0]}\n',
        {},
        "line 1: labels [0, 1, 0] name one twice; list the labels that hold",
    ),
    "label that is an object": (
        "a.jsonl",
        b'{"text": "x", "label": {"a": 1}}\n',
        {},
        "line 1: label {'a': 1} is not a name or a number",
    ),
    "short row": (
        "a.tsv",
        HEAD + GOOD + b"no label\n",
        {},
        "a.tsv, line 3: 1 columns where 2 are needed (sentence, label)",
    ),
    "long row": ("a.csv", b"text,label\nx,1\na, b,1\n", {}, "a.csv, line 3: 3 columns where 2 are needed"),
    "blank line inside": ("a.tsv", HEAD + GOOD + b"\n" + GOOD, {}, "a.tsv, line 3: the line is empty"),
    "not UTF-8": (
        "a.tsv",
        HEAD + GOOD + b"caf\xe9 film\t1\n",
        {},
        "a.tsv, line 3: column 'sentence' is not UTF-8 (at character 3",
    ),
    "UTF-16": (
        "a.tsv",
        "sentence\tlabel\nx\t1\n".encode("utf-16"),
        {},
        "line 1: this is UTF-16; save the file as UTF-8",
    ),
    "half a surrogate pair": (
        "a.jsonl",
        b'{"text": "a \\ud83d", "label": 1}\n',
        {},
        "line 1: column 'text' is not UTF-8",
    ),
    "NUL": ("a.tsv", HEAD + b"a\0b\t1\n", {}, "line 2: column 'sentence' holds a NUL character"),
    "CR alone": ("a.tsv", b"sentence\tlabel\rx\t1\r", {}, "line 1: lines end in CR alone"),
    "unclosed quote": (
        "a.csv",
        b'text,label\nx,1\n"open,0\ny,1\n',
        {},
        "a.csv, line 3: a quote that opens here is never closed",
    ),
    "stray quote": ("a.csv", b'text,label\nx,1\n"a"b,0\ny,1\n', {}, "a.csv, line 3: quotes are wrong"),
    "bad JSON": ("a.jsonl", b'{"text": "x", "label": 1}\n{"text": \n', {}, "a.jsonl, line 2: not JSON"),
    "all JSON bad": ("a.jsonl", b"{\n{\n", {}, "line 1: not JSON: Expecting property name"),
    "JSON but no object": ("a.jsonl", b'{"text": "x"}\n["y"]\n', {}, 'line 2: expected a JSON object, got ["y"]'),
    "JSON row without the column": (
        "a.jsonl",
        b'{"label": 1}\n{"text": "y", "label": 1}\n',
        {},
        "line 1: no column 'text'; it has label",
    ),
    "first JSON row without the label": (
        "a.jsonl",
        b'{"text": "x"}\n{"text": "y", "label": 1}\n',
        {},
        "line 1: no label in column 'label'",
    ),
    "text that is a number": (
        "a.jsonl",
        b'{"text": 5, "label": 1}\n',
        {},
        "line 1: column 'text' must hold text, not 5",
    ),
    "gzip cut short": ("a.tsv.gz", PACKED[:-12], {}, "the file is cut short or damaged"),
    "gzip in name only": ("a.tsv.gz", HEAD + GOOD, {}, "a.tsv.gz, after line 0: the file is cut short or damaged"),
    "not a parquet file": ("a.parquet", b"PAR1 no", {}, "a.parquet is not a parquet file, or damaged"),
    "unknown ending": ("a.docx", b"x", {}, "a.docx: the name must end in one of .tsv, .tsv.gz, .csv"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken(tmp_path: Path, case: str) -> None:
    name, content, settings, piece = BROKEN[case]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(BadInput) as caught:
        read_rows(tmp_path / name, **settings)
    assert piece in str(caught.value)
    assert str(tmp_path / name) in str(caught.value)


GLUE: dict[str, tuple[str, str, bytes, str]] = {  # task, split, bytes, piece of the message
    "other layout": ("rte", "dev", b"premise\thypothesis\tlabel\n", "line 1: no column 'sentence1'; it has premise"),
    "unlabelled dev": ("sst-2", "dev", b"index\tsentence\n0\tx\n", "line 1: no column 'label'; it has index, sentence"),
    "label of another task": (
        "rte",
        "dev",
        b"index\tsentence1\tsentence2\tlabel\n0\ta\tb\tneutral\n",
        "line 2: label 'neutral' is not one of entailment, not_entailment",
    ),
    "score out of range": (
        "elue-sts-b",
        "dev",
        b"sentence1\tsentence2\tlabel\na\tb\t7.5\n",
        "line 2: label 7.5 is not in 0..5",
    ),
    "score that is no number": (
        "elue-sts-b",
        "train",
        b"sentence1\tsentence2\tlabel\na\tb\thigh\n",
        "line 2: label 'high' is not a number",
    ),
    "headless row cut short": (
        "cola",
        "train",
        b"gj04\t1\t\tFine.\ngj04\t1\n",
        "line 2: 2 columns where 4 are needed (source, label, mark, sentence)",
    ),
    "all labels empty": ("sst-2", "dev", b"sentence\tlabel\nx\t\n", "line 2: no label in column 'label'"),
    "qid missing": ("nlpcc-dbqa", "dev", b"label\ttext_a\ttext_b\n1\ta\tb\n", "line 1: no column 'qid'"),
    "qid empty": ("nlpcc-dbqa", "dev", b"qid\tlabel\ttext_a\ttext_b\n\t1\ta\tb\n", "line 2: empty 'qid'"),
}


@pytest.mark.parametrize("case", GLUE)
def test_broken_benchmark_file(tmp_path: Path, case: str) -> None:
    name, split, content, piece = GLUE[case]
    task = tasks.make(name)
    folder = tmp_path / task.folder.split("|")[0]
    folder.mkdir()
    (folder / f"{split}.tsv").write_bytes(content)
    with pytest.raises(BadInput) as caught:
        task.read(tmp_path, split)
    assert piece in str(caught.value) and str(folder) in str(caught.value)


def test_the_first_is_named_and_the_others_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_bytes(HEAD + GOOD * 4 + b"\t1\n" + b"cut\n" * 12 + GOOD)
    said = r"a\.tsv, line 6: empty text in column 'sentence'; and 12 more rows \(skip_bad_rows=True reads the other 5\)"
    with pytest.raises(BadInput, match=said):
        read_rows(path)
    path.write_bytes(HEAD + GOOD + b"\t1\n" * 2)
    with pytest.raises(BadInput, match=r"; and 1 more row \(skip"):
        read_rows(path)


def test_skipping_is_knowing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "a.tsv"
    path.write_bytes(HEAD + GOOD + b"\t1\n" + b"x\t0\n" + b"cut\n")
    with caplog.at_level(logging.WARNING):
        found = read_rows(path, skip_bad_rows=True)
    assert [row.text for row in found.rows] == ["fine film", "x"]
    assert [bad.location for bad in found.bad] == ["line 3", "line 5"]
    assert "left out 2 of 4 rows" in caplog.text and "line 3: empty text" in caplog.text


def test_skipping_goes_on_after_bad_quotes(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b'text,label\nx,1\n"a"b,0\ny,1\n')
    found = read_rows(path, skip_bad_rows=True)
    assert [row.text for row in found.rows] == ["x", "y"] and [bad.location for bad in found.bad] == ["line 3"]


def test_a_file_without_a_good_row_is_never_skipped(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_bytes(HEAD + b"cut\n")
    with pytest.raises(BadInput, match="no row of the file is good"):
        read_rows(path, skip_bad_rows=True)


def test_missing_and_doubled_files(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"SST-2/dev is missing; the dev rows belong there"):
        tasks.make("sst-2").read(tmp_path, "dev")
    with pytest.raises(BadInput, match="no split is called 'validation'; known: train, dev, test"):
        tasks.make("sst-2").read(tmp_path, "validation")
    (tmp_path / "SST-2").mkdir()
    for name in ("dev.tsv", "dev.tsv.gz"):
        (tmp_path / "SST-2" / name).write_bytes(HEAD + GOOD)
    with pytest.raises(BadInput, match=r"could be in .*dev\.tsv or in .*dev\.tsv\.gz; keep one"):
        tasks.make("sst-2").read(tmp_path, "dev")
    with pytest.raises(BadInput, match=r"nothing\.csv is missing"):
        read_rows(tmp_path / "nothing.csv")


def test_bad_settings(tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match="span rows are not read from tables"):
        read_rows(tmp_path / "a.csv", kind="span")
    with pytest.raises(ParedownError, match="no kind of answer is called 'nonsense'"):
        read_rows(tmp_path / "a.csv", kind="nonsense")
    with pytest.raises(BadInput, match="got int"):
        read_rows(5)
