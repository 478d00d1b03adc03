"""What the documents show is true: examples run, tables are complete."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from paredown.cli import COMMANDS, command
from paredown.registry import answers, exits, heads, methods, reducers, tasks
from tests.contracts import task_files
from tests.contracts import test_answers as answers_contract
from tests.contracts import test_exits as contract
from tests.contracts import test_tasks as tasks_contract
from tests.families import adaptive, batch, tiny

ROOT = Path(__file__).parent.parent


def blocks(document: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / document).read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("shelf", [methods, exits, heads, reducers], ids=lambda shelf: shelf.heading)
def test_the_readme_lists_every_entry(shelf: Any) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [name for name in [*shelf.names(), *shelf.aliases()] if f"`{name}`" not in text] == []


@pytest.mark.parametrize("page", ["README.md", "docs/quickstart.md"])
def test_the_first_example_runs(page: str, monkeypatch: Any, tmp_path: Path, tokenizer: Any, capsys: Any) -> None:
    folder = tmp_path / "encoder"
    tiny("bert", num_labels=2, num_hidden_layers=3).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (example,) = blocks(page)
    monkeypatch.chdir(tmp_path)
    exec(example.replace("google-bert/bert-base-uncased", str(folder)), {})
    shown = re.findall(r"^(?:good|bad) [01]\.\d+ (?:after )?(\d+)", capsys.readouterr().out, re.MULTILINE)
    assert shown and all(int(layers) < 3 for layers in shown)  # rows leave before the last layer
    assert (tmp_path / "films" / "paredown.json").is_file()


def test_the_readme_example_is_short() -> None:
    assert len([line for line in blocks("README.md")[0].splitlines() if line.strip()]) <= 12


def worked_example(name: str, number: int, monkeypatch: Any, folder: Path) -> Any:
    """A block of CONTRIBUTING as a module of its own."""
    (folder / f"{name}.py").write_text(blocks("CONTRIBUTING.md")[number], encoding="utf-8")
    monkeypatch.syspath_prepend(folder)
    return importlib.import_module(name)


def test_the_worked_exit_rule_keeps_the_contract(monkeypatch: Any, tmp_path: Path) -> None:
    """CONTRIBUTING's rule, registered for a moment, goes through what every rule goes through."""
    monkeypatch.setattr(exits, "_classes", dict(exits._classes))
    worked_example("gini", 0, monkeypatch, tmp_path)
    rule = exits.make("gini")
    suits = [kind for kind in map(answers.make, answers.names()) if contract.accepts(rule, kind)]
    assert [kind.name for kind in suits] == [name for name in answers.names() if name != "regression"]
    for kind in suits:
        for dtype in contract.DTYPES:
            contract.test_decides_for_every_logit(rule, kind, dtype)
        contract.test_a_larger_speed_never_leaves_later(rule, kind)
        contract.test_speed_0_holds_for_the_surest_rows(rule, kind)
        contract.test_rows_do_not_depend_on_their_neighbours(rule, kind)
    contract.test_tokens_nobody_asks_about_do_not_matter(rule)
    contract.test_is_json_and_short_text(rule)
    contract.test_regression_suits_it_or_it_says_what_does(rule)


def test_the_worked_kind_of_answer_keeps_the_contract(monkeypatch: Any, tmp_path: Path) -> None:
    """CONTRIBUTING's kind, registered for a moment, goes through what every kind goes through."""
    monkeypatch.setattr(answers, "_classes", dict(answers._classes))
    worked_example("ranking", 1, monkeypatch, tmp_path)
    for name, promise in vars(answers_contract).items():
        if name.startswith("test_") and "name" in inspect.signature(promise).parameters:
            promise("ranking", *([tmp_path / "run"] if "tmp_path" in inspect.signature(promise).parameters else []))
    model = answers_contract.model_of("ranking")
    (question, *_) = answers_contract.asked(model)
    (found,) = model.predict([question], most=2)
    assert (
        len(found.label) == 2
        and found.scores[found.label[0]] >= found.scores[found.label[1]] == sorted(found.scores.values())[-2]
    )


def test_the_worked_task_keeps_the_contract(monkeypatch: Any, tmp_path: Path) -> None:
    """CONTRIBUTING's task, registered for a moment, goes through what every task goes through."""
    monkeypatch.setattr(tasks, "_classes", dict(tasks._classes))
    worked_example("commonsenseqa", 3, monkeypatch, tmp_path)
    options = [{"label": letter, "text": text} for letter, text in (("A", "bank"), ("B", "library"))]
    good = {"id": "1", "question": {"stem": "Where are books lent?", "choices": options}, "answerKey": "B"}
    files = (task_files.lines(good), task_files.lines(good, good | {"id": "2", "answerKey": "F"}))
    monkeypatch.setitem(task_files.QUESTIONS, "commonsenseqa", files)
    for number, (name, promise) in enumerate(vars(tasks_contract).items()):
        if name.startswith("test_"):
            (place := tmp_path / str(number)).mkdir()
            promise("commonsenseqa", *([place] if "tmp_path" in inspect.signature(promise).parameters else []))
    (asked,) = tasks.make("commonsenseqa").read(place / "mine.jsonl", "train").rows
    assert (asked.options, asked.label) == (("bank", "library"), 1)


def test_the_worked_backend_gives_the_answers_of_the_reference(monkeypatch: Any, tmp_path: Path) -> None:
    module = worked_example("debug_backend", 2, monkeypatch, tmp_path)
    model, inputs = adaptive("bert", plan="entropy:0.9"), batch(99, [5, 3, 9, 7])
    wanted = model.answer(inputs)
    model.backend = module.Debug(model.walk, seconds=0.001)
    found = model.answer(inputs)
    assert torch.equal(found.logits, wanted.logits) and torch.equal(found.layers, wanted.layers)
    assert model.backend.rows.total() == wanted.layers.sum()


PAGES = [
    str(path.relative_to(ROOT))
    for found in ("README.md", "docs/*.md", "paredown/methods/*/README.md")
    for path in sorted(ROOT.glob(found))
]
COMMAND = re.compile(r"(?:^ *|`|\| )paredown ([a-z][^`\n]*)", re.MULTILINE)


@pytest.mark.parametrize("page", PAGES)
def test_commands_in_documents_exist(page: str) -> None:
    """Every `paredown COMMAND …` names a command, and every flag after it is one of its options."""
    for line in COMMAND.findall((ROOT / page).read_text(encoding="utf-8")):
        name, *words = line.split()
        assert name in COMMANDS, line
        known = {option for one in command(name).params for option in (*one.opts, *one.secondary_opts)}
        assert {word for word in words if re.fullmatch(r"--?[a-z][a-z-]*", word)} <= known, line


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    targets = re.findall(r"\]\(([^)#]+)[^)]*\)", (ROOT / page).read_text(encoding="utf-8"))
    assert [
        target for target in targets if "://" not in target and not (ROOT / page).parent.joinpath(target).exists()
    ] == []
