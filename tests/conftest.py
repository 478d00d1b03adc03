"""Fixtures that several tests share: a tiny tokenizer, tiny models, one thread each."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, settings
from transformers import BertTokenizer
from transformers.utils import logging

from paredown import AdaptiveModel
from tests.families import adaptive
from tests.placement import unalign_everything

WORDS = "the a movie film plot cast was is good bad fine dull great awful very not and but really quite".split()
VOCABULARY = ["[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]", *WORDS, *[f"##{piece}" for piece in ("s", "ly", "ish")]]

torch.set_num_threads(1)
logging.set_verbosity_error()
logging.disable_progress_bar()

common: dict[str, Any] = {"deadline": None, "suppress_health_check": list(HealthCheck)}
settings.register_profile("usual", derandomize=True, max_examples=60, **common)
settings.register_profile("thorough", derandomize=True, max_examples=300, **common)
settings.register_profile("nightly", max_examples=10_000, **common)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--unaligned", action="store_true", help="move all weights to where memory is not aligned")
    parser.addoption("--thorough", action="store_true", help="run every combination, and five times the examples")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--unaligned"):
        unalign_everything()
    usual = "thorough" if config.getoption("--thorough") else "usual"
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", usual))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is marked `thorough`, unless it was asked for."""
    if not config.getoption("--thorough"):
        left_out = [item for item in items if item.get_closest_marker("thorough")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("thorough")]


def pytest_collection_finish() -> None:
    """What was imported stays; without this, garbage is looked for in it again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What is measured here is not what the user's cache should know."""
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session")
def tokenizer() -> BertTokenizer:
    return BertTokenizer(vocab={token: index for index, token in enumerate(VOCABULARY)}, model_max_length=64)


@pytest.fixture
def deterministic() -> Iterator[None]:
    """Bits are promised of algorithms that torch calls deterministic."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture
def model(tokenizer: BertTokenizer) -> AdaptiveModel:
    """A BERT with pooler heads that answers single labels; its plan lets rows leave."""
    return adaptive("bert", tokenizer=tokenizer, plan="entropy:0.9")
