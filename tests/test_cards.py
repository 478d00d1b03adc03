"""Every method has a card; its code runs, and its aliases are all named.

The python blocks of a card run in order in one namespace that holds
    encoder      folder of a tiny random BERT with its tokenizer
    train_rows   dicts with `text` and `label`, which is "bad" or "good"
    dev_rows     likewise
    output       path of a folder that does not exist yet
"""

from __future__ import annotations

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


@pytest.mark.parametrize(
    "name", ["auto", "depth", "early_exit", "elue", "experiments", "families", "fastbert_paper", "together", "tokens"]
)
def test_a_page_of_figures_begins_with_the_answer_and_ends_with_how_it_was_made(name: str) -> None:
    text = (Path(paredown.__file__).parent.parent / "docs" / f"{name}.md").read_text(encoding="utf-8")
    *before, last = re.split(r"^## ", text, flags=re.MULTILINE)
    assert last.startswith("How this was made\n")
    assert re.search(r"\d", before[0]) and "benchmarks." not in before[0] and "make families" not in before[0]
