"""Run by test_processes.py under `accelerate launch`: train and write the losses."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch

from paredown.training import train
from tests.training.test_memory import limited
from tests.training.tiny import Steps, final_loss, rows, stage, tiny


def learn(output: Path, at_once: int | None = None) -> list[float]:
    torch.set_num_threads(1)
    loss = final_loss if at_once is None else limited(at_once, [])
    # 41 rows in batches of 8: the last batch is one row, so that one of two processes has nothing to do.
    method = Steps([stage(loss=loss, lr=1e-4)])
    report = train(tiny(dropout=0.0), method, rows(41), rows(9), output=output)
    return [*report.stages[0].losses, *[found.value for found in report.stages[0].evaluations]]


if __name__ == "__main__":
    first = int(os.environ.get("RANK", "0")) == 0
    learn(Path(sys.argv[1]) / "plain")
    # Only one of the processes runs out of memory; both must make smaller pieces.
    learn(Path(sys.argv[1]) / "limited", at_once=2 if first else None)
