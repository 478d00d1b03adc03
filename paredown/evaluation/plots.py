"""Pictures for print: score against cost, score after every layer, where rows leave, ELUE's tasks, speeds.

Without matplotlib the functions that save draw nothing and log one line; those that draw raise.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paredown.errors import ParedownError
from paredown.evaluation.frontier import front

if TYPE_CHECKING:
    from paredown.evaluation.elue import Standing
    from paredown.evaluation.report import Evaluation

# Okabe and Ito's colours and two more, which people with any colour vision can tell apart; lines and markers help.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C6D31", "#999999")
LINES = ("-", "--", "-.", ":")
MARKERS = "osD^vPX<>*"
STYLE = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "savefig.dpi": 300,
    "savefig.bbox": "tight",
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "paredown",  # the same picture is the same file
}
GREY = "#666666"
NEEDED = "pictures need matplotlib: pip install 'paredown[plot]'"
log = logging.getLogger(__name__)


def save_plots(evaluation: Evaluation, folder: str | Path) -> list[Path]:
    """score_by_layer, score_against_cost and exits, each as PNG and SVG; the last two where there are rules."""

    def draw() -> dict[str, Any]:
        drawn = {"score_by_layer": score_by_layer(evaluation)}
        if evaluation.curves:
            drawn["score_against_cost"] = score_against_cost(evaluation)
        return drawn | ({"exits": exits(evaluation)} if _shown(evaluation) else {})

    return _saved(draw, folder)


def save_elue(standing: Standing, folder: str | Path) -> list[Path]:
    """elue as PNG and SVG."""
    return _saved(lambda: {"elue": elue(standing)}, folder)


def save_depths(points: list[dict[str, Any]], metric: str, folder: str | Path) -> list[Path]:
    """depths as PNG and SVG."""
    return _saved(lambda: {"depths": depths(points, metric)}, folder)


def depths(points: list[dict[str, Any]], metric: str) -> Any:
    """The score of several depths against their cost."""
    with _styled() as Figure:
        axes = Figure(figsize=(4.6, 3.0)).subplots()
        at = [(point["flops"] / 1e6, 100 * point["score"]) for point in points]
        axes.plot(*zip(*at), color=COLOURS[0], marker="o", markersize=4, linewidth=1.2)
        for point, xy in zip(points, at):
            axes.annotate(str(point["layers_kept"]), xy, xytext=(4, -9), textcoords="offset points", color=GREY)
        axes.set_xlabel("MFLOPs per row (numbers: layers)")
        axes.set_ylabel(f"{metric.replace('_', ' ')}, %")
    return axes.figure


def score_against_cost(evaluation: Evaluation) -> Any:
    """A line for each rule, the best of its points at each cost; the full model as a level with its interval."""
    with _styled() as Figure:
        axes = Figure(figsize=(6.4, 3.6)).subplots()
        full = evaluation.full
        band = {"color": "black", "alpha": 0.06, "linewidth": 0}
        axes.axhline(100 * full["score"], color=GREY, linewidth=0.9, label="full depth")
        axes.axhspan(100 * full["low"], 100 * full["high"], label="its 95 % interval", **band)
        alone = evaluation.per_layer
        x, y = [_share(point) for point in alone], [100 * point["score"] for point in alone]
        axes.plot(x, y, "x", color=GREY, markersize=4.5, label="all rows after a layer", zorder=1)
        names = sorted(set(evaluation.curves) - {"at_layer"}, key=lambda name: evaluation.areas[name])
        for index, name in enumerate(names):
            best = front(evaluation.curves[name])
            x, y = [_share(point) for point in best], [100 * point["score"] for point in best]
            axes.plot(x, y, label=_short(name), linewidth=1.2, markersize=3.5, **_look(index, len(x)))
        axes.set_xlim(0, 1.03)
        axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f}")
        axes.set_xlabel("FLOPs per row, % of the full model")
        axes.set_ylabel(_said(evaluation))
        axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), title="rules: best area first", title_fontsize=8)
    return axes.figure


def score_by_layer(evaluation: Evaluation) -> Any:
    """What every head alone would score, with intervals."""
    with _styled() as Figure:
        axes = Figure(figsize=(4.6, 3.0)).subplots()
        points, full = evaluation.per_layer, 100 * evaluation.full["score"]
        layers, scores = [point["layers"] for point in points], [100 * point["score"] for point in points]
        bars = [
            [max(0.0, 100 * (point["score"] - point["low"])) for point in points],
            [max(0.0, 100 * (point["high"] - point["score"])) for point in points],
        ]
        axes.axhline(full, color=GREY, linewidth=0.9, linestyle="--")
        look = {"color": COLOURS[0], "marker": "o", "markersize": 4, "linewidth": 1.2}
        axes.errorbar(layers, scores, bars, elinewidth=0.9, capsize=2.5, **look)
        above = {"xytext": (0, 3), "textcoords": "offset points", "fontsize": 7.5, "color": GREY}
        axes.annotate("full depth", (layers[0], full), **above)
        axes.set_xticks(layers if len(layers) <= 16 else layers[:: math.ceil(len(layers) / 12)])
        axes.set_xlabel("layers run (bars: 95 % interval)")
        axes.set_ylabel(_said(evaluation))
    return axes.figure


def exits(evaluation: Evaluation) -> Any:
    """Where rows leave under the chosen rules: one small picture for each."""
    with _styled() as Figure:
        chosen = _shown(evaluation)
        across = min(3, len(chosen))
        down = math.ceil(len(chosen) / across)
        figure = Figure(figsize=(0.4 + 2.3 * across, 0.5 + 1.45 * down), layout="constrained")
        grid = figure.subplots(down, across, sharex=True, sharey=True, squeeze=False)
        for axes, point in zip(grid.flat, chosen):
            shares = [100 * count / evaluation.rows for count in point["histogram"]]
            axes.bar(range(1, len(shares) + 1), shares, color=COLOURS[0], width=0.8)
            axes.axvline(point["layers"], color=COLOURS[1], linewidth=1.2)
            axes.set_title(_short(point["rule"]), loc="left")
            reached = f"{100 * point['score']:.1f} at {point['flops_speedup']:.2f}×"
            axes.set_title(reached, loc="right", color=GREY, fontsize=7.5)
            axes.grid(axis="x", visible=False)
            axes.set_xticks(range(1, len(shares) + 1, max(1, round(len(shares) / 6))))
        for index, axes in enumerate(grid.flat):
            axes.set_visible(index < len(chosen))
            if len(chosen) - across <= index < len(chosen):
                axes.tick_params(labelbottom=True)  # the lowest of its column
        figure.supxlabel("layers run (line: their mean)", fontsize=9)
        figure.supylabel("rows, %", fontsize=9)
    return figure


def elue(standing: Standing) -> Any:
    """One small picture for each task: the baseline's curve, and the points of every use."""
    with _styled() as Figure:
        names = [name for name in standing.baseline.tasks if any(name in its.tasks for its in standing.curves.values())]
        across = min(3, len(names))
        down = math.ceil(len(names) / across)
        figure = Figure(figsize=(0.4 + 2.4 * across, 0.6 + 1.9 * down), layout="constrained")
        grid = figure.subplots(down, across, squeeze=False)
        for axes, name in zip(grid.flat, names):
            _elue_panel(axes, standing, name)
        for axes in grid.flat[len(names) :]:
            axes.set_visible(False)
        drawn = {line.get_label(): line for axes in grid.flat for line in axes.lines}
        figure.legend(drawn.values(), drawn.keys(), loc="outside upper center", ncols=len(drawn))
        figure.supxlabel("MFLOPs per row", fontsize=9)
        figure.supylabel("score, %", fontsize=9)
    return figure


def _elue_panel(axes: Any, standing: Standing, name: str) -> None:
    base = standing.baseline
    drawn = {f"baseline: {base.encoder}, first layers alone": base}
    drawn |= {use.replace("_", " "): its for use, its in standing.curves.items() if its != base and name in its.tasks}
    indexes = {use.replace("_", " "): index for index, use in enumerate(standing.curves)}
    for label, its in drawn.items():
        points = sorted((at["flops"] / 1e6, 100 * at["score"]) for at in its.tasks[name].points)
        look = {"color": GREY, "marker": "."}
        if label in indexes:  # the same look in every panel
            look = {"color": COLOURS[indexes[label]], "marker": MARKERS[indexes[label]], "linestyle": "none"}
        axes.plot(*zip(*points), label=label, linewidth=1.2, markersize=3.5, **look)
    axes.set_title(name, loc="left")
    axes.set_title(base.tasks[name].metric.replace("_", " "), loc="right", color=GREY, fontsize=7.5)


def _shown(evaluation: Evaluation) -> list[dict[str, Any]]:
    """The chosen points that show something: a fixed layer has no histogram worth a picture."""
    return [point for point in evaluation.chosen if point["of"] != "at_layer"]


def save_speeds(found: dict[str, Any], path: str | Path) -> None:
    """What `paredown bench` found, in the format that the path's name says."""
    figure = speeds(found)
    with _styled():
        figure.savefig(path)


def speeds(found: dict[str, Any]) -> Any:
    """Texts per second of every way, slowest first, a panel for each batch size; the plan's ways stand out."""
    from matplotlib.ticker import LogLocator, NullFormatter

    panels = found["batches"]
    most = max(map(len, panels.values()))
    with _styled() as Figure:
        figure = Figure(figsize=(4.6 * len(panels), 0.9 + 0.28 * most), layout="constrained")
        for axes, (size, ways) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True):
            order = sorted(ways.items(), key=lambda way: way[1]["texts_per_second"])
            values = [facts["texts_per_second"] for _, facts in order]
            names = [name for name, _ in order]
            bars = axes.barh(names, values, color=list(map(_whose, names)), height=0.7)
            axes.bar_label(bars, [_speed(facts) for _, facts in order], padding=3, fontsize=7)
            axes.set(xscale="log", xlim=(min(values) / 2, 6 * max(values)), title=f"batches of {size}")
            axes.set_xlabel(f"texts per second, {found['time']} time")
            axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            axes.xaxis.set_major_formatter(lambda value, _: f"{value:,g}")
            axes.xaxis.set_minor_formatter(NullFormatter())
            axes.grid(axis="y", visible=False)
    return figure


def _whose(name: str) -> str:
    """The colour of a way: ours by a plan, ours at full depth, another runtime."""
    return COLOURS[1] if name.endswith(", plan") else COLOURS[0] if name.endswith(", full depth") else "#999999"


def _speed(facts: dict[str, Any]) -> str:
    same = f", {facts['agreement']:.1%} same" if "agreement" in facts else ""
    return f"{facts['texts_per_second']:,.0f} ({facts['times_transformers']:.2f}×{same})"


def can_draw() -> bool:
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return False
    return True


def _saved(draw: Callable[[], dict[str, Any]], folder: str | Path) -> list[Path]:
    if not can_draw():
        log.warning("no pictures were drawn: %s", NEEDED)
        return []
    paths = []
    for name, figure in draw().items():
        for ending, facts in (("png", {"Software": None}), ("svg", {"Date": None})):
            paths.append(Path(folder) / f"{name}.{ending}")
            with _styled():
                figure.savefig(paths[-1], metadata=facts)
    return paths


def _look(index: int, points: int) -> dict[str, Any]:
    """Colour, line and marker number `index`; markers on some ten points, not the same ones in every line."""
    every = max(1, points // 8)
    return {
        "color": COLOURS[index % len(COLOURS)],
        "linestyle": LINES[index % len(LINES)],
        "marker": MARKERS[index % len(MARKERS)],
        "markevery": (index % every, every),
    }


def _share(point: dict[str, Any]) -> float:
    return 1 / point["flops_speedup"]


def _short(rule: str) -> str:
    """A rule with few digits."""
    name, _, value = rule.partition(":")
    with suppress(ValueError):
        value = f"{float(value):.3g}"
    return f"{name.replace('_', ' ')} {value}".strip()


def _said(evaluation: Evaluation) -> str:
    return f"{evaluation.metric.replace('_', ' ')}, %"


@contextmanager
def _styled() -> Iterator[Any]:
    """matplotlib's Figure, in our style; no window and no global state is touched."""
    if not can_draw():
        raise ParedownError(NEEDED)
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        yield Figure
