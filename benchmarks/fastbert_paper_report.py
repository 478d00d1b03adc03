"""docs/fastbert_paper.md and its picture, from the results beside it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.pages import (
    DOCS,
    ROOT,
    Document,
    bullets,
    error,
    filled,
    how_made,
    machine,
    put,
    signed,
    span,
    spoken,
    table,
)

RESULTS = Path(__file__).with_name("fastbert_paper.json")
PAGE = DOCS / "fastbert_paper.md"
PICTURE = PAGE.with_suffix(".png")
CARD = ROOT / "paredown" / "methods" / "self_distill" / "README.md"
PRINTED = {"4.21x": "0.5", "7.23x": "0.8"}  # speed-ups of the paper, by its speed
MIDDLE = "0.5"  # the speed that the page's first sentences speak of
NAMES = {"book-review": "Douban book review", "imdb": "IMDb", "ag_news": "AG News"}
COLOURS = {"0.1": "#56B4E9", "0.5": "#0072B2", "0.8": "#E69F00"}  # Okabe and Ito's
NEAR = 1.0  # points below full depth that still count as near

Set = dict[str, Any]  # one set's summary, with its runs and what the paper says


def read(path: Path) -> tuple[dict, dict[str, Set]]:
    facts = json.loads(path.read_text())
    found = {}
    for name in NAMES:
        if name in facts["summary"]:
            runs = sorted((run for run in facts["runs"] if run["task"] == name), key=lambda run: run["seed"])
            encoder, paper = facts["encoders"][name], facts["paper"][name]
            found[name] = {**facts["summary"][name], "runs": runs, "encoder": encoder, "paper": paper}
    return facts, found


# The page


def page(facts: dict, found: dict[str, Set], picture: str) -> str:
    return f"""# FastBERT's benchmark, run again

{answer(found)}

{table(["set", "encoder", "full depth", *(f"speed {speed}" for speed in COLOURS)], overview(found))}

Test accuracy; in brackets how many times fewer FLOPs, by the paper's count. Speed is the threshold of the exit rule
`entropy`, as the paper calls it.

![Test accuracy against FLOPs speed-up, and where rows leave]({picture})

Above: test accuracy as the threshold rises, mean of the seeds; dots are the paper's speeds, stars what the paper
reports, the dashed line is our full depth. Below: the share of test rows that leave after each layer.

## What was found

{bullets([*(line for name, one in found.items() for line in findings(NAMES[name], one)), counts(found)])}

{chr(10).join(section(NAMES[name], one) for name, one in found.items())}
## Settings

{table(["set", "encoder", "longest row", "rows of train, dev, test", "trained by"], settings(found))}

{how_made([], [*of_all(facts, found), *of_sets(found)], now="'fastbert-*'")}
"""


def answer(found: dict[str, Set]) -> str:
    """What a reader came for: what FastBERT's middle speed costs, and how far that is from the paper."""
    costs = spoken(
        [
            f"""{signed(percent(one["speeds"][MIDDLE]) - percent(one["speeds"]["full"]))} points on {NAMES[name]} at
            {one["speeds"][MIDDLE]["paper_speedup"]:.2f} times fewer FLOPs"""
            for name, one in found.items()
        ]
    )
    apart = spoken(
        [
            f"""{side(percent(one["speeds"]["full"]) - one["paper"]["full"]["score"])} the paper on {NAMES[name]}"""
            for name, one in found.items()
            if one["paper"]
        ]
    )
    seeds = spoken(sorted({one["seeds"] for one in found.values()}))
    return filled(
        f"""The method `fastbert` at speed {MIDDLE} changes test accuracy by {costs}, against its own full depth. Full
        depth is {apart}; encoders and settings are not the paper's. All figures are of test rows, mean of {seeds}
        seeds; weights, and thresholds for a wanted speed-up, were chosen on dev rows."""
    )


def overview(found: dict[str, Set]) -> list[list[str]]:
    return [
        [NAMES[name], one["encoder"], f"{percent(one['speeds']['full']):.2f}"]
        + [f"{percent(one['speeds'][at]):.2f} ({one['speeds'][at]['paper_speedup']:.2f}×)" for at in COLOURS]
        for name, one in found.items()
    ]


def of_all(facts: dict, found: dict[str, Set]) -> list[str]:
    """What to know before comparing."""
    errors = spoken([precision(NAMES[name], one) for name, one in found.items()])
    bits = {"no": "32 bits"}.get(facts["precision"], facts["precision"])
    return [
        """**What was run**: the method `fastbert` (attention heads after every layer; fine-tune, freeze, let the heads
        imitate the last one) under FastBERT's exit rule `entropy`. Test accuracy, layers run and FLOPs at the paper's
        speeds stand beside the figures that the paper and its repository print.""",
        machine(facts, f"{bits} in training", "Wall-clock time was not measured."),
        """**Chosen on dev rows**: the weights of the best epoch and, where a speed-up is given, the threshold that
        reaches it. Nothing was chosen on test rows.""",
        f"""**Mean of {spoken(sorted({one["seeds"] for one in found.values()}))} seeds**. One standard error of an
        accuracy, for the choice of rows alone, is {errors}.""",
        """**FLOPs are counted in two ways.** *Paper's count*: as FastBERT's tool did it, linear maps alone, attention's
        products left out, every row padded to the longest. *Own count*: every matrix product, at each row's true
        length. Both count every head on the way, so a row that never leaves early costs a little more than the full
        model.""",
        """**Settings**: head, losses and rule are FastBERT's. The paper fine-tuned with batches of 32 at 2e-5 for up to
        3 epochs and trained its heads at 2e-4 for 5, of which its code's schedule leaves 3 at work; ours are in the
        last table.""",
    ]


def of_sets(found: dict[str, Set]) -> list[str]:
    """What concerns the sets that were run."""
    lines = []
    if "book-review" in found:
        lines.append(f"""**Encoder of {NAMES["book-review"]}**: {found["book-review"]["encoder"]}, a Chinese BERT-base
            that had been tuned to moderate content and was recovered from 8-bit weights; the paper's was a raw
            pre-trained BERT-base of the same size. The data set and its split are the paper's own.""")
    if english := [name for name in ("imdb", "ag_news") if name in found]:
        lines.append(f"""**Encoder of {spoken([NAMES[name] for name in english])}**: {found[english[0]]["encoder"]}, 12
            layers, 384 wide, a sentence encoder tuned by contrast; its training data are not known to us, so they may
            hold texts like these. The paper used BERT-base, whose layers do four times the work: accuracies are not
            like for like.""")
    if "imdb" in found:
        rows = found["imdb"]["runs"][0]["rows"]
        lines.append(f"**IMDb** is not in the paper. {rows['dev']:,} of its training rows served as dev rows.")
    if "ag_news" in found:
        run = found["ag_news"]["runs"][0]
        counts = sorted(run["train_labels"].values())
        lines.append(f"""**AG News**: a part of the training set, 28,073 of 120,000 rows, {run["rows"]["dev"]:,} of
            which served as dev rows; {counts[0]:,} to {counts[-1]:,} training rows of each class, as the whole set is
            balanced; some 8,000 of the 28,073 lack their title. Test is the official one. The paper trained on all
            rows, and its repository used the test set as dev; only those of its figures that the repository repeats
            are shown.""")
    return lines


def precision(name: str, one: Set) -> str:
    score, rows = percent(one["speeds"]["full"]), one["runs"][0]["rows"]["test"]
    return f"{error(score, rows):.1f} points on the {rows:,} test rows of {name}"


def findings(name: str, one: Set) -> list[str]:
    full = percent(one["speeds"]["full"])
    near = next(k for k in sorted(map(int, one["per_layer"])) if 100 * one["per_layer"][str(k)] >= full - NEAR)
    steps = "; ".join(
        f"speed {speed} gives {percent(point):.2f} ({signed(percent(point) - full)}) at {point['paper_speedup']:.2f}×"
        for speed, point in one["speeds"].items()
        if speed != "full"
    )
    seeds = ", ".join(f"{percent(run['speeds']['full']):.2f}" for run in one["runs"])
    lines = [
        f"""**{name}**: {full:.2f} at full depth (seeds: {seeds}); {steps} by the paper's count. The first head
        at most {NEAR:g} point below full depth is that of layer {near}."""
    ]
    if one["paper"]:
        lines.append(f"**{name} against the paper**: {against(one)}")
    return lines


def against(one: Set) -> str:
    """Full depth, then the losses at the paper's own speed-ups, then what its thresholds mean here."""
    full, theirs = percent(one["speeds"]["full"]), one["paper"]["full"]["score"]
    papers = {speed: paper for speed, paper in one["paper"].items() if speed != "full"}
    sentences = [f"full depth is {side(full - theirs)} ({full:.2f}, paper {theirs:.2f})"]
    for paper in papers.values():
        point = one["matched"][f"{paper['speedup']:g}x"]
        if point is None:
            sentences.append(f"{paper['speedup']:.2f}× is not reached")
            continue
        score = percent(point)
        sentences.append(
            f"""at {paper["speedup"]:.2f}× accuracy is {side(score - paper["score"])} ({score:.2f}, paper
            {paper["score"]:.2f}), and against full depth {signed(score - full)} where the paper has
            {signed(paper["score"] - theirs)}"""
        )
    ours = spoken([f"{one['speeds'][speed]['layers']:.2f}" for speed in papers])
    there = spoken([f"{paper['layers']:.2f}" for paper in papers.values()])
    sentences.append(
        f"a threshold is not a speed-up: at {spoken(list(papers))} rows run {ours} layers here and {there} there"
    )
    return "; ".join(sentences) + "."


def counts(found: dict[str, Set]) -> str:
    """How the two counts of FLOPs differ."""
    points = [point for one in found.values() for speed, point in one["speeds"].items() if speed != "full"]
    ratios = [100 * point["own_speedup"] / point["paper_speedup"] for point in points]
    lengths = [f"{one['runs'][0]['mean_tokens']:.0f} on {NAMES[name]}" for name, one in found.items()]
    return f"""**The two counts**: our own speed-ups are {span(ratios)} % of those by the paper's count.
        The mean test row, in tokens: {spoken(lengths)}."""


def section(name: str, one: Set) -> str:
    layers = sorted(map(int, one["per_layer"]))
    known = bool(one["paper"])
    speeds = ["speed", "accuracy", "layers", "FLOPs, paper's count", "FLOPs, own count"]
    speeds += ["paper: accuracy", "paper: layers", "paper: FLOPs"] * known
    targets = ["wanted", "thresholds", "reached on test", "accuracy", "against full depth"]
    targets += ["paper: accuracy", "paper: against full depth"] * known
    heads = [["accuracy of its head", *(f"{100 * one['per_layer'][str(k)]:.1f}" for k in layers)]]
    heads += [
        [f"leave there at speed {speed}, %", *(f"{100 * share:.1f}" for share in point["exits"])]
        for speed, point in one["speeds"].items()
        if speed != "full"
    ]
    return f"""## {name}

At the paper's speeds:

{table(speeds, by_speed(one))}

At the speed-ups that the paper reports for any of these sets, by its count; the threshold of each seed is the most
cautious that reaches it on dev:

{table(targets, by_target(one))}

Layer by layer:

{table(["layer", *map(str, layers)], heads)}
"""


def by_speed(one: Set) -> list[list[str]]:
    lines = []
    for speed, point in one["speeds"].items():
        cells = ["–"] * 3
        if paper := one["paper"].get(speed):
            cells = [f"{paper['score']:.2f}", f"{paper['layers']:.2f}", f"{paper['speedup']:.2f}×"]
        lines.append(
            ["full depth" if speed == "full" else speed, f"{percent(point):.2f}", f"{point['layers']:.2f}"]
            + [f"{point[count]:.2f}×" for count in ("paper_speedup", "own_speedup")]
            + cells * bool(one["paper"])
        )
    return lines


def by_target(one: Set) -> list[list[str]]:
    full, lines = percent(one["speeds"]["full"]), []
    known = {f"{paper['speedup']:g}x": paper["score"] for speed, paper in one["paper"].items() if speed != "full"}
    for target, point in one["matched"].items():
        ours, cells = ["not reached", "–", "–", "–"], ["–"] * 2
        if point is not None:
            thresholds = ", ".join(f"{run['matched'][target]['threshold']:.3g}" for run in one["runs"])
            score = percent(point)
            ours = [thresholds, f"{point['paper_speedup']:.2f}×", f"{score:.2f}", signed(score - full)]
        if target in known:
            cells = [f"{known[target]:.2f}", signed(known[target] - one["paper"]["full"]["score"])]
        lines.append([f"{float(target[:-1]):.2f}×", *ours] + cells * bool(one["paper"]))
    return lines


def settings(found: dict[str, Set]) -> list[list[str]]:
    lines = []
    for name, one in found.items():
        run = one["runs"][0]
        rows = ", ".join(f"{number:,}" for number in run["rows"].values())
        lines.append([NAMES[name], one["encoder"], f"{run['max_length']} tokens", rows, f"`{run['methods'][0]}`"])
    return lines


def percent(point: dict) -> float:
    return 100 * point["score"]


def side(difference: float) -> str:
    shown = round(difference, 2)
    return "equal" if shown == 0 else f"{abs(shown):.2f} {'above' if shown > 0 else 'below'}"


# The picture


def draw(found: dict[str, Set], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "axes.axisbelow": True})
    figure, axes = plt.subplots(2, len(found), figsize=(4.6 * len(found), 7.6), layout="constrained", squeeze=False)
    for column, (name, one) in enumerate(found.items()):
        above, below = axes[:, column]
        against_speedup(above, one)
        where_rows_leave(below, one)
        above.set_title(f"{NAMES[name]}\n{one['encoder']}, {one['runs'][0]['rows']['test']:,} test rows", fontsize=10.5)
    axes[0, 0].set_ylabel("test accuracy, %")
    axes[1, 0].set_ylabel("test rows that leave, %")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    figure.savefig(path, dpi=160, metadata={"Software": None})
    plt.close(figure)


def against_speedup(axis: Any, one: Set) -> None:
    points = sorted(one["curve"], key=lambda point: point["paper_speedup"])
    axis.plot(
        [point["paper_speedup"] for point in points], [percent(point) for point in points], color="0.35", linewidth=1.6
    )
    axis.axhline(percent(one["speeds"]["full"]), color="0.6", linewidth=1, linestyle="--", label="full depth")
    for speed, colour in COLOURS.items():
        point = one["speeds"][speed]
        axis.plot([point["paper_speedup"]], [percent(point)], "o", color=colour, markersize=8, label=f"speed {speed}")
    known = list(one["paper"].values())
    if known:
        star = {"marker": "*", "markersize": 13, "linestyle": "none", "color": "black", "markeredgecolor": "white"}
        axis.plot([at["speedup"] for at in known], [at["score"] for at in known], **star, zorder=5, label="paper")
    axis.set_xscale("log")
    times = (1, 1.5, 2, 3, 4, 6, 8, 12)
    axis.set_xticks(times, [f"{time:g}×" for time in times], minor=False)
    axis.set_xticks([], minor=True)
    axis.set_xlim(0.88, 13)
    axis.set_xlabel("FLOPs speed-up, paper's count")
    axis.grid(color="0.9", linewidth=0.8)


def where_rows_leave(axis: Any, one: Set) -> None:
    for index, (speed, colour) in enumerate(COLOURS.items()):
        shares = [100 * share for share in one["speeds"][speed]["exits"]]
        axis.bar([k + 0.27 * (index - 1) for k in range(1, len(shares) + 1)], shares, 0.27, color=colour)
    axis.set_xticks(range(1, len(one["per_layer"]) + 1))
    axis.set_xlabel("after layer")
    axis.grid(axis="y", color="0.9", linewidth=0.8)


def card(found: dict[str, Set]) -> str:
    """The set that is the paper's own, at full depth and at the speed-ups that the paper prints."""
    name = "book-review"
    one, paper = found[name], found[name]["paper"]
    points = {"at full depth": (one["speeds"]["full"], paper["full"])}
    points |= {f"at {at[:-1]}× fewer FLOPs": (one["matched"][at], paper[speed]) for at, speed in PRINTED.items()}
    said = [f"{percent(ours):.1f} {where} ({theirs['score']:.1f})" for where, (ours, theirs) in points.items()]
    return filled(
        f"""FastBERT's own benchmark, run again: on {NAMES[name]} `fastbert` has {spoken(said)}; in brackets [the
        paper's](../../../docs/fastbert_paper.md)."""
    )


def documents() -> Iterator[Document]:
    facts, found = read(RESULTS)
    yield PAGE, lambda _: page(facts, found, PICTURE.name)
    yield CARD, lambda text: put(text, speeds=card(found))


def pictures() -> None:
    draw(read(RESULTS)[1], PICTURE)
