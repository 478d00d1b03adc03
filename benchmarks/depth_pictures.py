"""The pictures of docs/depth.md, made by benchmarks.depth_report.

Okabe and Ito's colours, which colour-blind readers can tell apart; markers say the same again.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from benchmarks.depth_results import (
    BEFORE,
    CHANCE,
    NAMES,
    WORDS,
    Scores,
    depths,
    each_seed,
    macro,
    medians,
    of_seeds,
    pair,
    scores,
)

BLUE = {"color": "#0072B2", "marker": "o"}
ORANGE = {"color": "#D55E00", "marker": "s"}
LINE = {"linewidth": 1.8, "markersize": 6, "markeredgecolor": "white", "markeredgewidth": 0.7}


def draw(theseus: dict, elastic: dict, paths: list[Path]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "axes.axisbelow": True})
    found = medians(theseus)
    figure, axes = plt.subplots(2, 4, figsize=(12.5, 6.2), layout="constrained")
    *panels, macros, without, rest = axes.flat
    for axis, task in zip(panels, NAMES):
        draw_task(axis, found, theseus, task)
    draw_macro(macros, found, "macro average")
    draw_macro(without, found, "macro without STS-B", "sts-b")
    for axis in axes[:, 0]:
        axis.set_ylabel("dev score")
    rest.axis("off")
    rest.legend(*panels[0].get_legend_handles_labels(), loc="center", frameon=False)
    figure.savefig(paths[0], dpi=160, metadata={"Software": None})

    figure, axes = plt.subplots(1, 3, figsize=(12, 4.2), layout="constrained")
    for axis, task in zip(axes, CHANCE):
        draw_exits(axis, elastic, task)
    draw_losses(axes[-1], elastic["pretraining"])
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    figure.savefig(paths[1], dpi=160, metadata={"Software": None})


def draw_task(axis: Any, found: Scores, theseus: dict, task: str) -> None:
    layers = depths(found)
    for index, (name, look) in enumerate({"first {} layers": BLUE, "theseus {}": ORANGE}.items()):
        label = ("first layers, fine-tuned", "theseus")[index]
        axis.plot(layers, [found[name.format(k)][task] for k in layers], **look, **LINE, label=label)
        for k in layers:
            seeds = of_seeds(theseus, name.format(k), task)
            axis.plot(
                [k + 0.12 * (2 * index - 1)] * len(seeds), seeds, "_", color=look["color"], markersize=6, alpha=0.8
            )
    dress(axis, found[BEFORE][task], layers, NAMES[task])


def draw_macro(axis: Any, found: Scores, title: str, *without: str) -> None:
    layers = depths(found)
    for index, look in enumerate((BLUE, ORANGE)):
        axis.plot(layers, [macro(pair(found, k)[index], *without) for k in layers], **look, **LINE)
    dress(axis, macro(found[BEFORE], *without), layers, title)


def dress(axis: Any, before: float, layers: list[int], title: str) -> None:
    axis.axhline(before, color="0.35", linewidth=1.2, linestyle="--", label="predecessor, 12 layers")
    axis.set_xticks(layers)
    axis.set_xlim(min(layers) - 0.4, max(layers) + 0.4)
    axis.set_xlabel("layers")
    axis.set_title(title, fontweight="bold", fontsize=10.5)
    axis.grid(color="0.9", linewidth=0.8)


def draw_exits(axis: Any, elastic: dict, task: str) -> None:
    for start, look in (("without", BLUE), ("with", ORANGE)):
        mean = scores(elastic, task, start)
        axis.plot(list(mean), list(mean.values()), **look, **LINE, label=f"{start} pre-training")
        for one in each_seed(elastic, task, start):
            axis.plot(list(one), list(one.values()), color=look["color"], linewidth=0.7, alpha=0.6)
    axis.axhline(CHANCE[task], color="0.35", linewidth=1.2, linestyle=":", label="larger class")
    axis.set_xticks(range(1, 13))
    axis.set_xlabel("layer whose exit answers")
    axis.set_ylabel("dev accuracy, %")
    axis.set_title(NAMES[task], fontweight="bold", fontsize=10.5)
    axis.grid(color="0.9", linewidth=0.8)


def draw_losses(axis: Any, facts: dict) -> None:
    for when, look in (("before", BLUE), ("after", ORANGE)):
        losses = {int(k): entry["mlm"] for k, entry in facts[when].items()}
        axis.plot(list(losses), list(losses.values()), **look, **LINE, label=f"{when} pre-training")
    axis.axhline(math.log(WORDS), color="0.35", linewidth=1.2, linestyle=":", label="guessing")
    axis.legend(loc="center right", frameon=False)
    axis.set_ylim(0, None)
    axis.set_xticks(range(1, 13))
    axis.set_xlabel("layer whose exit guesses")
    axis.set_ylabel("loss of hidden words, nats")
    axis.set_title("held-out text", fontweight="bold", fontsize=10.5)
    axis.grid(color="0.9", linewidth=0.8)
