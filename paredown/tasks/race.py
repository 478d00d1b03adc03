"""RACE (Lai et al., 2017): an article, questions, one of four options is right; official folders or json lines.

`race` asks for one of the options; `race-options`, as in TR-BERT, asks for every option whether it is right.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

from paredown.answers import Choices, Row
from paredown.errors import BadInput
from paredown.registry import tasks
from paredown.tasks._questions import Fault, Found, field_of, read_json, readable, text_of
from paredown.tasks._records import LINES, QuestionTask, numbered_records
from paredown.tasks._task import Split

LEVELS = ("middle", "high")
ARTICLE = ".txt"  # the ending of the official files
VALIDATION = {"dev": "validation"}  # as the json lines of OpenCompass call it


@tasks.register("race")
@dataclass(frozen=True)
class Race(QuestionTask):
    level: Literal["all", "middle", "high"] = "all"  # of school
    folder: str = "RACE|race"  # a|b: either
    version: int = 1  # grows when questions, answers or the headline change
    in_folders_of: ClassVar[str] = ARTICLE
    kind: ClassVar[str] = "choice"
    metrics: ClassVar[tuple[str, ...]] = ("accuracy",)

    def questions(self, path: Path) -> Found:
        return (_from_lines if path.is_file() else _from_folder)(path)

    def _sources(self, root: Path, split: str) -> list[Path]:
        levels = LEVELS if self.level == "all" else (self.level,)
        return [self._source(root, split, level) for level in levels]

    def _source(self, root: Path, split: str, level: str) -> Path:
        """A folder of articles, or a file of questions."""
        roots = [*(root / folder for folder in self.folder.split("|")), root]
        folders = [base / split / level for base in roots]
        named = VALIDATION.get(split, split)
        stems = [base / f"{named}{between}{level}" for base in roots for between in "/_"]
        files = [Path(f"{stem}{ending}") for stem in stems for ending in LINES]
        found = [path for path in folders if path.is_dir()] + [path for path in files if path.is_file()]
        if not found:
            other = "" if self.level != "all" else "; level='middle' or 'high' reads one of the two"
            raise BadInput(f"{folders[0]} is missing; the articles belong there, a .txt each (or {files[0]}){other}")
        if len(found) > 1 and not all(path.samefile(found[0]) for path in found):
            raise BadInput(f"the {split} articles could be in {' or in '.join(map(str, found))}; keep one of them")
        return found[0]


@tasks.register("race-options")
@dataclass(frozen=True)
class RaceOptions(Race):
    """Options as rows of their own; the answer to a question is its likeliest option."""

    kind: ClassVar[str] = "single_label"
    labels: ClassVar[tuple[str, ...]] = ("0", "1")  # wrong, right
    metrics: ClassVar[tuple[str, ...]] = ("choice_accuracy",)

    def read(self, root: str | Path, split: str, skip_bad_rows: bool = False) -> Split:
        """Rows of article against question and option, in the order of the options, and what was left out."""
        asked = super().read(root, split, skip_bad_rows)
        options = [(one, index, option) for one in asked.rows for index, option in enumerate(one.options)]
        rows = [
            Row(one.context, f"{one.question} {text}", str(int(index == one.label))) for one, index, text in options
        ]
        groups = tuple(one.id for one, _, _ in options)
        return replace(asked, rows=rows, labels=self.labels, groups=groups, metrics=self.metrics)


tasks.alias("race-middle", "race", level="middle")
tasks.alias("race-high", "race", level="high")
tasks.alias("race-options-middle", "race-options", level="middle")
tasks.alias("race-options-high", "race-options", level="high")


def _from_folder(folder: Path) -> Found:
    """The official layout: an article a file, with lists of its questions, their options and answers."""
    for path in sorted(folder.glob(f"*{ARTICLE}"), key=_natural):
        location = f"{folder.name}/{path.name}"
        try:
            yield from _article(read_json(path), location, path.name)
        except BadInput as error:  # not JSON: one file of thousands
            yield location, str(error).removeprefix(f"{path}, ").removeprefix(f"{path}: ")
        except Fault as fault:
            yield location, str(fault)


def _natural(path: Path) -> list[Any]:
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", path.name)]


def _article(record: Any, location: str, name: str) -> Found:
    article = text_of(record, "article", "the file")
    asked = [field_of(record, key, list, "the file") for key in ("questions", "options", "answers")]
    if len(set(map(len, asked))) > 1 or not asked[0]:
        counts = "{} questions, {} lists of options and {} answers".format(*map(len, asked))
        raise Fault(f"{counts}; as many of each are needed, at least one")
    for number, (question, options, answer) in enumerate(zip(*asked), 1):
        try:
            one = {"article": article, "question": question, "options": options, "answer": answer}
            yield f"{location}, question {number}", _choices(one, f"{name}-{number}")
        except Fault as fault:
            yield f"{location}, question {number}", str(fault)


def _from_lines(path: Path) -> Found:
    """OpenCompass's layout: a question a line, with its article."""
    asked: Counter[str] = Counter()
    for location, record in numbered_records(path):
        try:
            if isinstance(record, str):
                raise Fault(record)
            name = text_of(record, "example_id", "the question")
            asked[name] += 1
            yield f"{location}, question {asked[name]} of {name}", _choices(record, f"{name}-{asked[name]}")
        except Fault as fault:
            yield location, str(fault)


def _choices(record: dict[str, Any], name: str) -> Choices:
    article = text_of(record, "article", "the question")
    question = text_of(record, "question", "the question")
    options = field_of(record, "options", list, "the question")
    if len(options) < 2 or not all(isinstance(option, str) and option.strip() for option in options):
        raise Fault(f"'options' must be a list of at least two texts, not {options!r:.60}")
    letters = [letter(index) for index in range(len(options))]
    answer = field_of(record, "answer", str, "the question")
    if answer not in letters:
        raise Fault(f"the answer {answer!r:.40} is not one of {', '.join(letters)}")
    texts = tuple(readable(option, "an option") for option in options)
    return Choices(name, article, question, texts, letters.index(answer))


def letter(index: int) -> str:
    """What RACE calls an option."""
    return chr(ord("A") + index)
