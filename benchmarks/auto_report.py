"""From the results beside it: the figures of docs/auto.md and of the method's card.

python -m benchmarks.auto_report
"""

from __future__ import annotations

import json
import statistics
from pathlib import Path

from benchmarks.auto import RECIPES, TARGETS
from benchmarks.auto_inputs import SETS
from benchmarks.pages import DOCS, ROOT, filled, how_made, machine, put, table

RESULTS = Path(__file__).with_name("auto.json")
SCRIPT = "python -m benchmarks.auto_report"
PAGE, CARD = DOCS / "auto.md", ROOT / "paredown" / "methods" / "auto" / "README.md"
SPEEDS = ("1", *map(str, TARGETS))


def mean(runs: list[dict], name: str, recipe: str, speed: str) -> float:
    """In percent, over the seeds."""
    return 100 * statistics.mean(run["scores"][speed] for run in runs if (run["set"], run["recipe"]) == (name, recipe))


def scores(runs: list[dict]) -> str:
    """A line for each set: auto, and how far it is above the independent recipe."""
    lines, gains = [], {speed: [] for speed in SPEEDS}
    for name, chosen in SETS.items():
        cells = []
        for speed in SPEEDS:
            ours, theirs = (mean(runs, name, recipe, speed) for recipe in ("auto", "independent"))
            gains[speed].append(ours - theirs)
            cells.append(f"{ours:.1f} ({ours - theirs:+.1f})")
        lines.append([name, chosen.encoder, chosen.metric, *cells])
    lines.append(["mean gain", "", "", *(f"{statistics.mean(gains[speed]):+.1f}" for speed in SPEEDS)])
    return table(["set", "encoder", "metric", "full depth", *(f"{target}× fewer layers" for target in TARGETS)], lines)


def spread(runs: list[dict]) -> str:
    """How far the seeds of auto lie apart."""
    lines = []
    for name in SETS:
        found = [
            [100 * run["scores"][at] for at in SPEEDS] for run in runs if (run["set"], run["recipe"]) == (name, "auto")
        ]
        lines.append([name, *(f"{min(its):.1f} to {max(its):.1f}" for its in zip(*found, strict=True))])
    return table(["auto, lowest to highest seed", "full depth", *(f"{target}×" for target in TARGETS)], lines)


def plans(runs: list[dict]) -> str:
    """The plan that auto chose on dev rows: what it saves and costs on test rows, mean over the seeds."""
    lines = []
    for name in SETS:
        worths = [run["plan"]["test"] for run in runs if (run["set"], run["recipe"]) == (name, "auto")]
        layers, flops = (statistics.mean(worth[key] for worth in worths) for key in ("layers", "flops_speedup"))
        lost = [100 * (worth["full_score"] - worth["score"]) for worth in worths]
        run, seeds = f"{layers:.1f} of {worths[0]['full_layers']:.0f}", f"{min(lost):+.1f} to {max(lost):+.1f}"
        lines.append([name, run, f"{flops:.2f}×", f"{statistics.mean(lost):+.2f}", seeds])
    return table(["plan of auto", "layers run", "fewer FLOPs", "points lost", "by seed"], lines)


def page(text: str, results: dict) -> str:
    """The page with its slots filled."""
    return put(text, answer=answer(results), figures=figures(results), made=made(results))


def answer(results: dict) -> str:
    """What a reader came for: how far above the plain recipe, typically and at least."""
    runs = results["runs"]
    gains = {
        (name, speed): mean(runs, name, "auto", speed) - mean(runs, name, "independent", speed)
        for name in SETS
        for speed in SPEEDS
    }
    most = max(gains, key=lambda at: gains[at])
    return filled(
        f"""The median gain is {statistics.median(gains.values()):.1f} points, the least {min(gains.values()):.1f}, the
        largest {gains[most]:.1f} (on {most[0]}, where the plain recipe scores {
            mean(runs, most[0], "independent", most[1]):.1f}). Scores are of test rows, mean of {
            len(_seeds(runs))
        } seeds; both recipes chose their weights on
        dev rows."""
    )


def figures(results: dict) -> str:
    runs = results["runs"]
    rows = [[name, *(f"{its[split]:,}" for split in ("train", "dev", "test"))] for name, its in _rows(runs).items()]
    text = f"""Test scores in percent, mean of {len(_seeds(runs))} seeds; in brackets how far `auto` is above the
        independent recipe, `{RECIPES["independent"]}`."""
    return f"""{filled(text)}

{scores(runs)}

The plan that `auto` chose on dev rows (at most half a point lost there), on test rows; less than 0 is a gain:

{plans(runs)}

{spread(runs)}

{table(["rows", "train", "dev", "test"], rows)}"""


def made(results: dict) -> str:
    seeds = f"Seeds {', '.join(map(str, _seeds(results['runs'])))}."
    return how_made(SCRIPT, [results], [machine(results, "32 bits (TF32)", seeds)], what="the figures of this page")


def _seeds(runs: list[dict]) -> list[int]:
    return sorted({run["seed"] for run in runs})


def _rows(runs: list[dict]) -> dict[str, dict[str, int]]:
    return {name: next(run["rows"] for run in runs if run["set"] == name) for name in SETS}


def main() -> None:
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), results), encoding="utf-8")
    CARD.write_text(put(CARD.read_text(encoding="utf-8"), figures=scores(results["runs"])), encoding="utf-8")
    print(figures(results))


if __name__ == "__main__":
    main()
