"""Records and rows made up for the tests of this folder."""

from __future__ import annotations

import random
from typing import Any

import torch

from paredown.answers import IGNORED, Encoded, SupportedSpan
from paredown.evaluation import Record
from paredown.registry import answers


def sst2(rows: int = 872, layers: int = 12, seed: int = 0) -> Record:
    """Two labels; the deeper, the surer and the more often right."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 2, (rows,), generator=generator)
    ease = 1.9 + 1.35 * torch.randn(rows, generator=generator)
    logits, doubt = {}, {}
    for layer in range(1, layers + 1):
        noise = torch.randn(rows, generator=generator) * 1.9 * (1 - layer / (layers + 2))
        right = (ease + noise) * (0.5 + layer / layers) * (2 * labels - 1)
        logits[layer] = torch.stack([-right, right], 1)
        doubt[layer] = torch.exp(-right.abs()).unsqueeze(1)
    return Record(
        answers.make("single_label"), logits, doubt, labels, torch.randint(5, 60, (rows,), generator=generator)
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
            first = tuple(place for place in range(length) if place % 3 != 1)
            label = [choose.randrange(3) if place in first else IGNORED for place in range(length)]
        elif kind in ("span", "supported_span"):
            first = tuple(place for place in range(length) if place % 3 != 1)
            label = ((0, first[-1]), (0, 0))
        elif kind == "marked":
            first = tuple(place for place in range(length) if place % 3 != 1)
            label = ((choose.choice(first),),)
        elif kind == "choice":
            rows.append(Encoded(label=0, options=_options(choose, ids)))
            continue
        sentences = None
        if isinstance(of_kind := answers.make(kind), SupportedSpan):
            support = {place: choose.random() < 0.5 for place in range(0, length, 4)}
            sentences, label = tuple(support), of_kind.label(label, "span", support, length)
        rows.append(Encoded({"input_ids": ids}, label, first, sentences=sentences))
    return rows


def _options(choose: random.Random, ids: list[int]) -> tuple[Encoded, ...]:
    """Two to four, of which the last is the longest."""
    shorter = [
        [choose.randrange(5, 99) for _ in ids[choose.randrange(len(ids)) :]] for _ in range(choose.randint(1, 3))
    ]
    return tuple(Encoded({"input_ids": each}, protected=(len(each) - 1,)) for each in (*shorter, ids))
