"""Every method has a card; its code runs, its figures are those of the benchmark, its aliases are all named.

The python blocks of a card run in order in one namespace that holds
    encoder      folder of a tiny random BERT with its tokenizer
    train_rows   dicts with `text` and `label`, which is "bad" or "good"
    dev_rows     likewise
    output       path of a folder that does not exist yet
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from transformers import BertConfig, BertForSequenceClassification, BertTokenizer

import paredown
from paredown.registry import methods
from tests.training import tiny

FOLDERS = sorted(path.parent for path in (Path(paredown.__file__).parent / "methods").glob("*/__init__.py"))
CARDS = [folder / "README.md" for folder in FOLDERS]
EARLY_EXIT = {"finetune", "two_stage", "self_distill", "joint", "alternating"}  # their figures are of one benchmark
SECTIONS = ["Use", "Suggested values", "Our figures", "Relations", "Footguns", "Attribution"]
LINES = 80


def named(path: Path) -> str:
    return path.parent.name


def blocks(card: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", card.read_text(), re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("encoder")
    vocabulary = {token: index for index, token in enumerate(tiny.VOCABULARY)}
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=16,
        num_hidden_layers=3,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=64,
    )
    BertForSequenceClassification(config).save_pretrained(folder)
    BertTokenizer(vocab=vocabulary, model_max_length=64).save_pretrained(folder)
    return folder


def labelled(number: int) -> list[dict[str, Any]]:
    return [{**row, "label": ["bad", "good"][row["label"]]} for row in tiny.rows(number)]


def test_every_method_has_a_folder_with_a_card() -> None:
    assert {folder.name for folder in FOLDERS} == set(methods.names())
    assert [named(card) for card in CARDS if not card.is_file()] == []


@pytest.mark.parametrize("card", CARDS, ids=named)
def test_a_card_is_complete_and_short(card: Path) -> None:
    text = card.read_text()
    assert text.startswith(f"# {named(card)}\n")
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == SECTIONS
    assert len(text.splitlines()) <= LINES
    idea = re.sub(r"`[^`]*`", "", text.split("## Use")[0])
    assert len(re.findall(r"\.(?=\s)", idea)) == 3, "the idea, in three sentences"


@pytest.mark.parametrize("card", CARDS, ids=named)
def test_a_card_names_every_alias_of_its_method(card: Path) -> None:
    ours = [alias for alias in methods.aliases() if methods[alias] is methods[named(card)]]
    listed = re.search(r"^\| alias \|.*\n\|[-|]+\n((?:\|.*\n)+)", card.read_text(), re.MULTILINE)
    rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", listed[1], re.MULTILINE) if listed else []
    assert sorted(alias for alias, _ in rows) == ours
    for alias, meaning in rows:
        chosen, usual = methods.make(alias), methods.make(named(card))
        settings = dict(part.split("=", 1) for part in re.findall(r"\w+=[^,`;]+", meaning))
        changed = {name for name in vars(chosen) if getattr(chosen, name) != getattr(usual, name)}
        assert settings.keys() == changed, f"{alias}: its settings are other than the card says"
        for name, value in settings.items():
            assert methods.parse(f"{named(card)}:{name}={value}") == methods.make(
                named(card), **{name: getattr(chosen, name)}
            )


@pytest.mark.parametrize("card", CARDS, ids=named)
def test_a_card_runs(card: Path, encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    output = tmp_path / "run"
    space: dict[str, Any] = {"encoder": encoder, "output": output, "train_rows": labelled(24), "dev_rows": labelled(8)}
    assert blocks(card)
    for block in blocks(card):
        assert "train(" in block
        exec(compile(block, str(card), "exec"), space)
    assert paredown.AdaptiveModel.from_pretrained(output / "model").labels == ["bad", "good"]


def test_pages_and_figures_are_those_of_the_results() -> None:
    report = pytest.importorskip("benchmarks.early_exit_report")
    files, found = report.read(report.RESULTS)
    again = "make it again with `python -m benchmarks.early_exit_report`"
    assert report.PAGE.read_text() == report.page(files, found), again
    marked = [card for card in CARDS if report.SLOT.search(card.read_text())]
    assert {named(card) for card in marked} >= EARLY_EXIT
    for card in marked:
        assert card.read_text() == report.card(card.read_text(), found), again
    assert all(report.picture(task).is_file() for task in report.NAMES)


def test_the_page_of_fastberts_benchmark_is_that_of_its_results() -> None:
    report = pytest.importorskip("benchmarks.fastbert_paper_report")
    again = "make it again with `python -m benchmarks.fastbert_paper_report`"
    picture = report.PAGE.with_suffix(".png")
    assert report.PAGE.read_text() == report.page(*report.read(report.RESULTS), picture.name), again
    assert picture.is_file()


def test_the_page_of_fewer_tokens_is_that_of_its_results() -> None:
    report = pytest.importorskip("benchmarks.tokens_report")
    files, found = report.read(report.RESULTS)
    again = "make it again with `python -m benchmarks.tokens_report`"
    assert report.PAGE.read_text() == report.page(files, found), again
    for card in CARDS:
        if named(card) in report.CARDS:
            assert card.read_text() == report.card(card.read_text(), report.CARDS[named(card)], found), again
    assert report.PICTURE.is_file()


def test_the_page_of_fewer_layers_is_that_of_its_results() -> None:
    report = pytest.importorskip("benchmarks.depth_report")
    results = report.read(report.RESULTS)
    again = "make it again with `python -m benchmarks.depth_report`"
    assert report.PAGE.read_text() == report.page(*results), again
    for card in report.CARDS:
        assert report.SLOT.search(card.read_text())
        assert card.read_text() == report.card(card.read_text(), *results[:2]), again
    assert all(picture.is_file() for picture in report.PICTURES)


@pytest.mark.parametrize("name", ["auto", "elue"])
def test_the_figures_within_a_page_are_those_of_its_results(name: str) -> None:
    report = pytest.importorskip(f"benchmarks.{name}_report")
    results = json.loads(report.RESULTS.read_text(encoding="utf-8"))
    text = report.PAGE.read_text(encoding="utf-8")
    assert {"answer", "figures", "made"} <= set(re.findall(r"^<!-- (\w+) -->$", text, re.MULTILINE))
    assert text == report.page(text, results), f"make it again with `python -m benchmarks.{name}_report`"


def test_the_page_of_families_is_that_of_the_survey() -> None:
    families = pytest.importorskip("benchmarks.families")
    survey = json.loads(families.COMMITTED.read_text(encoding="utf-8"))
    page = families.page(survey["families"], survey["transformers"])
    assert families.COMMITTED.with_suffix(".md").read_text(encoding="utf-8") == page, "make it again: `make families`"


@pytest.mark.parametrize("name", ["auto", "depth", "early_exit", "elue", "families", "fastbert_paper", "tokens"])
def test_a_page_of_figures_begins_with_the_answer_and_ends_with_how_it_was_made(name: str) -> None:
    text = (Path(paredown.__file__).parent.parent / "docs" / f"{name}.md").read_text(encoding="utf-8")
    *before, last = re.split(r"^## ", text, flags=re.MULTILINE)
    assert last.startswith("How this was made\n")
    assert re.search(r"\d", before[0]) and "benchmarks." not in before[0] and "make families" not in before[0]
