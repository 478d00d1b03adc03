"""New answers that are numbers start at the mean of the labels; trained ones stay where they are."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from paredown.training import train
from tests.training.tiny import rows, tiny

LABELLED = [{**row, "label": row["label"] + 3.0} for row in rows(40, "regression")]
MEAN = sum(row["label"] for row in LABELLED) / len(LABELLED)


@pytest.mark.parametrize("head", ["pooler", "linear", "attention"])
def test_every_new_answer_starts_at_the_mean(head: str, tmp_path: Path) -> None:
    model = tiny("regression")
    with torch.no_grad():
        model.stock.classifier.weight.zero_()
    train(model, f"joint:head={head},epochs=1,lr=1e-9,rule=none", LABELLED, output=tmp_path, progress=False)
    assert model.stock.classifier.bias.item() == pytest.approx(MEAN, abs=1e-5)
    for own in model.heads.values():
        assert abs(own.out.bias.item() - MEAN) < 0.2  # attention heads start with a bias of their own


def test_what_was_trained_is_not_moved_again(tmp_path: Path) -> None:
    model = tiny("regression")
    train(model, "joint:epochs=1,lr=1e-9,rule=none", LABELLED, output=tmp_path / "first", progress=False)
    again = [{**row, "label": row["label"] + 10.0} for row in LABELLED]
    train(model, "joint:epochs=1,lr=1e-9,rule=none", again, output=tmp_path / "second", progress=False)
    biases = [model.stock.classifier.bias, *(own.out.bias for own in model.heads.values())]
    assert [bias.item() for bias in biases] == pytest.approx([MEAN] * len(biases), abs=1e-4)


def test_labels_that_are_no_numbers_move_nothing(tmp_path: Path) -> None:
    model = tiny()
    train(model, "joint:epochs=1,lr=1e-9", rows(16), output=tmp_path, progress=False)
    assert model.stock.classifier.bias.abs().max() < 1e-6
