"""Fixtures that several tests share: a tiny tokenizer, tiny models, one thread each."""

from __future__ import annotations

import os
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
settings.register_profile("ci", derandomize=True, max_examples=300, **common)
settings.register_profile("quick", derandomize=True, max_examples=20, **common)
settings.register_profile("nightly", max_examples=10_000, **common)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--unaligned", action="store_true", help="move all weights to where memory is not aligned")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--unaligned"):
        unalign_everything()


@pytest.fixture(scope="session")
def tokenizer() -> BertTokenizer:
    return BertTokenizer(vocab={token: index for index, token in enumerate(VOCABULARY)}, model_max_length=64)


@pytest.fixture
def model(tokenizer: BertTokenizer) -> AdaptiveModel:
    """A BERT with pooler heads that answers single labels; its plan lets rows leave."""
    return adaptive("bert", tokenizer=tokenizer, plan="entropy:0.9")
