"""Hyperpartisan news (SemEval-2019 task 4), TR-BERT's split: from its json lines, its text file or the original xml."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from xml.etree import ElementTree

from paredown.answers import Row
from paredown.answers._columns import Columns
from paredown.errors import BadInput
from paredown.registry import tasks
from paredown.tasks._files import Files
from paredown.tasks._reading import gather
from paredown.tasks._table import Numbered, Table, numbered_lines, without_last_blanks
from paredown.tasks._task import Split

ARTICLES, TRUTH, LINES = "articles-training-byarticle*.xml", "ground-truth-training-byarticle*.xml", "original_data.txt"
SEED = 42


@tasks.register("hyperpartisan")
@dataclass(frozen=True)
class Hyperpartisan(Files):
    folder: str = "hyperpartisan|Hyperpartisan"
    spelled: tuple[str, ...] = ("false", "true")

    def read(self, root: str | Path, split: str, skip_bad_rows: bool = False) -> Split:
        self._check(split)
        for folder in (Path(root), *(Path(root) / name for name in self.folder.split("|"))):
            if any(folder.glob(f"{split}.jsonl*")) or not folder.is_dir():
                continue
            table = _whole(folder)
            if table is not None:
                columns = Columns(("text",), None, "label")
                whole = gather(table, columns, self._wanted(), skip_bad_rows, self.metrics)
                return replace(whole, rows=_part(whole, split))
        return super().read(root, split, skip_bad_rows)


def _part(whole: Split, split: str) -> list[Row]:
    """TR-BERT's split: each class is shuffled, dev and test take a tenth of the larger class from each."""
    shuffled = random.Random(SEED)
    classes = [[row for row in whole.rows if row.label == label] for label in whole.labels]
    for rows in classes:
        shuffled.shuffle(rows)
    tenth = int(len(classes[0]) / 10 + 0.5)  # of the first class for both, as in its script
    if tenth == 0 or any(len(rows) <= 2 * tenth for rows in classes):
        found = " and ".join(str(len(rows)) for rows in classes)
        raise BadInput(f"{whole.source}: {found} articles are too few to split")
    part = {"train": slice(-2 * tenth), "dev": slice(-2 * tenth, -tenth), "test": slice(-tenth, None)}[split]
    return [row for rows in classes for row in rows[part]]


def _whole(folder: Path) -> Table | None:
    """All articles, before the split; None where the folder has neither source."""
    if (folder / LINES).is_file():
        return Table(str(folder / LINES), ("text", "label"), without_last_blanks(_from_lines(folder / LINES)))
    found = [sorted(folder.glob(pattern)) for pattern in (ARTICLES, TRUTH)]
    if not any(found):
        return None
    if not all(len(paths) == 1 for paths in found):
        raise BadInput(f"{folder}: expected one {ARTICLES} and one {TRUTH}, found {sum(map(len, found))} such files")
    return Table(str(found[0][0]), ("text", "label"), _from_xml(found[0][0], found[1][0]), "article")


def _from_lines(path: Path) -> Numbered:
    for number, line in numbered_lines(path):
        parts = line.strip().split(" ", 2)
        if len(parts) == 3:
            yield number, {"label": parts[1], "text": parts[2]}
        else:
            yield number, "expected an id, a label and the text, with spaces between" if line.strip() else []


def _from_xml(articles: Path, truth: Path) -> Numbered:
    labels = {article.get("id"): article.get("hyperpartisan") for article in _articles(truth)}
    for number, article in enumerate(_articles(articles), 1):
        key = article.get("id")
        if key in labels:
            yield number, {"label": labels.pop(key), "text": " ".join("".join(article.itertext()).split())}
        else:
            yield number, f"id {key!r} has no label in {truth.name}"
    if labels:
        raise BadInput(f"{articles}: {len(labels)} labelled articles are missing, first id {next(iter(labels))!r}")


def _articles(path: Path) -> Iterator[ElementTree.Element]:
    try:
        for _, element in ElementTree.iterparse(path):
            if element.tag == "article":
                yield element
                element.clear()
    except ElementTree.ParseError as error:
        raise BadInput(f"{path}, line {error.position[0]}: not well-formed xml: {error}") from error
