"""What `paredown calibrate --max-drop 0.01` promises on several tasks, and what it gives on rows it never saw.

    python -m benchmarks.calibration_tasks sst2 grounds/sst2 4000 --timed runs/sst2
    python -m benchmarks.calibration_tasks imdb_tokens grounds/imdb_tokens 2000

A ground (`benchmarks.calibration_ground`) whose first units calibrate; the others judge. `--timed` names a folder with
the times of a plan: time_cpu.json (as `paredown bench` has them, on one thread) and time_gpu.json (2,048 rows as one
stream), each of which may be missing. The plan is that of calibrate.json there, the output of `paredown calibrate`, or
without one the plan that is certified here. Each name is an entry of calibration_tasks.json.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.calibration_ground import load
from benchmarks.commands import repeatable_command
from paredown.calibration import Promise, Risk
from paredown.calibration.calibrating import Search, halves
from paredown.calibration.candidates import outlook
from paredown.calibration.judged import Judged
from paredown.certificate import Certificate
from paredown.evaluation import metric_named
from paredown.plan import Plan

DROP, SELECTION = 0.01, 0.2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="of the entry")
    parser.add_argument("ground", type=Path)
    parser.add_argument("calibrating", type=int, help="units that calibrate")
    parser.add_argument("--timed", type=Path)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"))
    args = parser.parse_args()
    ground, metric = load(args.ground)
    judged = ground.judged(Risk("score", metric_named(metric)))
    judging = np.arange(args.calibrating, ground.units)
    entry: dict[str, Any] = {"command": repeatable_command("-m benchmarks.calibration_tasks"), "metric": metric}
    entry |= {"calibrating": args.calibrating, "judging": len(judging)}
    choosing, testing = halves(args.calibrating, SELECTION, seed=0)
    plans = {}
    for name, per_layer in (("certified", True), ("one_threshold", False)):
        search = Search(judged, Promise(max_drop=DROP), choosing, testing, "all", per_layer)
        plans[name], _ = search.cheapest(DROP)
        entry[name] = on_other_units(judged, plans[name], judging)
    if args.timed:
        plan = certified_there(args.timed) or plans["certified"]
        entry["timed"] = on_other_units(judged, plan, judging) | timed(args.timed, str(plan))
    print(json.dumps(entry, indent=1))
    known = json.loads(args.out.read_text()) if args.out.exists() else {}
    args.out.write_text(json.dumps({**known, args.name: entry}, indent=1) + "\n")


def on_other_units(judged: dict[Plan, Judged], plan: Plan, units: np.ndarray) -> dict[str, Any]:
    """What a plan costs and loses there, and the standard error of the loss."""
    seen, stock = outlook(judged, [plan], units), next(iter(judged.values())).stock_flops[units].mean()
    losses = seen.losses[0]
    return {
        "plan": str(plan),
        "flops_speedup": round(float(stock / seen.flops.mean()), 3),
        "lost": round(float(losses.mean()), 5),
        "error": round(float(losses.std() / np.sqrt(len(units))), 5),
    }


def certified_there(folder: Path) -> Plan | None:
    path = folder / "calibrate.json"
    return Certificate.from_json(json.loads(path.read_text())["certificate"]).plan if path.exists() else None


def timed(folder: Path, plan: str) -> dict[str, Any]:
    """How many times faster than transformers, and than full depth, a plan is."""
    found = {}
    if (path := folder / "time_cpu.json").exists():
        found["cpu"] = cpu_times(json.loads(path.read_text()), plan)
    if (path := folder / "time_gpu.json").exists():
        found["gpu"] = gpu_times(json.loads(path.read_text()), plan)
    return found


def cpu_times(times: dict[str, Any], plan: str) -> dict[str, Any]:
    """By the rows of a batch: times faster than transformers, and than full depth."""
    assert times["plan"] == plan
    facts = {name: times[name] for name in ("cpu", "threads", "torch", "transformers")}
    for batch in (name for name in times if name.startswith("batch")):
        its = times[batch]
        full, ours = its["packed, full depth"], its["packed, plan"]
        against_full = ours["times_transformers"] / full["times_transformers"]
        facts[batch] = {"transformers": round(ours["times_transformers"], 2), "full_depth": round(against_full, 2)}
    return facts


def gpu_times(times: dict[str, Any], plan: str) -> dict[str, Any]:
    """By precision: the same."""
    assert all(its["plan"] == plan for its in times.values())
    return {
        name: {
            "transformers": round(its["plan_times_transformers"], 2),
            "full_depth": round(its["plan_times_full"], 2),
        }
        for name, its in times.items()
    }


if __name__ == "__main__":
    main()
