"""Tables of the catalogue: the layout of each in small files."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import pytest

from paredown.answers import Row
from paredown.errors import BadInput
from paredown.registry import tasks

LAYOUTS: list[tuple[str, str, str, Row]] = [  # task, file, content, first row
    ("cola", "CoLA/train.tsv", "gj04\t0\t*\tBad are it.\n", Row("Bad are it.", None, "0")),
    ("cola", "CoLA/test.tsv", "index\tsentence\n0\tFine.\n", Row("Fine.")),
    ("sst-2", "SST-2/dev.tsv", "sentence\tlabel\nfine \t1\n", Row("fine ", None, "1")),
    ("sst-2", "SST-2/test.tsv", "index\tsentence\n0\tfine\n", Row("fine")),
    (
        "qqp",
        "QQP/train.tsv",
        "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n1\t2\t3\ta?\tb?\t0\n",
        Row("a?", "b?", "0"),
    ),
    ("qqp", "QQP/test.tsv", "id\tquestion1\tquestion2\n0\ta?\tb?\n", Row("a?", "b?")),
    (
        "mnli",
        "MNLI/dev_matched.tsv",
        "index\tpromptID\tsentence1\tsentence2\tlabel1\tgold_label\n0\t1\ta\tb\tneutral\tentailment\n",
        Row("a", "b", "entailment"),
    ),
    (
        "mnli-mm",
        "MNLI/dev_mismatched.tsv",
        "index\tsentence1\tsentence2\tgold_label\n0\ta\tb\tneutral\n",
        Row("a", "b", "neutral"),
    ),
    ("mnli-mm", "MNLI/test_mismatched.tsv", "index\tsentence1\tsentence2\n0\ta\tb\n", Row("a", "b")),
    ("elue-sst-2", "SST-2/train.tsv", "\ufeffsentence\tlabel\r\nfine\t1\r\n", Row("fine", None, "1")),
    ("elue-sst-2", "SST-2/test_full.tsv", "index\tsentence\tlabel\n0\tfine\t1\n", Row("fine", None, "1")),
    ("elue-imdb", "IMDb/test.tsv", "index\tsentence\n0\tfine\n", Row("fine")),
    ("elue-mrpc", "MRPC/test.tsv", "index\t#1 ID\t#2 ID\t#1 String\t#2 String\n0\t1\t2\ta\tb\n", Row("a", "b")),
    ("elue-sts-b", "STS-B/dev.tsv", "sentence1\tsentence2\tlabel\na\tb\t3.8\n", Row("a", "b", 3.8)),
    ("elue-snli", "SNLI/dev.tsv", "premise\thypothesis\tlabel\na\tb\t2\n", Row("a", "b", "contradiction")),
    ("elue-scitail", "SciTail/dev.tsv", "premise\thypothesis\tlabel\na\tb\t1\n", Row("a", "b", "entails")),
    ("imdb", "imdb/dev.jsonl", '{"text": "fine", "label": 1}\n', Row("fine", None, "1")),
    ("20news", "20news/dev.jsonl", '{"text": "orbit", "label": 14}\n', Row("orbit", None, "sci.space")),
    ("hyperpartisan", "hyperpartisan/dev.jsonl", '{"text": "x", "label": 0}\n', Row("x", None, "0")),
    ("yelp_f", "yelp_f/train.csv", '"5","so ""good"""\n', Row('so "good"', None, "5")),
    ("yelp_p", "yelp_p/test.csv", '"2","good"\n', Row("good", None, "2")),
    ("ag_news", "ag_news_csv/train.csv", '"4","Title","Text."\n', Row("Title Text.", None, "Sci/Tech")),
    ("fastbert", "train.tsv", "label\ttext_a\n3\t好\n", Row("好", None, "3")),
    ("fastbert", "dev.tsv", "text_b\ttext_a\tlabel\nb\ta\t0\n", Row("a", "b", "0")),
    ("lcqmc", "LCQMC/test.tsv", "text_a\ttext_b\na\tb\n", Row("a", "b")),
]


@pytest.mark.parametrize(("name", "path", "content", "row"), LAYOUTS, ids=[f"{case[0]} {case[1]}" for case in LAYOUTS])
def test_layouts(tmp_path: Path, name: str, path: str, content: str, row: Row) -> None:
    (tmp_path / path).parent.mkdir(exist_ok=True)
    (tmp_path / path).write_bytes(content.encode())
    split = Path(path).stem.replace("_matched", "").replace("_mismatched", "")
    assert tasks.make(name).read(tmp_path, split).rows == [row]
    if path != "dev.tsv" and "/" in path:
        assert tasks.make(name).read((tmp_path / path).parent, split).rows == [row]  # the folder itself is fine too
    packed = tmp_path / f"{path}.gz"
    packed.write_bytes(gzip.compress((tmp_path / path).read_bytes()))
    (tmp_path / path).unlink()
    assert tasks.make(name).read(tmp_path, split).rows == [row]


def test_ranked_rows_know_their_question(tmp_path: Path) -> None:
    text = "qid\tlabel\ttext_a\ttext_b\n7\t0\tq\ta\n7\t1\tq\tb\n8\t1\tr\tc\n"
    (tmp_path / "dev.tsv").write_text(text)
    found = tasks.make("fastbert").read(tmp_path, "dev")
    assert (found.groups, found.metric, found.labels) == (("7", "7", "8"), "mean_reciprocal_rank", ("0", "1"))
    assert tasks.make("nlpcc-dbqa", folder=".").read(tmp_path, "dev").groups == found.groups
    assert tasks.make("nlpcc-dbqa").metric == "mean_reciprocal_rank"


def articles(labels: list[int]) -> str:
    return "".join(f"{place:07d} {label} text number {place}\n" for place, label in enumerate(labels))


def test_hyperpartisan_text_and_xml_give_the_same_split(tmp_path: Path) -> None:
    labels = [int(place % 3 == 0) for place in range(60)]
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "original_data.txt").write_text(articles(labels))
    folder = tmp_path / "xml" / "hyperpartisan"
    folder.mkdir(parents=True)
    body = "".join(f'<article id="{n}" title="t"><p>text\n<b>number</b></p> {n}</article>' for n in range(60))
    truth = "".join(f'<article id="{n}" hyperpartisan="{"true" if labels[n] else "false"}"/>' for n in range(60))
    (folder / "articles-training-byarticle-1.xml").write_text(f"<articles>{body}</articles>")
    (folder / "ground-truth-training-byarticle-1.xml").write_text(f"<articles>{truth}</articles>")

    task = tasks.make("hyperpartisan")
    zeros = [f"text number {n}" for n in range(60) if not labels[n]]
    ones = [f"text number {n}" for n in range(60) if labels[n]]
    shuffled = random.Random(42)
    shuffled.shuffle(zeros)
    shuffled.shuffle(ones)
    want = {"train": zeros[:-8] + ones[:-8], "dev": zeros[-8:-4] + ones[-8:-4], "test": zeros[-4:] + ones[-4:]}
    for split, texts in want.items():
        rows = task.read(tmp_path / "text", split).rows
        assert [row.text for row in rows] == texts
        assert task.read(tmp_path / "xml", split).rows == rows

    (folder / "ground-truth-training-byarticle-1.xml").write_text(
        "<articles><article id='1' hyperpartisan='true'/></articles>"
    )
    with pytest.raises(BadInput, match=r"article 1: id '0' has no label in ground-truth.*and 58 more rows"):
        task.read(tmp_path / "xml", "dev")
    (folder / "articles-training-byarticle-1.xml").write_text("<articles>\n<article></articles>")
    with pytest.raises(BadInput, match=r"articles-training-byarticle-1\.xml, line 2: not well-formed xml"):
        task.read(tmp_path / "xml", "dev")


def test_hyperpartisan_broken_text(tmp_path: Path) -> None:
    path = tmp_path / "original_data.txt"
    path.write_text(articles([0, 1] * 20) + "0000041 2 odd label\ncut\n")
    with pytest.raises(BadInput, match=r"original_data\.txt, line 41: label '2' is not one of 0, 1 .*and 1 more row"):
        tasks.make("hyperpartisan").read(tmp_path, "train")
    path.write_text(articles([0, 1]))
    with pytest.raises(BadInput, match="1 and 1 articles are too few to split"):
        tasks.make("hyperpartisan").read(tmp_path, "train")
