"""Records and rows made up for the tests of this folder."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch

from paredown.answers import IGNORED, Choices, Encoded, Question, Sentence, SupportedSpan
from paredown.answers._marked_windows import MarkedWindow
from paredown.answers._windows import Window
from paredown.evaluation import Record
from paredown.registry import answers


def sst2(rows: int = 872, layers: int = 12, seed: int = 0) -> Record:
    """Two labels; the deeper, the surer and the more often right."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 2, (rows,), generator=generator)
    ease = 1.9 + 1.35 * torch.randn(rows, generator=generator)
    logits, error_probability = {}, {}
    for layer in range(1, layers + 1):
        noise = torch.randn(rows, generator=generator) * 1.9 * (1 - layer / (layers + 2))
        right = (ease + noise) * (0.5 + layer / layers) * (2 * labels - 1)
        logits[layer] = torch.stack([-right, right], 1)
        error_probability[layer] = torch.exp(-right.abs()).unsqueeze(1)
    return Record(
        answers.make("single_label"),
        logits,
        error_probability,
        labels,
        torch.randint(5, 60, (rows,), generator=generator),
    )


def encoded(kind: str, lengths: list[int], seed: int = 0) -> list[Encoded]:
    """Rows of random tokens with random labels, three classes."""
    choose = random.Random(seed)
    rows = []
    for length in lengths:
        ids = [choose.randrange(5, 99) for _ in range(length)]
        label: Any = choose.randrange(3)
        first = None
        if kind == "regression":
            label = [choose.random()]
        elif kind == "multi_label":
            label = [float(choose.random() < 0.5) for _ in range(3)]
        elif kind == "token_label":
            first = tuple(index for index in range(length) if index % 3 != 1)
            label = [choose.randrange(3) if index in first else IGNORED for index in range(length)]
        elif kind in ("span", "supported_span"):
            first = tuple(index for index in range(length) if index % 3 != 1)
            label = ((0, first[-1]), (0, 0))
        elif kind == "marked":
            first = tuple(index for index in range(length) if index % 3 != 1)
            label = ((choose.choice(first),),)
        elif kind == "choice":
            rows.append(Encoded(label=0, options=_options(choose, ids)))
            continue
        sentences = None
        if isinstance(of_kind := answers.make(kind), SupportedSpan):
            support = {index: choose.random() < 0.5 for index in range(0, length, 4)}
            sentences, label = tuple(support), of_kind.label(label, "span", support, length)
        row = Encoded({"input_ids": ids}, label, first, sentences=sentences)
        rows.append(_window(row, kind, len(rows)) if of_kind.windowed else row)
    return rows


def _window(row: Encoded, kind: str, index: int) -> Encoded:
    """The row as one of two windows of a question about a text of 64 words."""
    unit = index // 2
    facts = {"ids": row.ids, "label": row.label, "first": row.first, "sentences": row.sentences, "unit": unit}
    if kind == "marked":
        options = tuple(map(str, range(2)))
        choices = Choices(f"q{unit}", "a text", "what?", options, unit % 2)
        return MarkedWindow(**{**facts, "first": (0, len(row) - 1)}, asked=choices)
    words = [f"w{number % 7}" for number in range(64)]
    sentences = tuple(Sentence("title", number, 3 * number, 3 * number + 2, number % 2 == 0) for number in range(64))
    question = Question(f"q{unit}", "what?", " ".join(words), (words[unit % 7],), sentences=sentences)
    offsets = np.array([(3 * at, 3 * at + 2) for at in range(len(row) - 1)], dtype=np.int32).reshape(-1, 2)
    begins = tuple((token, token) for token in row.sentences or ())
    return Window(**facts, asked=question, at=1, offsets=offsets, fullest=np.ones(len(offsets), bool), begins=begins)


def _options(choose: random.Random, ids: list[int]) -> tuple[Encoded, ...]:
    """Two to four, of which the last is the longest."""
    shorter = [
        [choose.randrange(5, 99) for _ in ids[choose.randrange(len(ids)) :]] for _ in range(choose.randint(1, 3))
    ]
    return tuple(Encoded({"input_ids": each}, protected=(len(each) - 1,)) for each in (*shorter, ids))
