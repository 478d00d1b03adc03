"""`paredown predict --ray` against the local run: the same file to the byte, with one worker killed on the way too.

    python -m benchmarks.cluster --texts SST-2/train.tsv --tokenizer FOLDER

Sentences of SST-2 with their number before them, so that no two rows are the same; a 12-layer encoder of width 32 and
random weights (benchmarks/predict.py), so that what is measured is the host and Ray, not the encoder. One thread a
process. Seconds are those of the whole command and, without its start, those of its own report. Writes cluster.json.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import psutil
import ray
import torch
from transformers import AutoTokenizer

from benchmarks.commands import repeatable_command
from benchmarks.predict import LOOKED_AT, bundle
from paredown.cli._outgoing import shards_of
from paredown.system.machine import machine

RUNS: dict[str, tuple[Any, ...]] = {"local": (), "2 workers": (2, False), "2 workers, one killed": (2, True)}
KILLED_AFTER = 20  # shards


def predicted(folder: Path, rows: Path, workers: int = 0, kill: bool = False) -> dict[str, Any]:
    """One run of the command."""
    out = rows.with_name("out.jsonl")
    words = ["--ray", "local", "--workers", workers] if workers else []
    command = [sys.executable, "-m", "paredown", "predict", folder, rows, out, "--restart", "--json", *words]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    start = time.monotonic()
    process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True, env=environment)
    killed = kill_one(process.pid, out) if kill else None
    printed, _ = process.communicate()
    if process.returncode:
        raise SystemExit(f"predict failed: {command}")
    seconds, found = time.monotonic() - start, json.loads(printed)
    with open(out, "rb") as file:
        lines = file.readlines()
    numbers = [json.loads(line)["row"] for line in lines]
    return {
        "seconds": found["seconds"],
        "seconds with its start": round(seconds, 1),
        "rows": len(lines),
        "rows lost": len(set(range(found["rows"])) - set(numbers)),
        "rows twice": len(numbers) - len(set(numbers)),
        "mean layers": found["mean_layers"],
        "sha256 of the output": hashlib.sha256(b"".join(lines)).hexdigest(),
        **({} if killed is None else {"shards there when a worker was killed": killed}),
    }


def kill_one(driver: int, out: Path) -> int:
    """Kill a worker when some shards are there; returns how many."""
    while (there := len(list(shards_of(out).glob("*.shard")))) < KILLED_AFTER:
        time.sleep(0.05)
    children = psutil.Process(driver).children(recursive=True)
    next(one for one in children if one.name().startswith("ray::MapWorker")).kill()
    return there


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=Path, required=True, help="train.tsv of SST-2")
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--output", type=Path, default=Path(__file__).with_suffix(".json"))
    args = parser.parse_args()
    with open(args.texts, encoding="utf-8", newline="") as file:
        texts = [line["sentence"] for line in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)]
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    result: dict[str, Any] = {
        **{"command": repeatable_command("-m benchmarks.cluster"), "commit": commit, **machine(torch.device("cpu"))},
        **{"ray": ray.__version__, "cores": os.cpu_count(), "rows": args.rows, "shards": -(-args.rows // 1024)},
        "runs": {},
    }
    with tempfile.TemporaryDirectory() as scratch:
        folder, rows = Path(scratch) / "bundle", Path(scratch) / "rows.jsonl"
        bundle("tiny", AutoTokenizer.from_pretrained(args.tokenizer), texts[:LOOKED_AT], folder, "cpu")
        with open(rows, "w", encoding="utf-8") as file:
            for number, text in enumerate(islice(cycle(texts[LOOKED_AT:]), args.rows)):
                file.write(json.dumps({"text": f"{number} {text}"}) + "\n")
        for name, settings in RUNS.items():
            result["runs"][name] = predicted(folder, rows, *settings)
            print(name, result["runs"][name], flush=True)
            args.output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
