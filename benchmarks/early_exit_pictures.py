"""The pictures of docs/early_exit.md, made by benchmarks.early_exit_report."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from benchmarks.early_exit_results import ATTENTION, FIRST_TOKEN, NAMES, REFERENCE, Found, rows
from benchmarks.pages import DOCS

GROUPS = {"Attention heads": ATTENTION, "First-token heads (longer scale)": FIRST_TOKEN}
TICKS = {  # of the column of attention heads and of the other; the scale ends a little outside
    "sst-2": ((83, 85, 87, 88, 89, 90, 91, 92, 93), (50, 60, 70, 80, 85, 88, 90, 91, 92, 93)),
    "mrpc": ((70, 72, 74, 76, 78, 80, 82, 84, 86), (68, 70, 72, 74, 76, 78, 80, 82, 84, 86)),
}


def picture(task: str) -> Path:
    return DOCS.joinpath(f"early_exit_{NAMES[task].lower().replace('-', '')}.png")


def frontier(row: dict, budget: float, rule: str = "entropy") -> float:
    """Mean over seeds of the best score with at most so many layers, in percent; NaN where a seed has none."""
    tops = [
        max((point["score"] for point in run["curves"][rule] if point["layers"] <= budget + 1e-9), default=float("nan"))
        for run in row["runs"]
    ]
    return 100 * statistics.mean(tops)


def draw(found: Found, task: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "axes.axisbelow": True})
    figure, axes = plt.subplots(2, 2, figsize=(11, 9.2), layout="constrained")
    grid = [1 + step / 50 for step in range(551)]  # layers, 1 to 12
    for column, (title, group) in enumerate(GROUPS.items()):
        above, below = axes[:, column]
        for index, (method, (colour, marker)) in enumerate(group.items()):
            row = found[task][method]
            look = {"color": colour, "marker": marker, "linewidth": 1.6, "markersize": 5.5, "markeredgecolor": "white"}
            scores = [frontier(row, budget) for budget in grid]
            # Markers at other points for every method, so that lines that coincide can still be distinguished.
            above.plot(grid, scores, **look, markeredgewidth=0.6, markevery=(9 * index, 55), label=method)
            layers = sorted(map(int, row["per_layer"]))
            below.plot(layers, [100 * row["per_layer"][str(k)] for k in layers], **look, markeredgewidth=0.6)
        for axis in (above, below):
            dress(axis, TICKS[task][column])
        speedups(above)
        above.set_xlabel("mean layers run, at most")
        below.set_xlabel("layer whose head answers")
        above.set_title(title, fontweight="bold", pad=10)
        if column == 0:
            given = {12 / float(at[:-1]): score for at, score in REFERENCE[task].items() if at != "full"}
            star = {"marker": "*", "markersize": 13, "linestyle": "none", "color": "black", "markeredgecolor": "white"}
            above.plot(list(given), list(given.values()), **star, zorder=5, label="independent reference")
            below.plot([12], [REFERENCE[task]["full"]], **star, zorder=5, clip_on=False)
        handles, labels = above.get_legend_handles_labels()
        above.legend(handles, labels, loc="lower right", frameon=False, fontsize=9.5)
    axes[0, 0].set_ylabel("best dev accuracy by the entropy rule, %")
    axes[1, 0].set_ylabel("dev accuracy of one head, %")
    name = f"{NAMES[task]} dev, {rows(found, task)} rows"
    figure.suptitle(f"{name}: gte-small, mean of 2 seeds; accuracy on the scale of the error's logarithm", fontsize=11)
    figure.savefig(picture(task), dpi=160, metadata={"Software": None})
    plt.close(figure)


def dress(axis: Any, ticks: tuple[int, ...]) -> None:
    """Scale, ticks and grid: accuracy by the logarithm of the error."""
    import numpy as np

    def forward(score: Any) -> Any:
        return -np.log(np.clip(100 - np.asarray(score, dtype=float), 1e-3, None))

    axis.set_yscale("function", functions=(forward, lambda value: 100 - np.exp(-np.asarray(value))))
    axis.set_ylim(ticks[0] - (1.5 if ticks[0] == 50 else 0.6), ticks[-1] + (0.15 if ticks[-1] == 93 else 0.6))
    axis.set_yticks(ticks, [str(tick) for tick in ticks])
    axis.set_xlim(0.7, 12.3)
    axis.set_xticks(range(1, 13))
    axis.grid(color="0.9", linewidth=0.8)


def speedups(axis: Any) -> None:
    """A second scale above: how many times fewer layers."""
    top = axis.secondary_xaxis("top")
    times = (6, 4.33, 3.16, 2.48, 2, 1.5, 1.2, 1)
    top.set_xticks([12 / t for t in times], [f"{t:g}×" for t in times])
    top.set_xlabel("times fewer layers", color="0.35", fontsize=9)
    top.tick_params(labelsize=8.5, colors="0.35")
    top.spines["top"].set_visible(False)
