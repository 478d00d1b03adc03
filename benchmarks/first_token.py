"""What an encoder's tokens say of the answer after each layer, before anything is trained: linear probes.

    python -m benchmarks.first_token --weights inputs/weights --data inputs/data

Of the first token and of the mean of all tokens; channels are standardised over the rows that teach. Beside it how far
the first token's channels spread over rows, and how far their means lie apart.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression  # type: ignore[import-untyped, unused-ignore]
from sklearn.pipeline import make_pipeline  # type: ignore[import-untyped, unused-ignore]
from sklearn.preprocessing import StandardScaler  # type: ignore[import-untyped, unused-ignore]
from torch import Tensor

from benchmarks.commands import repeatable_command
from benchmarks.experiment import Experiment
from benchmarks.inputs import hashes
from benchmarks.result_files import commit
from benchmarks.rows import SETS, draw
from paredown import AdaptiveModel
from paredown.engine import run_steps
from paredown.route import straight
from paredown.system.machine import machine

TEACHING, JUDGED, BATCH = 1500, 872, 64
STRENGTH = 0.02  # inverse of the penalty on weights: there are a quarter as many channels as rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", type=Path, default=Path("inputs/weights"))
    parser.add_argument("--data", type=Path, default=Path("inputs/data"))
    parser.add_argument("--rows", default="sst-2")
    parser.add_argument("--encoders", nargs="+", default=["e5-small", "gte-small"])
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"))
    args = parser.parse_args()
    drawn = draw(SETS[args.rows], args.data)
    train, test = drawn.train[:TEACHING], drawn.test[:JUDGED]
    found: dict[str, Any] = {"command": repeatable_command("-m benchmarks.first_token"), "commit": commit()}
    found |= {**machine(torch.device("cpu"), ("scikit-learn",)), "rows": {"teach": len(train), "judged": len(test)}}
    found["inputs"], found["encoders"] = {}, {}
    for encoder in args.encoders:
        found["inputs"][encoder] = hashes(args.weights, args.data, Experiment("", args.rows, encoder, ()))
        model = AdaptiveModel.from_pretrained(args.weights / encoder, labels=list(drawn.labels)).float()
        model.use("packed")
        (taught, labels), (judged, wanted) = (states(model, rows) for rows in (train, test))
        layers = [
            of_layer(*({name: its[name][layer] for name in its} for its in (taught, judged)), labels, wanted)
            for layer in range(model.walk.num_base_layers)
        ]
        found["encoders"][encoder] = {name: [its[name] for its in layers] for name in layers[0]}
        print(encoder, json.dumps(found["encoders"][encoder], indent=1), flush=True)
    args.out.write_text(json.dumps(found, indent=1) + "\n")


@torch.inference_mode()
def states(model: AdaptiveModel, rows: list[Any]) -> tuple[dict[str, list[Tensor]], np.ndarray]:
    """[rows, width] after each layer, by what of the tokens is read; and the labels."""
    encoded = sorted(model.encode(rows, 128), key=len)
    seen: dict[str, list[list[Tensor]]] = {"first": [], "mean": []}
    for start in range(0, len(encoded), BATCH):
        state = model.backend.embed(model.backend.batch(encoded[start : start + BATCH]))
        parts: dict[str, list[Tensor]] = {name: [] for name in seen}
        for step in straight(range(model.walk.num_base_layers)):
            state = run_steps(model.backend, (step,), state)
            for name, found in parts.items():
                found.append(state.tokens().pooled(name).clone())
        for name, found in parts.items():
            seen[name].append(found)
    by_layer = {name: [torch.cat(its) for its in zip(*batches, strict=True)] for name, batches in seen.items()}
    return by_layer, np.array([row.label for row in encoded])


def of_layer(
    taught: dict[str, Tensor], judged: dict[str, Tensor], labels: np.ndarray, wanted: np.ndarray
) -> dict[str, float]:
    def score(name: str) -> float:
        probe = make_pipeline(StandardScaler(), LogisticRegression(max_iter=300, C=STRENGTH))
        return round(float(probe.fit(taught[name], labels).score(judged[name], wanted)), 4)

    first = taught["first"]
    return {
        "first token": score("first"),
        "mean of all tokens": score("mean"),
        "spread over rows": round(float(first.std(0).mean()), 5),
        "spread of channels": round(float(first.mean(0).std()), 4),
    }


if __name__ == "__main__":
    main()
