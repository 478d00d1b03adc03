"""The command line in a process of its own, and what tests read of its output."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet

ROOT = Path(__file__).parent.parent.parent
QUIET = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(ROOT)}


def start(*words: Any, code: str | None = None, **settings: Any) -> subprocess.Popen[bytes]:
    program = ["-m", "paredown"] if code is None else ["-c", code]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    command = [sys.executable, *program, *map(str, words)]
    return subprocess.Popen(command, env={**os.environ, **QUIET}, **{**pipes, **settings})


def records(path: Path) -> list[dict[str, Any]]:
    if path.suffix == ".parquet":
        return pyarrow.parquet.read_table(path).to_pylist()
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file)) if path.suffix == ".csv" else [json.loads(line) for line in file]
