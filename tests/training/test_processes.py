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


def losses(output: Path) -> list[float]:
    (entry,) = json.loads((output / "metrics.json").read_text())["stages"]
    return [*entry["losses"], *[found["value"] for found in entry["evaluations"]]]


def test_two_processes_learn_what_one_learns(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "accelerate.commands.launch", "--num_processes", "2", "--cpu"]
    command += ["--main_process_port", "0", "-m", "tests.training.two_processes", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr[-3000:]
    alone = two_processes.learn(tmp_path / "alone")
    assert losses(tmp_path / "plain") == pytest.approx(alone, abs=1e-4)
    assert losses(tmp_path / "limited") == pytest.approx(alone, abs=1e-4)
    found = Checkpoints(tmp_path / "limited").newest()
    assert found is not None and found.state()["micro_batch"] == 2
    assert (tmp_path / "plain" / "model" / "paredown.json").is_file()
