"""Run by test_processes.py in each of two processes: train and write the losses."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from paredown.methods import ModuleReplacing
from paredown.training import train
from tests.training.test_memory import limited
from tests.training.tiny import Steps, final_loss, rows, stage, tiny


def one_stage(at_once: int | None = None) -> Steps:
    return Steps([stage(loss=final_loss if at_once is None else limited(at_once, []), lr=1e-4)])


def module_replacing() -> ModuleReplacing:
    """Which layers run is drawn in every step; layers that were tuned fast differ, so other draws mean other losses."""
    return ModuleReplacing(
        epochs=1,
        lr=3e-3,
        replacing_epochs=2,
        replacing_lr=1e-4,
        replacing_rate=0.5,
        schedule="constant",
        until=1.0,
        successor_lr=1e-4,
        batch_size=8,
    )


def learn(output: Path, method: Any) -> None:
    torch.set_num_threads(1)
    # 41 rows in batches of 8: the last batch is one row, so that one of two processes has nothing to do.
    train(tiny(layers=4, dropout=0.0), method, rows(41), rows(9), output=output)


if __name__ == "__main__":
    folder, first = Path(sys.argv[1]), int(os.environ["RANK"]) == 0
    learn(folder / "plain", one_stage())
    assert dist.get_world_size() == 2
    # Only one of the processes runs out of memory; both must make smaller pieces.
    learn(folder / "limited", one_stage(at_once=2 if first else None))
    learn(folder / "module_replacing", module_replacing())
    dist.destroy_process_group()
