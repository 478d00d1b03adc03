"""What every task promises, tried on every task in the catalogue: it is a Task, and what it reads is a Split."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import pytest

from paredown.errors import BadInput
from paredown.evaluation.metrics import metric_named
from paredown.registry import answers, tasks
from paredown.tasks import Problem, Split, Task
from tests.contracts.task_files import made, written

each_task = pytest.mark.parametrize("name", tasks.names() + tasks.aliases())


@each_task
def test_it_says_what_it_is_before_any_file_is_read(name: str) -> None:
    task = made(name)
    assert isinstance(task, Task) and tasks[name].name == task.name
    assert list(inspect.signature(task.read).parameters) == ["root", "split", "skip_bad_rows"]
    assert task.kind is None or task.kind in answers
    assert task.version >= 1 and task.metric and task.metric == (*task.metrics, task.metric)[0]
    assert len(set(task.labels)) == len(task.labels)
    assert not task.spelled or len(set(task.spelled)) == len(task.labels)
    assert tasks.from_json(json.loads(json.dumps(tasks.to_json(task)))) == task


@each_task
def test_it_reads_a_split(name: str, tmp_path: Path) -> None:
    task = made(name)
    root = written(task, tmp_path)
    split = task.read(root, "train")
    kind = answers.make(split.kind)
    assert type(split) is Split and str(root) in split.source and split.kind == (task.kind or "single_label")
    assert split.rows and all(type(row) is kind.asks for row in split.rows)
    assert split.labels == task.labels if task.labels else bool(split.labels) is not kind.asks_questions
    assert kind.asks_questions or kind.numeric or {row.label for row in split.rows} <= set(split.labels)
    assert split.groups is None or len(split.groups) == len(split.rows)
    assert all(metric_named(metric, split.groups) for metric in split.metrics) and split.metric == split.metrics[0]
    assert (split.bad, split.noted) == ((), ())


@each_task
def test_a_bad_row_is_an_error_that_names_it_or_left_out(name: str, tmp_path: Path) -> None:
    task = made(name)
    good = task.read(written(task, tmp_path), "train")
    root = written(task, tmp_path, bad=True)
    with pytest.raises(BadInput, match=r"\(skip_bad_rows=True reads the other \d\)") as said:
        task.read(root, "train")
    found = task.read(root, "train", skip_bad_rows=True)
    (bad,) = found.bad
    assert type(bad) is Problem and f"{found.source}, {bad.location}: {bad.reason} (" in str(said.value)
    assert found.rows == good.rows


@each_task
def test_a_split_that_is_not_there_is_an_error(name: str, tmp_path: Path) -> None:
    for split in ("train", "nonsense"):
        with pytest.raises(BadInput, match=split):
            made(name).read(tmp_path, split)


@each_task
def test_questions_may_come_from_any_file_and_one_by_one(name: str, tmp_path: Path) -> None:
    task = made(name)
    if task.kind is None or not answers.make(task.kind).asks_questions:
        return
    assert task.takes_file
    root = written(task, tmp_path)
    assert [asked for _, asked in task.questions(root)] == task.read(root, "train").rows  # type: ignore[attr-defined]
