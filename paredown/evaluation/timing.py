"""Measured time: milliseconds per row of `answer()`, because FLOPs are not seconds."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence

import torch

from paredown.answers import Encoded, collate
from paredown.model import AdaptiveModel
from paredown.plan import Plan


def milliseconds(model: AdaptiveModel, rows: Sequence[Encoded], plan: Plan, batch_size: int, repeats: int = 3) -> float:
    """Median over `repeats` passes, per row, after one pass to warm up; rows of like length share a batch."""
    order = sorted(rows, key=len, reverse=True)
    pad = model.tokenizer.pad_token_id
    batches = [collate(order[at : at + batch_size], pad, model.device) for at in range(0, len(order), batch_size)]
    passes = []
    for _ in range(repeats + 1):
        start = _now(model.device)
        for batch in batches:
            model.answer(batch, plan)
        passes.append(_now(model.device) - start)
    return 1000 * statistics.median(passes[1:]) / len(rows)


def spread(rows: Sequence[Encoded], most: int) -> list[Encoded]:
    """At most so many rows, their lengths distributed as in all."""
    order = sorted(rows, key=len)
    if len(order) <= most:
        return order
    return [order[(2 * index + 1) * len(order) // (2 * most)] for index in range(most)]


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
