"""What pre-training with an exit after every layer does: slots of docs/depth.md and of the method's card, and their
picture, from the results of benchmarks.elastic_pretrain.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from typing import Any

from benchmarks.pages import DOCS, ROOT, Document, bullets, committed, error, put, span, spoken, table

PICTURE = DOCS / "depth_pretraining.png"
CARD = ROOT / "paredown" / "methods" / "elastic_pretrain" / "README.md"
LONG, SHORT = "elastic_pretrain", "elastic_pretrain_short"
NAMES = {"sst-2": "SST-2", "mrpc": "MRPC"}
CHANCE = {"sst-2": 50.9, "mrpc": 68.4}  # dev accuracy of always predicting the larger class
STARTS = ("without", "with")
WORDS = 30522  # in the encoder's vocabulary
HELD = 1280  # rows of held-out text
CLEAR = 0.5  # points that a layer must change by to be named

Scores = dict[int, float]  # layers run -> accuracy in percent


def documents() -> Iterator[Document]:
    long, short = committed(LONG), committed(SHORT)
    slots = {
        "exits": layers(long, range(1, 13)),
        "pretraining": bullets(findings(long, short)),
        "first layers": table(["", "without", "with", "difference"], first_layers(long)),
        "held-out text": held_out(long["pretraining"]),
        "pretraining command": f"`{long['command']}`",
    }
    yield DOCS / "depth.md", lambda text: put(text, **slots)
    yield CARD, lambda text: put(text, exits=layers(long, (1, 3, 4, 6, 8, 12)))


# Results


def each_seed(found: dict[str, Any], task: str, start: str, use: str = "dynamic") -> list[Scores]:
    runs = [run for run in found["runs"] if (run["task"], run["start"], run["use"]) == (task, start, use)]
    return [
        {int(layer): 100 * score for layer, score in run["per_layer"].items()}
        for run in sorted(runs, key=lambda run: run["seed"])
    ]


def mean(found: dict[str, Any], task: str, start: str) -> Scores:
    each = each_seed(found, task, start)
    return {layer: statistics.mean(one[layer] for one in each) for layer in each[0]}


# Tables


def layers(found: dict[str, Any], shown: Any) -> str:
    lines = [
        [f"{NAMES[task]}, {start}", *(f"{mean(found, task, start)[layer]:.1f}" for layer in shown)]
        for task in NAMES
        for start in STARTS
    ]
    return table(["dev accuracy after layer", *map(str, shown)], lines)


def first_layers(found: dict[str, Any]) -> list[list[str]]:
    lines = []
    for task in NAMES:
        for use in sorted({run["use"] for run in found["runs"] if run["depth"]}):
            seeds = [[next(iter(one.values())) for one in each_seed(found, task, start, use)] for start in STARTS]
            cells = [f"{statistics.mean(one):.1f} ({', '.join(f'{score:.1f}' for score in one)})" for one in seeds]
            change = statistics.mean(seeds[1]) - statistics.mean(seeds[0])
            lines.append([f"{NAMES[task]}, {use.removeprefix('static, ')}", *cells, f"{change:+.1f}"])
    return lines


def held_out(facts: dict[str, Any]) -> str:
    kinds = (("loss of hidden words", "mlm", 1, 2), ("order told right, %", "sop_accuracy", 100, 1))
    lines = [
        [f"{name}, {when}", *(f"{scale * entry[key]:.{digits}f}" for entry in facts[when].values())]
        for name, key, scale, digits in kinds
        for when in ("before", "after")
    ]
    return table(["layer", *map(str, range(1, 13))], lines)


# Sentences


def findings(long: dict[str, Any], short: dict[str, Any]) -> list[str]:
    facts = long["pretraining"]
    before, after = (list(facts[when].values()) for when in ("before", "after"))
    accuracies = [100 * entry["sop_accuracy"] for entry in after]
    seeds = len({run["seed"] for run in long["runs"]})
    return [
        f"""**What was run**: {facts["epochs"]:g} epochs over 14.0 M tokens of English Wikipedia, {facts["rows"]:,}
        rows, {facts["steps"]:,} steps of 256 rows at {facts["lr"]:g}, in {facts["seconds"]:.0f} s on a GPU shared with
        some 15 other runs. That is tiny beside ElasticBERT's pre-training, which took 64 GPUs.""",
        f"""**Hidden words**: the loss fell at every exit, to {after[0]["mlm"]:.1f} after the first layer and
        {after[-1]["mlm"]:.1f} after the last. Before it was {span([entry["mlm"] for entry in before])}: the heads for
        words begin anew, and know less than to give all words the same chance (ln {WORDS:,} is
        {math.log(WORDS):.1f}).""",
        f"""**Sentence order** is told right in {span(accuracies[6:])} % of the pairs after the last six layers, in
        {span(accuracies[:6])} % after the first six; guessing gives 50 with a standard error of
        {error(50, HELD):.1f}.""",
        *(moved(long, task) for task in NAMES),
        half_as_long(long, short),
        f"""**So** it taught the first token of some lower layers to answer, at a cost at the top, and the first layers
        alone gained nothing reliable. {seeds} seeds, whose best epoch was chosen on the same dev rows, settle
        nothing.""",
    ]


def moved(found: dict[str, Any], task: str) -> str:
    """Which exits gained and lost by pre-training."""
    without, after = (mean(found, task, start) for start in STARTS)
    change = {layer: after[layer] - without[layer] for layer in without}
    idle = [layer for layer in change if max(without[layer], after[layer]) < CHANCE[task] + 0.1]
    gained = [
        f"{change[layer]:+.1f} after {layer} layers ({without[layer]:.1f} to {after[layer]:.1f})"
        for layer in change
        if change[layer] > CLEAR
    ]
    lost = [layer for layer in change if change[layer] < -CLEAR]
    text = f"**{NAMES[task]}, exits after every layer**: {spoken(gained) if gained else 'no layer gains'}"
    if lost:
        text += f"; layers {spoken(lost)} lose {span([-change[layer] for layer in lost])}"
    idlers = f". Layers {spoken(idle)} stay at {CHANCE[task]}, the larger class, either way."
    return text + (idlers if idle else ".")


def half_as_long(long: dict[str, Any], short: dict[str, Any]) -> str:
    facts = short["pretraining"]
    changes = []
    for task in NAMES:
        one, other = (mean(found, task, "with") for found in (short, long))
        changes += [
            f"{NAMES[task]} after {layer} layers {one[layer]:.1f} (now {other[layer]:.1f})"
            for layer in one
            if abs(one[layer] - other[layer]) > 2
        ]
    return f"""**{facts["epochs"]:g} epochs** ({facts["steps"]:,} steps, in another call: `{SHORT}.json`) left the loss
        of hidden words at {list(facts["after"].values())[-1]["mlm"]:.1f}, yet gave {spoken(changes)}: the longer run
        did not do more for early layers."""


# The picture

LOOKS = {"color": "#0072B2", "marker": "o"}, {"color": "#D55E00", "marker": "s"}
LINE = {"linewidth": 1.8, "markersize": 6, "markeredgecolor": "white", "markeredgewidth": 0.7}
GUESSING = {"color": "0.35", "linewidth": 1.2, "linestyle": ":"}


def pictures() -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "axes.axisbelow": True})
    found = committed(LONG)
    figure, axes = plt.subplots(1, 3, figsize=(12, 4.2), layout="constrained")
    for axis, task in zip(axes, NAMES):
        for start, look in zip(STARTS, LOOKS, strict=True):
            scores = mean(found, task, start)
            axis.plot(list(scores), list(scores.values()), **look, **LINE, label=f"{start} pre-training")
            for one in each_seed(found, task, start):
                axis.plot(list(one), list(one.values()), color=look["color"], linewidth=0.7, alpha=0.6)
        axis.axhline(CHANCE[task], **GUESSING, label="larger class")
        axis.set(xlabel="layer whose exit answers", ylabel="dev accuracy, %")
        axis.set_title(NAMES[task], fontweight="bold", fontsize=10.5)
    last = axes[-1]
    for when, look in zip(("before", "after"), LOOKS, strict=True):
        losses = {int(layer): entry["mlm"] for layer, entry in found["pretraining"][when].items()}
        last.plot(list(losses), list(losses.values()), **look, **LINE, label=f"{when} pre-training")
    last.axhline(math.log(WORDS), **GUESSING, label="guessing")
    last.legend(loc="center right", frameon=False)
    last.set_ylim(0, None)
    last.set(xlabel="layer whose exit guesses", ylabel="loss of hidden words, nats")
    last.set_title("held-out text", fontweight="bold", fontsize=10.5)
    for axis in axes:
        axis.set_xticks(range(1, 13))
        axis.grid(color="0.9", linewidth=0.8)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    figure.savefig(PICTURE, dpi=160, metadata={"Software": None})
    plt.close(figure)
