"""The figures of docs/auto.md and of the method's card, from the results beside it."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from benchmarks.pages import DOCS, ROOT, Document, committed, filled, how_made, machine, put, table

PAGE, CARD = DOCS / "auto.md", ROOT / "paredown" / "methods" / "auto" / "README.md"
TARGETS = (2, 3, 4)  # times fewer layers
SPEEDS = ("1", *map(str, TARGETS))
# In the order of the table; the last four are parts of 1,000 rows.
SETS = "sst-2 mrpc rte cola sts-b imdb 20news ag_news book-review chnsenticorp scitail squad".split()
SETS += [f"{name}, 1,000 rows" for name in ("sst-2", "imdb", "20news", "ag_news")]


def mean(runs: list[dict], name: str, recipe: str, speed: str) -> float:
    """In percent, over the seeds."""
    return 100 * statistics.mean(run["scores"][speed] for run in runs if (run["set"], run["recipe"]) == (name, recipe))


def scores(runs: list[dict]) -> str:
    """A line for each set: auto, and how far it is above the independent recipe."""
    lines, gains = [], {speed: [] for speed in SPEEDS}
    for name in SETS:
        cells, its = [], next(run for run in runs if run["set"] == name)
        for speed in SPEEDS:
            ours, theirs = (mean(runs, name, recipe, speed) for recipe in ("auto", "independent"))
            gains[speed].append(ours - theirs)
            cells.append(f"{ours:.1f} ({ours - theirs:+.1f})")
        lines.append([name, its["encoder"], its["metric"], *cells])
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
        run, each = f"{layers:.1f} of {worths[0]['full_layers']:.0f}", f"{min(lost):+.1f} to {max(lost):+.1f}"
        lines.append([name, run, f"{flops:.2f}×", f"{statistics.mean(lost):+.2f}", each])
    return table(["plan of auto", "layers run", "fewer FLOPs", "points lost", "by seed"], lines)


def plan(runs: list[dict], name: str) -> tuple[float, float]:
    """Of the plan that auto chose: times fewer FLOPs and points lost on test rows, mean over the seeds."""
    worths = [run["plan"]["test"] for run in runs if (run["set"], run["recipe"]) == (name, "auto")]
    lost = [100 * (worth["full_score"] - worth["score"]) for worth in worths]
    return statistics.mean(worth["flops_speedup"] for worth in worths), statistics.mean(lost)


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
            len(seeds(runs))
        } seeds; both recipes chose their weights on
        dev rows."""
    )


def figures(results: dict) -> str:
    runs = results["runs"]
    rows = [[name, *(f"{its[split]:,}" for split in ("train", "dev", "test"))] for name, its in _rows(runs).items()]
    text = f"""Test scores in percent, mean of {len(seeds(runs))} seeds; in brackets how far `auto` is above the
        independent recipe, `{results["recipes"]["independent"]}`."""
    return f"""{filled(text)}

{scores(runs)}

The plan that `auto` chose on dev rows (at most half a point lost there), on test rows; less than 0 is a gain:

{plans(runs)}

{spread(runs)}

{table(["rows", "train", "dev", "test"], rows)}"""


def made(results: dict) -> str:
    said = f"Seeds {', '.join(map(str, seeds(results['runs'])))}."
    facts = [machine(results, "32 bits (TF32)", said)]
    return how_made([], facts, what="the figures of this page", now="'auto-*'")


def seeds(runs: list[dict]) -> list[int]:
    return sorted({run["seed"] for run in runs})


def _rows(runs: list[dict]) -> dict[str, dict[str, int]]:
    return {name: next(run["rows"] for run in runs if run["set"] == name) for name in SETS}


def documents() -> Iterator[Document]:
    results = committed("auto")
    yield PAGE, lambda text: page(text, results)
    yield CARD, lambda text: put(text, figures=scores(results["runs"]))
