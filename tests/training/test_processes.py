"""Two processes learn what one learns, and agree on smaller pieces when one of them runs out of memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from paredown.training.checkpoint import Checkpoints
from tests.training import two_processes

ROOT = Path(__file__).parents[2]


def figures(output: Path) -> list[float]:
    """Every loss and every dev score of a run."""
    stages = json.loads((output / "metrics.json").read_text())["stages"]
    assert stages
    return [
        value for stage in stages for value in [*stage["losses"], *[found["value"] for found in stage["evaluations"]]]
    ]


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two processes learnt."""
    folder = tmp_path_factory.mktemp("together")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    command += ["-m", "tests.training.two_processes", str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


def test_two_processes_learn_what_one_learns(together: Path, tmp_path: Path) -> None:
    two_processes.learn(tmp_path, two_processes.one_stage())
    assert figures(together / "plain") == pytest.approx(figures(tmp_path), abs=1e-4)
    assert figures(together / "limited") == pytest.approx(figures(tmp_path), abs=1e-4)
    found = Checkpoints(together / "limited").newest()
    assert found is not None and found.state()["micro_batch"] == 2
    assert (together / "plain" / "model" / "paredown.json").is_file()


def test_two_processes_draw_what_one_draws(together: Path, tmp_path: Path) -> None:
    two_processes.learn(tmp_path, two_processes.module_replacing())
    assert figures(together / "module_replacing") == pytest.approx(figures(tmp_path), abs=1e-4)
