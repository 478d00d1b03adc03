"""What a text costs, by how many there are: `paredown predict` from a file of sentences to a file of answers.

    python -m benchmarks.size --texts sentences.txt.xz --tokenizer FOLDER

A tiny encoder of random weights, whose texts leave after 3.4 of 12 layers on average: what grows with the number of
texts would show beside it. Every number of texts has a process of its own, with one thread, which first answers some
others; the command's own clock counts CPU time, and runs of few texts are repeated, their median counts. Memory is the
most that the process ever had.
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import redirect_stdout
from io import StringIO
from itertools import cycle, islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from transformers import AutoTokenizer

from benchmarks.commands import repeatable_command
from benchmarks.predict import LOOKED_AT, bundle
from benchmarks.result_files import commit
from paredown.cli import predict
from paredown.cli._app import main as command
from paredown.system.machine import machine

SIZES = (1_000, 10_000, 100_000, 1_000_000)
REPEATED = 5_000  # texts that the runs of one size have together, at least
OUT = Path(__file__).with_suffix(".json")


def seconds_of(folder: str, rows: Path) -> float:
    """CPU time of the command, without its start."""
    printed, out = StringIO(), rows.with_suffix(".out.jsonl")
    with redirect_stdout(printed):
        status = command(["predict", folder, str(rows), str(out), "--json", "--restart"])
    if status:
        raise SystemExit(f"predict failed on {rows}")
    return float(json.loads(printed.getvalue())["seconds"])


def alone(folder: str, rows: Path, number: int) -> dict[str, float]:
    """In a process of its own."""
    predict.time = SimpleNamespace(monotonic=time.process_time)  # type: ignore[assignment]
    seconds_of(folder, rows.with_name("warm.jsonl"))
    taken = [seconds_of(folder, rows) for _ in range(max(1, REPEATED // number))]
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return {"microseconds a text": round(1e6 * statistics.median(taken) / number, 2), "MB": most}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=Path, help="one sentence a line, xz")
    parser.add_argument("--tokenizer")
    parser.add_argument("--alone", nargs=3, metavar=("BUNDLE", "ROWS", "NUMBER"), help=argparse.SUPPRESS)
    parser.add_argument("--output", type=Path, default=OUT)
    args = parser.parse_args()
    if args.alone:
        print(json.dumps(alone(args.alone[0], Path(args.alone[1]), int(args.alone[2]))))
        return
    with lzma.open(args.texts, "rt", encoding="utf-8") as file:
        texts = [text for text in file.read().split("\n") if text.strip()]
    result: dict[str, Any] = {
        "command": repeatable_command("-m benchmarks.size"),
        "commit": commit(),
        **machine(),
        "sentences": len(texts),
    }
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "bundle"
        bundle("tiny", AutoTokenizer.from_pretrained(args.tokenizer), texts[:LOOKED_AT], folder, "cpu")
        write(Path(scratch) / "warm.jsonl", texts[:LOOKED_AT], LOOKED_AT)
        for number in SIZES:
            rows = Path(scratch) / f"{number}.jsonl"
            write(rows, texts[LOOKED_AT:], number)
            result[f"{number} texts"] = found = in_a_process(folder, rows, number)
            print(number, found, flush=True)
            args.output.write_text(json.dumps(result, indent=1) + "\n")


def write(path: Path, texts: list[str], number: int) -> None:
    """So many rows; sentences repeat when there are fewer."""
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(json.dumps({"text": text}) + "\n" for text in islice(cycle(texts), number))


def in_a_process(folder: Path, rows: Path, number: int) -> dict[str, float]:
    job = [sys.executable, "-m", "benchmarks.size", "--alone", str(folder), str(rows), str(number)]
    done = subprocess.run(job, stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    if done.returncode:
        raise SystemExit(f"{number} texts could not be measured")
    return dict(json.loads(done.stdout.strip().splitlines()[-1]))


if __name__ == "__main__":
    main()
