"""What a bundle says of a pool of rows, and what its parts cost: all that calibration needs, in one folder.

    python -m benchmarks.calibration_ground runs/sst2/model grounds/sst2 rows.tsv
    python -m benchmarks.calibration_ground runs/squad/model grounds/squad dev-v1.1.json --task squad

`benchmarks.calibration` and `benchmarks.calibration_tasks` read the folder, on any machine and without the bundle.
Recorded are full depth and every reducer that `paredown calibrate` would try.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from paredown import AdaptiveModel
from paredown.calibration.candidates import Ground, recorded_plans, usual_reducers
from paredown.cli._data import Source
from paredown.cli._loading import device_named
from paredown.evaluation import Bill, Cost
from paredown.evaluation.cost import Work
from paredown.evaluation.record import Record
from paredown.system.saving import write_json

FACTS = "ground.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("folder", type=Path, help="to write")
    parser.add_argument("rows", nargs="?", help="a file with labelled rows; without one, a --task with --data")
    parser.add_argument("--task")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--split", default="dev")
    parser.add_argument("--reduce", nargs="*", help="reducers; default: of the plan, or of the selectors")
    parser.add_argument("--max-length", type=int)
    parser.add_argument("--device", default="auto")
    args = parser.parse_args()
    model = AdaptiveModel.from_pretrained(args.bundle).to(device_named(args.device))
    found = Source(args.task, args.data, {args.split: args.rows}).read_for(model, args.split)
    plans = recorded_plans(model, (), usual_reducers(model) if args.reduce is None else args.reduce)
    save(Ground.record(model, model.encode(found.rows, args.max_length), plans, 64), found.metric, args.folder)


def save(ground: Ground, metric: str, folder: Path) -> None:
    """A record in a folder of its own for every plan, and the costs beside them."""
    folder.mkdir(parents=True, exist_ok=True)
    costs = []
    for number, (seen, bill) in enumerate(ground.records.values()):
        assert bill.cost is not None
        seen.save(folder / str(number))
        costs.append(asdict(bill.cost))
    write_json(folder / FACTS, {"metric": metric, "costs": costs})


def load(folder: Path) -> tuple[Ground, str]:
    """The ground, and the name of the metric that the rows are judged by."""
    facts = json.loads((folder / FACTS).read_text())
    records = {}
    for number, cost in enumerate(facts["costs"]):
        seen = Record.load(folder / str(number))
        records[seen.plan] = seen, Bill(seen, _cost(cost))
    return Ground(records), facts["metric"]


def _cost(data: dict[str, Any]) -> Cost:
    def works(name: str) -> dict[int, Work]:
        return {int(layer): Work(**work) for layer, work in data[name].items()}

    return Cost(
        Work(**data["start"]),
        tuple(Work(**work) for work in data["layers"]),
        Work(**data["classifier"]),
        works("heads"),
        works("selectors"),
        works("watching"),
        data["padded_to"],
        tuple(Work(**work) for work in data["grown"]),
    )


if __name__ == "__main__":
    main()
