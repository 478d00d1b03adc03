"""A picture of an experiment with exits: score against work saved, and what the head of every layer knows."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from benchmarks.experiment import COUNTS
from benchmarks.rows import SETS

COLOURS = "#0072B2 #D55E00 #009E73 #CC79A7 #E69F00 #56B4E9 #666666 #882255 #999933 #332288".split()
MARKERS = "osD^vPX*<>"
FIRST_TOKEN = ("deebert", "elasticbert", "pabee", "berxit")  # aliases whose own heads read the first token
SAVED = (1, 1.5, 2, 3, 4, 6, 8, 12)
STEPS = [1.0 + step / 25 for step in range(276)]  # times less work, 1 to 12


def draw(result: dict[str, Any], path: Path) -> None:
    """A row for attention heads and one for heads on the first token, where there are both."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "axes.axisbelow": True})
    groups = {title: recipes for title, recipes in grouped(result).items() if recipes}
    figure, axes = plt.subplots(len(groups), 2, figsize=(11.4, 4.6 * len(groups)), squeeze=False, layout="constrained")
    metric = SETS[result["experiment"]["rows"]].metric
    for (work, layers), (title, recipes) in zip(axes, groups.items(), strict=True):
        for number, (recipe, runs) in enumerate(recipes.items()):
            look: dict[str, Any] = {"color": COLOURS[number], "marker": MARKERS[number], "markersize": 5.5}
            look |= {"linewidth": 1.6, "markeredgecolor": "white", "markeredgewidth": 0.6}
            # Markers at other points for every recipe, so that lines that coincide can still be told apart.
            work.plot(
                STEPS, frontier(runs, result["experiment"]["count"]), **look, markevery=(5 * number, 55), label=recipe
            )
            heads = heads_of(runs)
            layers.plot(range(1, len(heads) + 1), heads, **look)
        work.set_xscale("log")
        work.set_xticks(SAVED, [f"{times:g}×" for times in SAVED])
        work.set_xticks([], minor=True)
        work.set_xlabel(f"times less work, counted in {COUNTS[result['experiment']['count']]}")
        layers.set_xlabel("layer whose head answers")
        work.set_title(title, fontweight="bold", pad=10)
        work.legend(loc="lower left", frameon=False, fontsize=9)
        scale(work)
        scale(layers)
        work.set_ylabel(f"{metric} on test rows, %")
        layers.set_ylabel(f"{metric} of one head on test rows, %")
    rows = f"{result['runs'][0]['rows']['test']:,} test rows"
    about = f"{result['name']}: {result['experiment']['encoder']}, {rows}, mean of the seeds"
    figure.suptitle(f"{about}; scores on the scale of the error's logarithm", fontsize=11)
    figure.savefig(path, dpi=130, metadata={"Software": None})
    plt.close(figure)


def grouped(result: dict[str, Any]) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """By kind of head, the runs of every recipe that has exits."""
    found: dict[str, dict[str, list[dict[str, Any]]]] = {"attention heads": {}, "heads on the first token": {}}
    for run in result["runs"]:
        if "curve" not in with_exits(run):
            continue
        last = run["described"]["methods"][-1]
        first = last.startswith(FIRST_TOKEN) and "head=attention" not in last
        found["heads on the first token" if first else "attention heads"].setdefault(run["recipe"], []).append(run)
    return found


def with_exits(run: dict[str, Any]) -> dict[str, Any]:
    """The figures of the reducer that was measured, which exits come on top of; with several, of the first."""
    return next(iter(run["plans"].values()))


def frontier(runs: list[dict[str, Any]], count: str) -> list[float]:
    """In percent, the mean over seeds of the best score at so many times less work, or more."""
    curves = [with_exits(run)["curve"] for run in runs]

    def best(curve: list[dict[str, Any]], times: float) -> float:
        return max((its["score"] for its in curve if its[count] >= times - 1e-9), default=float("nan"))

    return [100 * statistics.mean(best(curve, times) for curve in curves) for times in STEPS]


def heads_of(runs: list[dict[str, Any]]) -> list[float]:
    found = [list(with_exits(run)["per_layer"].values()) for run in runs]
    return [100 * statistics.mean(its) for its in zip(*found, strict=True)]


def scale(axis: Any) -> None:
    """Scores by the logarithm of the error, so that small differences at the top can be seen."""
    import numpy as np

    def forward(score: Any) -> Any:
        return -np.log(np.clip(100 - np.asarray(score, dtype=float), 1e-3, None))

    low, high = axis.get_ylim()
    least = (forward(high) - forward(low)) / 12  # between two ticks
    ticks: list[int] = []
    for tick in range(int(high), int(low), -1):
        if not ticks or forward(ticks[-1]) - forward(tick) >= least:
            ticks.append(tick)
    axis.set_yscale("function", functions=(forward, lambda value: 100 - np.exp(-np.asarray(value))))
    axis.set_yticks(ticks, [str(tick) for tick in ticks])
    axis.set_ylim(low, high)
    axis.grid(color="0.9", linewidth=0.8)
