"""Promise 16: pieces of a batch give the loss of the whole; out of memory makes the pieces smaller."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from paredown import AdaptiveModel
from paredown.errors import OutOfMemory
from paredown.training import Report, train
from tests.training.tiny import Steps, final_loss, rows, stage, tiny

Outcome = tuple[AdaptiveModel, Report]
FULL = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")


def limited(most: int, seen: list[int], error: Exception = FULL) -> Any:
    """The loss, on a device where so many rows fit."""

    def loss(model: AdaptiveModel, batch: dict[str, Tensor], progress: Any) -> Tensor:
        seen.append(len(batch["input_ids"]))
        if seen[-1] > most:
            raise error
        return final_loss(model, batch, progress)

    return loss


def run(output: Path, loss: Any = final_loss, kind: str = "single_label", **settings: Any) -> Outcome:
    model = tiny(kind, dropout=0.0)
    return model, train(model, Steps([stage(loss=loss, batch_size=16)]), rows(42, kind), output=output, **settings)


def assert_close(one: Outcome, other: Outcome) -> None:
    assert other[1].stages[0].losses == pytest.approx(one[1].stages[0].losses, abs=1e-6)
    for ours, theirs in zip(one[0].parameters(), other[0].parameters(), strict=True):
        # Adam turns the sign of a gradient of 1e-9 into a step, so weights may differ by some learning rates.
        assert torch.allclose(ours, theirs, atol=5e-3)


@pytest.mark.parametrize("kind", ["single_label", "multi_label", "regression", "token_label"])
def test_pieces_give_the_loss_of_the_whole(kind: str, tmp_path: Path) -> None:
    whole = run(tmp_path / "whole", kind=kind)
    for size in (1, 5):
        assert_close(whole, run(tmp_path / f"pieces{size}", kind=kind, micro_batch=size))


@pytest.mark.parametrize(
    "error",
    [
        FULL,
        RuntimeError("MPS backend out of memory"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    ],
    ids=str,
)
def test_out_of_memory_makes_smaller_pieces(error: Exception, tmp_path: Path) -> None:
    seen: list[int] = []
    whole = run(tmp_path / "whole")
    assert_close(whole, run(tmp_path / "limited", limited(5, seen, error)))
    assert seen[:3] == [16, 8, 4] and max(seen[2:]) == 4  # once it fits it stays so
    assert sum(seen[2:]) == 2 * 42


def test_the_size_that_fits_survives_a_resume(tmp_path: Path) -> None:
    seen: list[int] = []
    run(tmp_path, limited(5, seen), checkpoint_every=1)
    newest = max((tmp_path / "checkpoints").iterdir())
    (newest / "state.json").unlink()  # lose the last step
    seen.clear()
    run(tmp_path, limited(5, seen), checkpoint_every=1)
    assert seen and max(seen) <= 4


def test_not_even_one_row_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(OutOfMemory, match=r"stage learn: not even one row fits .* tokens"):
        run(tmp_path, limited(0, []))


def test_other_errors_are_not_taken_for_it(tmp_path: Path) -> None:
    def loss(*unused: Any) -> Tensor:
        raise RuntimeError("shapes do not fit")

    with pytest.raises(RuntimeError, match="shapes"):
        run(tmp_path, loss)
