"""Small files for every task, a good row before a bad one; tables are written from what a task says of its columns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from paredown.registry import answers, tasks
from paredown.tasks import Task
from tests.tasks.asking import hotpot_records
from tests.tasks.test_questions import WHO, squad_file
from tests.tasks.test_race import LINE
from tests.tasks.test_triviaqa import ITEM, QUESTION
from tests.tasks.test_wikihop import RECORD

SETTINGS: dict[str, dict[str, Any]] = {  # of tasks that cannot do without
    "elue": {"folder": "mine"},
    "glue": {"folder": "mine"},
    "text": {"path": "{split}.tsv"},
    "trbert": {"folder": "mine"},
}


def lines(*records: Any) -> str:
    return "".join(f"{json.dumps(record)}\n" for record in records)


OF_MRQA = ITEM | {"qas": [QUESTION | {"answers": ["NYC"]}]}
QUESTIONS: dict[str, tuple[str, str]] = {  # by the entry's name: a good question, and the same before a bad one
    "hotpotqa": (lines(*hotpot_records(1)), lines(*hotpot_records(1), {})),
    "mrqa": (lines(OF_MRQA), lines(OF_MRQA, {})),
    "race": (lines(LINE), lines(LINE, {})),
    "race-options": (lines(LINE), lines(LINE, {})),
    "squad": (squad_file(WHO), squad_file(WHO, {"id": "2"})),
    "triviaqa": (lines(ITEM), lines(ITEM, {})),
    "wikihop": (lines(RECORD), lines(RECORD, {})),
}


def made(name: str) -> Task:
    return tasks.make(name, **SETTINGS.get(name, {}))


def written(task: Task, root: Path, bad: bool = False) -> Path:
    """The train split of a task; what to read it from."""
    if task.takes_file:
        (root / "mine.jsonl").write_text(QUESTIONS[task.name][bad], encoding="utf-8")
        return root / "mine.jsonl"
    folder = root / getattr(task, "folder", ".").split("|")[0]
    folder.mkdir(exist_ok=True)
    (folder / "train.tsv").write_text(table(task, bad), encoding="utf-8")
    return root


def table(task: Any, bad: bool) -> str:
    """A row for each of the first two labels, in the columns that the task names; a bad row has empty cells."""
    if task.kind is not None and answers.make(task.kind).numeric:
        labels = ["0.5", "1.5"]
    else:
        labels = list(task.spelled or task.labels or ("0", "1"))[:2]
    texts, pair = getattr(task, "text", ("text",)), getattr(task, "pair", None)
    label = getattr(task, "label", "label").split("|")[0]
    named = [*(name.split("|")[0] for name in (*texts, *([pair] if pair else []))), label]
    named += ["qid"] if getattr(task, "ranked", False) else []
    columns = getattr(task, "columns", ()) or named
    header = [] if "train" in getattr(task, "headless", ()) else [columns]
    rows = [[each if name == label else "7" if name == "qid" else "some words" for name in columns] for each in labels]
    return "".join("\t".join(cells) + "\n" for cells in [*header, *rows, *([[""] * len(columns)] if bad else [])])
