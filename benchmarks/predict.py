"""`paredown predict` from a file of sentences to a file of answers, everything included, by the number of processes.

    python -m benchmarks.predict --texts sentences.txt.xz --tokenizer FOLDER --output benchmarks/predict.json

Encoders of random weights; a threshold on the entropy of attention heads that lets texts leave after 3.4 of 12 layers
on average, found on other texts than are timed. Sentences repeat when there are fewer than rows. Texts per second are
those of the command's own report, which leaves its start out; the whole of it stands beside them.
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import subprocess
import sys
import tempfile
import threading
import time
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification

from benchmarks.commands import repeatable_command
from paredown import AdaptiveModel, Plan
from paredown.registry import answers
from paredown.system.machine import machine

SIZES = {
    "bert-base": {},
    "gte-small": {"hidden_size": 384, "intermediate_size": 1536},
    "tiny": {"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64},
}
WANTED = 3.4  # mean layers
LOOKED_AT = 2000  # texts that the threshold is found on


def bundle(size: str, tokenizer: Any, texts: list[str], folder: Path, device: str) -> float:
    """Save a bundle whose texts leave after the wanted number of layers; returns that number."""
    torch.manual_seed(0)
    stock = BertForSequenceClassification(BertConfig(**SIZES[size])).eval()
    model = AdaptiveModel(stock, tokenizer, answers.make("single_label"))
    model.grow_heads("attention")
    with torch.no_grad():
        for head in model.heads.values():
            head.out.weight.normal_(std=2.0)  # type: ignore[union-attr]
    model.eval().to(device).use("packed")
    low, high, mean = 0.0, 1.0, 0.0
    for _ in range(12):
        middle = (low + high) / 2
        found = model.predict(texts, Plan(exit=f"entropy:{middle}"))
        mean = sum(one.layers for one in found) / len(found)
        low, high = (middle, high) if mean > WANTED else (low, middle)
    model.plan = Plan(exit=f"entropy:{high}")
    model.to("cpu").save_pretrained(folder)
    return mean


class Watch:
    """The share of time in which a GPU works, as its driver counts it."""

    def __enter__(self) -> Watch:
        self.seen: list[int] = []
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self._look)
        if torch.cuda.is_available():
            self.thread.start()
        return self

    def _look(self) -> None:
        command = ["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits", "--loop-ms=100"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            for line in process.stdout or ():
                self.seen.append(int(line))
                if self.stop.is_set():
                    process.terminate()
                    return

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        if self.thread.is_alive():
            self.thread.join()

    @property
    def busy(self) -> float | None:
        """Of the time since it was first seen at work."""
        first = next((index for index, value in enumerate(self.seen) if value), None)
        return None if first is None else sum(self.seen[first:]) / len(self.seen[first:]) / 100


def predicted(folder: Path, rows: Path, processes: int, device: str) -> dict[str, Any]:
    """One run of the command."""
    dtype = "bfloat16" if device == "cuda" else "float32"
    out = rows.with_suffix(".out.jsonl")
    command = [sys.executable, "-m", "paredown", "predict", folder, rows, out, "--dtype", dtype, "--json", "--restart"]
    environment = {**os.environ, "TOKENIZERS_PARALLELISM": "true"}
    start = time.monotonic()
    with Watch() as watch:
        process = subprocess.Popen(
            [*map(str, command), "--processes", str(processes)], stdout=subprocess.PIPE, text=True, env=environment
        )
        printed = process.stdout.read() if process.stdout else ""
        _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"predict failed with {processes} processes")
    found = json.loads(printed)
    return {
        "texts/s": found["rows_per_second"],
        "seconds": found["seconds"],
        "seconds with its start": round(time.monotonic() - start, 1),
        "mean layers": found["mean_layers"],
        "share of time the GPU works": watch.busy,
        "MB of the process that reads and writes": usage.ru_maxrss // 1024,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=Path, required=True, help="one sentence a line, xz")
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--sizes", nargs="+", default=["bert-base", "gte-small"], choices=SIZES)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 4, 8, 12])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--growing", type=int, nargs="*", default=[1_000, 10_000, 100_000], help="smaller files too")
    parser.add_argument("--output", type=Path, default=Path(__file__).with_suffix(".json"))
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    tokenizer = AutoTokenizer.from_pretrained(args.tokenizer)
    with lzma.open(args.texts, "rt", encoding="utf-8") as file:
        texts = [text for text in file.read().split("\n") if text.strip()]
    result: dict[str, Any] = {
        "command": repeatable_command("-m benchmarks.predict"),
        **machine(),
        "cores": os.cpu_count(),
        "sentences": len(texts),
        "rows": args.rows,
    }
    with tempfile.TemporaryDirectory() as scratch:
        for size in args.sizes:
            folder = Path(scratch) / size
            bundle(size, tokenizer, texts[:LOOKED_AT], folder, device)
            several = max(args.processes)
            cases = [(rows, count) for rows in args.growing for count in (1, several)]
            for rows, processes in [*cases, *((args.rows, count) for count in args.processes)]:
                path = Path(scratch) / f"{rows}.jsonl"
                if not path.exists():
                    with open(path, "w", encoding="utf-8") as file:
                        file.writelines(
                            json.dumps({"text": text}) + "\n" for text in islice(cycle(texts[LOOKED_AT:]), rows)
                        )
                found = predicted(folder, path, processes, device)
                result[f"{size}, {rows} rows, {processes} processes"] = found
                print(size, rows, processes, found, flush=True)
                args.output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
