"""The picture of docs/tokens.md, made by benchmarks.tokens_report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.tokens_results import BOTH, EXITS, NAMES, PLAIN, TOKENS, Found, Runs, at, called, loss_of

COLOURS = {  # Okabe and Ito's, which colour-blind readers can tell apart; markers say the same again
    "attention": ("#999999", "x"),
    "fixed share by attention": ("#000000", "+"),
    "trained with attention": ("#E69F00", "v"),
    "policy": ("#0072B2", "o"),
    "early policy": ("#D55E00", "s"),
    "gate": ("#CC79A7", "D"),
    "exits": ("#009E73", "^"),
}
ZOOM = {"imdb": (6, 13), "20news": (12, 13), "squad": (12, 3)}  # points below the whole model, times fewer FLOPs


def draw(found: Found, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "axes.axisbelow": True})
    figure, axes = plt.subplots(1, len(found), figsize=(4.2 * len(found), 4.6), layout="constrained")
    for axis, ((encoder, task), seeds) in zip(axes, found.items()):
        for runs in seeds.values():
            draw_runs(axis, runs)
        scale(axis, *ZOOM[task])
        axis.set_title(f"{NAMES[task]}, {encoder}")
    axes[0].set_ylabel("test score beside all tokens and layers, points")
    known = [axis.get_legend_handles_labels() for axis in axes]
    named = {label: handle for handles, labels in known for label, handle in zip(labels, handles)}  # each name once
    figure.legend(named.values(), named, loc="outside lower center", ncols=6, frameon=False)
    figure.savefig(path, dpi=140, metadata={"Software": None})


def draw_runs(axis: Any, runs: Runs) -> None:
    untrained: dict[str, list[dict]] = {"attention": [], "fixed share by attention": []}
    for point in runs[PLAIN]["points"]:
        kind = "attention" if point["reduce"].startswith("attention") else "fixed share by attention"
        untrained[kind].append(point)
    series = list(untrained.items())
    for name in (name for name in (*TOKENS, EXITS, *BOTH) if "former" not in name):
        series += [(name, by_speed(runs[label])) for label in called(runs, name)]
    for name, points in series:
        colour, marker = COLOURS[name.removesuffix(", then exits").removeprefix("exits, then ")]
        ordered = sorted(points, key=at)
        xs, ys = [at(point) for point in ordered], [loss_of(point, runs) for point in ordered]
        look = {"color": colour, "marker": marker, "markersize": 5, "linewidth": 1.3, "markevery": 1 + len(xs) // 12}
        if name in BOTH:
            look |= {"linestyle": ":" if name.startswith(EXITS) else "--", "markerfacecolor": "white"}
        axis.plot(xs, ys, label=name, **look)


def scale(axis: Any, depth: float, right: float) -> None:
    axis.axhline(0, color="0.6", linewidth=1)
    axis.set_xscale("log")
    axis.set_xticks([1, 2, 3, 4, 6, 8, 12], [f"{x}x" for x in (1, 2, 3, 4, 6, 8, 12)])
    axis.minorticks_off()
    axis.set_xlim(0.95, right)
    axis.set_ylim(-depth, depth / 8)
    axis.set_xlabel("FLOPs, times fewer")
    axis.grid(color="0.9", linewidth=0.8)


def by_speed(run: dict) -> list[dict]:
    """The exit rules at the run's own threshold; without exits, its thresholds."""
    points = [point for point in run["points"] if not point["reduce"].startswith("fixed_share")]
    return [p for p in points if p["reduce"] == run["plans"][0]] if any(p["exit"] for p in points) else points
