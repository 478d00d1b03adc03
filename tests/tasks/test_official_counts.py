"""Readers against the real files: official row counts, labels, first and last rows. Skips where the data is absent.

The data is looked for in $PAREDOWN_DATA, else beside the repository in shared/data; both hold `unpack` and archives.
"""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from paredown.errors import BadInput
from paredown.registry import tasks
from paredown.tasks import read_rows

DATA = Path(os.environ.get("PAREDOWN_DATA") or Path(__file__).resolve().parents[3] / "shared" / "data")

COUNTS = [  # task, archive, rows per split
    ("cola", "glue", {"train": 8551, "dev": 1043, "test": 1063}),
    ("sst-2", "glue", {"train": 67349, "dev": 872, "test": 1821}),
    ("mrpc", "glue", {"train": 3668, "dev": 408, "test": 1725}),
    ("sts-b", "glue", {"train": 5749, "dev": 1500, "test": 1379}),
    ("qnli", "glue", {"dev": 5463, "test": 5463}),
    ("rte", "glue", {"train": 2490, "dev": 277, "test": 3000}),
    ("wnli", "glue", {"train": 635, "dev": 71, "test": 146}),
    ("ax", "glue", {"test": 1104}),
    ("elue-mrpc", "glue", {"train": 3668, "dev": 408, "test": 1725}),
    ("elue-snli", "nli", {"test": 9824}),
    ("imdb", "imdb", {"train": 25000, "test": 25000}),
    ("20news", "20news", {"train": 11314, "test": 7532}),
    ("ag_news", "ag_news", {"test": 7600}),
    ("book-review", "chinese", {"train": 20000, "dev": 10000, "test": 10000}),
    ("chnsenticorp", "chinese", {"train": 9600, "dev": 1200, "test": 1200}),
    ("hyperpartisan", "hyperpartisan", {"train": 481, "dev": 82, "test": 82}),
]
KEPT_BACK = {"cola", "sst-2", "mrpc", "sts-b", "qnli", "rte", "wnli", "ax", "elue-mrpc"}  # test labels
EVEN = {("imdb", "train"): 12500, ("imdb", "test"): 12500, ("ag_news", "test"): 1900}  # rows per label
ENDS = {
    ("cola", "dev"): ("The sailors rode the breeze clear of the rocks.", "John talked to Bill about himself."),
    ("sst-2", "test"): ("uneasy mishmash of styles and genres .", None),
    ("rte", "train"): ("No Weapons of Mass Destruction Found in Iraq Yet.", None),
    ("sts-b", "train"): ("A plane is taking off.", None),
}
PAIRS = {"mrpc", "sts-b", "qnli", "rte", "wnli", "ax", "elue-mrpc", "elue-snli"}
NO_HEADER = {"header": False, "text_column": 0, "pair_column": 1, "label_column": 2}
FILES = [  # sets whose files are nobody's layout, read as any file
    ("nli", "SciTail/dev.tsv", NO_HEADER, 1304, ("entails", "neutral")),
    ("nli", "SciTail/test.tsv", NO_HEADER, 2126, ("entails", "neutral")),
    ("nli", "SNLI/dev_tokenised.tsv", NO_HEADER, 9842, ("0", "1", "2")),
    ("nli", "SNLI/test.tsv", {}, 9824, ("contradiction", "entailment", "neutral")),
    ("glue", "QQP/dev_partial.tsv", {}, 7600, ("0", "1")),
    ("glue", "MNLI/dev_matched_partial.tsv", {}, 7469, ("contradiction", "entailment", "neutral")),
    ("glue", "STS-B/dev.tsv", {}, 1500, ("score",)),
]


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Unpacks an archive when a test first asks for it."""
    root, done = tmp_path_factory.mktemp("data"), set()

    def unpack(archive: str) -> Path:
        if not (DATA / f"{archive}.tar.xz").is_file():
            pytest.skip(f"the real data is not here: no {archive}.tar.xz in {DATA}")
        if archive not in done:
            subprocess.run(["tar", "-C", root, "-xJf", DATA / f"{archive}.tar.xz"], check=True)
            done.add(archive)
        return root

    return unpack


@pytest.mark.parametrize(
    ("name", "archive", "split", "rows"),
    [(name, archive, split, rows) for name, archive, counts in COUNTS for split, rows in counts.items()],
)
def test_rows(unpacked: Callable[[str], Path], name: str, archive: str, split: str, rows: int) -> None:
    task = tasks.make(name)
    found = task.read(unpacked(archive), split).rows
    assert len(found) == rows
    assert all((row.pair is not None) == (name in PAIRS) for row in found)
    labels = Counter(row.label for row in found)
    if split == "test" and name in KEPT_BACK:
        assert set(labels) == {None}
    elif task.kind == "regression":
        assert min(labels) == 0.0 and max(labels) == 5.0
    else:
        assert set(labels) == set(task.labels)
    if (name, split) in EVEN:
        assert set(labels.values()) == {EVEN[name, split]}
    for row, text in zip((found[0], found[-1]), ENDS.get((name, split), ())):
        assert text is None or row.text == text


@pytest.mark.parametrize(("archive", "path", "settings", "rows", "labels"), FILES, ids=[case[1] for case in FILES])
def test_any_file(
    unpacked: Callable[[str], Path], archive: str, path: str, settings: dict, rows: int, labels: tuple[str, ...]
) -> None:
    found = read_rows(unpacked(archive) / path, **settings)
    assert (len(found.rows), found.labels) == (rows, labels)
    assert found.kind == ("regression" if labels == ("score",) else "single_label")
    assert all(row.pair for row in found.rows)


def test_rows_without_a_gold_label_are_counted(unpacked: Callable[[str], Path]) -> None:
    path = unpacked("nli") / "SNLI" / "snli_1.0_test.jsonl"
    labels = ("entailment", "neutral", "contradiction")
    with pytest.raises(BadInput, match=r"label '-' is not one of .*; and 175 more rows .*reads the other 9824"):
        read_rows(path, labels=labels)
    found = read_rows(path, labels=labels, skip_bad_rows=True)
    assert (len(found.rows), len(found.bad), found.labels) == (9824, 176, labels)


def test_hyperpartisan_split_has_every_article_once(unpacked: Callable[[str], Path]) -> None:
    root = unpacked("hyperpartisan")
    splits = {split: tasks.make("hyperpartisan").read(root, split).rows for split in ("train", "dev", "test")}
    assert [Counter(row.label for row in rows) for rows in splits.values()] == [
        {"0": 325, "1": 156},
        {"0": 41, "1": 41},
        {"0": 41, "1": 41},
    ]
    texts = [row.text for rows in splits.values() for row in rows]
    assert len(texts) == 645
    assert not any("<p>" in text or "\n" in text for text in texts)
