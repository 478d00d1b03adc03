"""The bundles whose promises are tested: gte-small, trained by `auto` on some rows of a set and recorded on others.

    python -m benchmarks.calibration_bundles sst2 snli --weights inputs/weights --data inputs/data --out grounds

`OUT/NAME/model` is the bundle and `OUT/NAME/ground` what it says of rows that neither trained it nor chose its weights,
for `benchmarks.calibration` and `benchmarks.calibration_tasks`.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path

import torch

from benchmarks.calibration_ground import save
from benchmarks.rows import SETS, RowSet, draw
from paredown import AdaptiveModel
from paredown.calibration.candidates import Ground, recorded_plans, usual_reducers
from paredown.training import train

POOLS: dict[str, RowSet] = {  # their test rows are the ground
    "sst2": replace(SETS["sst-2"], files=("SST-2/train.tsv",), parts=True, train=24_000, test=12_000),
    "snli": replace(SETS["snli"], train=40_000, test=10_000),
    "imdb": replace(SETS["imdb"], train=15_000, test=12_000),
    "20news": replace(SETS["20news"], train=10_314, test=8_000),
    "squad": replace(SETS["squad"], train=13_000, test=11_000),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", choices=POOLS)
    parser.add_argument("--weights", type=Path, default=Path("inputs/weights"))
    parser.add_argument("--data", type=Path, default=Path("inputs/data"))
    parser.add_argument("--out", type=Path, default=Path("grounds"))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=int, help="at most so many rows of each split, to try it out")
    args = parser.parse_args()
    for name in args.names:
        make(name, args)


def make(name: str, args: argparse.Namespace) -> None:
    chosen = POOLS[name]
    rows = draw(chosen, args.data, args.limit)
    print(name, rows.counts, flush=True)
    torch.manual_seed(args.seed)
    named = {"labels": list(rows.labels)} if chosen.kind == "single_label" else {}
    model = AdaptiveModel.from_pretrained(args.weights / "gte-small", task=chosen.kind, **named).float()
    model.to("cuda" if torch.cuda.is_available() else "cpu")
    with tempfile.TemporaryDirectory() as folder:
        train(
            model,
            "auto",
            rows.train,
            rows.dev,
            output=Path(folder) / "run",
            metric=chosen.metric,
            seed=args.seed,
            max_length=chosen.max_length,
            progress=False,
        )
    bundle = args.out / name / "model"
    model.save_pretrained(bundle, "float16")
    model = AdaptiveModel.from_pretrained(bundle).float().to(model.device)  # what will be used is judged
    plans = recorded_plans(model, (), usual_reducers(model))
    ground = Ground.record(model, model.encode(rows.test, chosen.max_length), plans, 64)
    save(ground, chosen.metric, args.out / name / "ground")


if __name__ == "__main__":
    main()
