"""Any file: formats and their oddities, guessed columns, kinds and labels, folders, datasets."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paredown.answers import Row
from paredown.errors import BadInput
from paredown.registry import answers, tasks
from paredown.tasks import read_rows

ROWS = [Row('say "hi", twice', None, "good"), Row("no\x85break\u2028here", None, "bad"), Row("很好", None, "good")]


def write(path: Path, content: str | bytes) -> Path:
    content = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def as_text(suffix: str) -> str:
    if suffix.startswith(".jsonl"):
        return "".join(json.dumps({"text": row.text, "label": row.label}) + "\n" for row in ROWS)
    if suffix.startswith(".tsv"):
        return "text\tlabel\n" + "".join(f"{row.text}\t{row.label}\n" for row in ROWS)
    return "text,label\n" + "".join('"{}",{}\n'.format(str(row.text).replace('"', '""'), row.label) for row in ROWS)


@pytest.mark.parametrize("suffix", [".tsv", ".csv", ".jsonl", ".tsv.gz", ".csv.gz", ".jsonl.gz"])
@pytest.mark.parametrize("change", ["plain", "bom", "crlf", "no last newline", "blank lines at the end"])
def test_text_formats(tmp_path: Path, suffix: str, change: str) -> None:
    text = as_text(suffix)
    if change == "bom":
        text = "\ufeff" + text
    elif change == "crlf":
        text = text.replace("\n", "\r\n")
    elif change == "no last newline":
        text = text.removesuffix("\n")
    elif change == "blank lines at the end":
        text += "\n\n"
    found = read_rows(write(tmp_path / f"rows{suffix}", text))
    assert found.rows == ROWS
    assert (found.labels, found.kind, found.bad, found.metric) == (("bad", "good"), "single_label", (), "accuracy")


def test_csv_cells_may_hold_lines_and_much_text(tmp_path: Path) -> None:
    long = "word " * 50_000
    found = read_rows(write(tmp_path / "a.csv", f'text,label\n"two\nlines",1\n"{long}",0\n,1\n'), skip_bad_rows=True)
    assert [row.text for row in found.rows] == ["two\nlines", long]
    assert found.bad[0].location == "line 5"  # a record's first line counts


def test_tsv_quotes_are_text_unless_asked(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", 'text\tlabel\n" open\t1\n')
    assert read_rows(path).rows == [Row('" open', None, "1")]
    path = write(tmp_path / "a.tsv", 'text\tlabel\n"a\tb"\t1\n')
    assert read_rows(path, quoted=True).rows == [Row("a\tb", None, "1")]


def test_parquet(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"premise": ["a", "b"], "hypothesis": ["c", "d"], "label": [1, 0]}), path)
    found = read_rows(path)
    assert found.rows == [Row("a", "c", "1"), Row("b", "d", "0")]
    pq.write_table(pa.table({"text": ["a", None], "label": [1, 0]}), path)
    with pytest.raises(BadInput, match=r"a\.parquet, row 2: empty text in column 'text'"):
        read_rows(path)


@pytest.mark.parametrize(
    ("header", "text", "pair", "label"),
    [
        ("text,label", "text", None, "label"),
        ("id,Text,Label", "Text", None, "Label"),
        ("label,text_a", "text_a", None, "label"),
        ("label,text_a,text_b", "text_a", "text_b", "label"),
        ("index,question,sentence,label", "question", "sentence", "label"),
        ("id,question1,question2,is_duplicate", "question1", "question2", "is_duplicate"),
        ("review,stars", "review", None, "stars"),
        ("label,score,sentence", "sentence", None, "label"),
        ("text,review,label", "text", None, "label"),
        ("whatever,label", "whatever", None, "label"),
        ("whatever", "whatever", None, None),
        ("title,text", "text", None, None),
    ],
)
def test_guessed_columns(tmp_path: Path, header: str, text: str, pair: str | None, label: str | None) -> None:
    names = header.split(",")
    found = read_rows(write(tmp_path / "a.csv", f"{header}\n{','.join(f'in {name}' for name in names)}\n"))
    (row,) = found.rows
    assert row == Row(f"in {text}", pair and f"in {pair}", label and f"in {label}")


def test_named_and_numbered_columns(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "x,y,z\none,two,three\n")
    assert read_rows(path, text_column="y", label_column="x").rows == [Row("two", None, "one")]
    found = read_rows(path, header=False, text_column=1, pair_column=-1, label_column=0)
    assert found.rows == [Row("y", "z", "x"), Row("two", "three", "one")]
    with pytest.raises(BadInput, match="no column 7; it has 0, 1, 2"):
        read_rows(path, header=False, text_column=7)


@pytest.mark.parametrize(
    ("labels", "kind", "names", "first"),
    [
        (["10", "9", "-1"], "single_label", ("-1", "9", "10"), "10"),
        (["b", "a", "1"], "single_label", ("1", "a", "b"), "b"),
        (["1.0", "2", "3"], "regression", ("score",), 1.0),
        ([1e-3, 2, 3], "regression", ("score",), 0.001),
        ([True, False, True], "single_label", ("false", "true"), "true"),
        ([["b", "a"], [], ["c"]], "multi_label", ("a", "b", "c"), ("b", "a")),
        ([[10, 2], [], [3]], "multi_label", ("2", "3", "10"), ("10", "2")),
        (['["b", "a"]', "[]", '["c"]'], "multi_label", ("a", "b", "c"), ("b", "a")),
        ([None, None, None], "single_label", (), None),
    ],
)
def test_guessed_kinds(tmp_path: Path, labels: list, kind: str, names: tuple[str, ...], first: object) -> None:
    lines = [json.dumps({"text": "x", "label": label}) + "\n" for label in labels]
    found = read_rows(write(tmp_path / "a.jsonl", "".join(lines)))
    assert (found.kind, found.labels, found.rows[0].label) == (kind, names, first)
    for place, row in enumerate(found.rows):
        answers.make(kind).label_number(row.label, found.labels, place)  # every label found can be counted


def test_kind_and_labels_can_be_told(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "text,label\nx,1.5\ny,beta\n")
    assert read_rows(path, kind="single_label").labels == ("1.5", "beta")
    path = write(tmp_path / "a.csv", "text,label\nx,1\ny,2\n")
    assert [row.label for row in read_rows(path, kind="regression").rows] == [1.0, 2.0]
    assert read_rows(path, labels=("2", "1", "0")).labels == ("2", "1", "0")


def test_groups_are_ranked(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "q,text,label\n1,a,0\n1,b,1\n2,c,1\n")
    found = read_rows(path, group_column="q")
    assert (found.groups, found.metric) == (("1", "1", "2"), "mean_reciprocal_rank")
    assert read_rows(path).groups is None


def test_folders_and_splits(tmp_path: Path) -> None:
    write(tmp_path / "train.csv", "text,label\nx,1\n")
    write(tmp_path / "validation.jsonl", '{"text": "y", "label": 0}\n')
    assert read_rows(tmp_path, split="train").rows == [Row("x", None, "1")]
    assert read_rows(tmp_path, split="dev").rows == [Row("y", None, "0")]
    with pytest.raises(BadInput, match=r"say which split; the folder has train\.csv, validation\.jsonl"):
        read_rows(tmp_path)
    with pytest.raises(BadInput, match="0 files for the split 'test'"):
        read_rows(tmp_path, split="test")
    with pytest.raises(BadInput, match=r"is one file; for the split 'dev' give a folder, or \{split\}"):
        read_rows(tmp_path / "train.csv", split="dev")
    task = tasks.make("text", path="{split}.csv", labels=["0", "1"])
    assert task.read(tmp_path, "train").rows == [Row("x", None, "1")]
    assert (task.labels, task.metric) == (("0", "1"), "accuracy")
    assert tasks.make("text", path=str(tmp_path), kind="regression").read(split="dev").rows == [Row("y", None, 0.0)]


def test_datasets(monkeypatch: pytest.MonkeyPatch) -> None:
    features = datasets.Features(text=datasets.Value("string"), label=datasets.ClassLabel(names=["neg", "pos"]))
    train = datasets.Dataset.from_dict({"text": ["a", "b"], "label": [1, 0]}, features=features)
    hidden = datasets.Dataset.from_dict({"text": ["a"], "label": [-1]}, features=features)
    found = read_rows(train)
    assert (found.labels, [row.label for row in found.rows]) == (("neg", "pos"), ["pos", "neg"])
    assert read_rows(hidden).rows == [Row("a")]

    asked = []

    def load_dataset(name: str, config: str | None, split: str | None) -> object:
        asked.append((name, config, split))
        return datasets.DatasetDict(train=train, validation=hidden) if split is None else train

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    assert len(read_rows("some/set", config="part", split="train").rows) == 2
    assert tasks.make("text", path="some/set").read(split="dev").rows == [Row("a")]
    assert asked == [("some/set", "part", "train"), ("some/set", None, None)]
    with pytest.raises(BadInput, match="some/set has the splits train, validation; say which"):
        read_rows("some/set")
    with pytest.raises(BadInput, match="one split of a dataset, got DatasetDict"):
        read_rows(datasets.DatasetDict(train=train))


def test_multi_label_datasets() -> None:
    names = datasets.List(datasets.ClassLabel(names=["sad", "glad", "mad"]))
    features = datasets.Features(text=datasets.Value("string"), labels=names)
    found = read_rows(datasets.Dataset.from_dict({"text": ["a", "b"], "labels": [[2, 0], []]}, features=features))
    assert (found.kind, found.labels, found.rows[0].label) == ("multi_label", ("sad", "glad", "mad"), ("mad", "sad"))


def test_no_net_no_dataset(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*unused: object, **also: object) -> None:
        raise ConnectionError("no route")

    monkeypatch.setattr(datasets, "load_dataset", fail)
    with pytest.raises(BadInput, match=r"nobody/nothing is neither a file here nor a dataset of the Hub .*no route"):
        read_rows("nobody/nothing")
