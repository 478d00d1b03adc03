"""Threads that share a model get the answers they would get alone."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from paredown import AdaptiveModel
from tests.families import adaptive


def batches(number: int) -> list[dict[str, torch.Tensor]]:
    random = torch.Generator().manual_seed(0)
    made = []
    for _ in range(number):
        rows, tokens = torch.randint(1, 6, (2,), generator=random).tolist()
        ids = torch.randint(5, 25, (rows, tokens + 3), generator=random)
        made.append({"input_ids": ids, "attention_mask": torch.ones_like(ids)})
    return made


@pytest.mark.parametrize("family", ["bert", "albert", "modernbert"])
def test_threads_do_not_see_each_other(family: str) -> None:
    model: AdaptiveModel = adaptive(family, plan="entropy:0.9")
    wanted = [model.answer(batch) for batch in batches(60)]
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(model.answer, batches(60)))
    for ours, theirs in zip(found, wanted, strict=True):
        assert torch.equal(ours.logits, theirs.logits) and torch.equal(ours.layers, theirs.layers)
