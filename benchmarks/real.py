"""Texts per second of a trained bundle by its plan and at full depth, beside other runtimes, on labelled rows.

    python -m benchmarks.real films --rows dev.tsv --calibration train.tsv --output benchmarks/real_sst2.json

One thread, process time; ways take turns in random order on the same batches (`paredown.runtime.bench`). Batches have
rows of like length: little padding, the best that runtimes that pad can wish for. A way counts where it loses at most
half a point of accuracy against transformers on the same rows.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
from pathlib import Path
from typing import Any

import torch

from benchmarks.commands import repeatable_command
from paredown.answers import Encoded
from paredown.cli._loading import labels_to_read
from paredown.evaluation import record
from paredown.model import AdaptiveModel
from paredown.plan import Plan
from paredown.runtime.bench import CALIBRATION, Bench, Course
from paredown.tasks import read_rows

RIVALS = ("transformers sdpa", "onnxruntime int8", "openvino int8", "ctranslate2 int8")
RUNTIMES = ("packed", "int8")
ALLOWED = 0.5  # points of accuracy


def some_rows(model: AdaptiveModel, path: str, number: int, seed: int) -> list[Encoded]:
    """So many rows of a file, drawn at random."""
    found = read_rows(path, usual=model.reading, labels=labels_to_read(model), kind=model.kind.name).rows
    random.Random(seed).shuffle(found)
    return model.encode(found[:number])


def by_length(rows: list[Encoded], size: int, rounds: int) -> list[Encoded]:
    """The same rows in an order in which batches have like lengths, and rounds a batch of every length."""
    order = sorted(rows, key=len)
    whole = len(order) // size * size
    batches = [order[at : at + size] for at in range(0, whole, size)]
    dealt = [batch for number in range(rounds) for batch in batches[number::rounds]]
    return [row for batch in [*dealt, order[whole:]] for row in batch]


def judged(ways: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """With the points that each way loses against the first."""
    best = next(iter(ways.values()))["score"]
    for facts in ways.values():
        facts["points_lost"] = round(100 * (best - facts["score"]), 3)
        facts["counts"] = facts["points_lost"] <= ALLOWED
    return {name: {key: _short(value) for key, value in facts.items()} for name, facts in ways.items()}


def _short(value: Any) -> Any:
    return round(value, 4) if isinstance(value, float) else value


def agreement(model: AdaptiveModel, rows: list[Encoded]) -> float:
    """The share of labels at full depth that int8 answers as 32 bits do."""
    labels = []
    with model.keeping_runtime():
        for runtime in RUNTIMES:
            logits = record(model.use(runtime), rows, plan=Plan(), hashed=False).logits
            labels.append(logits[max(logits)].argmax(-1))
    return float((labels[0] == labels[1]).float().mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle")
    parser.add_argument("--rows", required=True, help="labelled rows that are timed and judged")
    parser.add_argument("--calibration", required=True, help="other rows, to calibrate and to warm up by")
    parser.add_argument("--most", type=int, default=1000, help="rows")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--exit", help="in the place of the plan's own")
    parser.add_argument("--output", type=Path, required=True)
    given = parser.parse_args()
    torch.set_num_threads(1)
    model = AdaptiveModel.from_pretrained(given.bundle)
    plan = model.plan if given.exit is None else model.plan.but(exit=given.exit)
    size = given.batch_size
    rows = by_length(some_rows(model, given.rows, given.most, seed=0), size, given.rounds)
    others = some_rows(model, given.calibration, CALIBRATION, seed=1)
    bench = Bench(model, plan, others, RIVALS, RUNTIMES)
    ways = judged(bench.run(Course.of(others[:size], rows, size, given.rounds), cpu_time=True))
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    found = {
        "command": repeatable_command("-m benchmarks.real"),
        "commit": commit,
        **bench.facts(),
        "plan": str(plan),
        "rows": len(rows),
        "tokens": round(sum(map(len, rows)) / len(rows), 1),
        "batch_size": size,
        "int8_labels_as_in_32_bits": round(agreement(model, rows), 5),
        "ways": ways,
        "not_measured": bench.missing,
    }
    given.output.write_text(json.dumps(found, indent=1) + "\n")
    for name, facts in ways.items():
        lost = f"{100 * facts['score']:.2f} % ({-facts['points_lost']:+.2f})"
        shown = f"{facts['texts_per_second']:8.1f} texts/s {facts['times_transformers']:6.2f}x  accuracy {lost}"
        print(f"{name:24} {shown}{'' if facts['counts'] else '  does not count'}")
    print(bench.missing)


if __name__ == "__main__":
    main()
