"""From the results beside it: docs/early_exit.md, its pictures, and the tables of figures in the methods' cards.

python benchmarks/early_exit_report.py
"""

from __future__ import annotations

import json
import re
import statistics
import textwrap
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
RESULTS = [Path(__file__).with_name(f"early_exit_{name}.json") for name in ("sst2", "sst2_combined", "mrpc")]
PAGE = ROOT / "docs" / "early_exit.md"
TARGETS = ("2x", "2.48x", "3.16x", "4.33x")
RULES = ("entropy", "confidence", "margin", "patience", "vote", "ensemble", "learned")  # of equals the first is named
NAMES = {"sst-2": "SST-2", "mrpc": "MRPC"}

# Okabe and Ito's colours, which colour-blind readers can tell apart; markers say the same again.
ATTENTION = {
    "fastbert": ("#0072B2", "o"),
    "fastbert, longer exits": ("#56B4E9", "s"),
    "self_distill + labels": ("#009E73", "^"),
    "joint, attention heads": ("#E69F00", "D"),
    "joint, attention heads, then distilled": ("#D55E00", "v"),
    "self_distill, then joint": ("#CC79A7", "p"),
}
FIRST_TOKEN = {
    "deebert": ("#0072B2", "o"),
    "elasticbert": ("#009E73", "^"),
    "berxit": ("#E69F00", "D"),
    "pabee": ("#CC79A7", "s"),
}
METHODS = {**ATTENTION, **FIRST_TOKEN}
GROUPS = {"Attention heads": ATTENTION, "First-token heads (longer scale)": FIRST_TOKEN}
REFERENCE = {  # dev accuracy; an independent plain script with attention heads and self-distillation, 3 epochs
    "sst-2": {"full": 92.2, "3.16x": 92.1, "4.33x": 91.7},
    "mrpc": {"full": 83.8, "2.48x": 83.6},
}
TICKS = {  # of the column of attention heads and of the other; the scale ends a little outside
    "sst-2": ((83, 85, 87, 88, 89, 90, 91, 92, 93), (50, 60, 70, 80, 85, 88, 90, 91, 92, 93)),
    "mrpc": ((70, 72, 74, 76, 78, 80, 82, 84, 86), (68, 70, 72, 74, 76, 78, 80, 82, 84, 86)),
}

Found = dict[str, dict[str, dict[str, Any]]]  # task -> method -> its summary, with its runs


def read(paths: list[Path]) -> tuple[list[dict], Found]:
    files = [json.loads(path.read_text()) for path in paths]
    found: Found = {task: {} for task in NAMES}
    for results in files:
        for row in results["summary"]:
            runs = [run for run in results["runs"] if (run["task"], run["label"]) == (row["task"], row["method"])]
            found[row["task"]][row["method"]] = {**row, "runs": sorted(runs, key=lambda run: run["seed"])}
    return files, {task: {name: rows[name] for name in METHODS if name in rows} for task, rows in found.items()}


def best(row: dict, target: str) -> tuple[float, str]:
    """The best mean score over the rules, in percent, and the rule's name."""
    at = {rule: scores[target] for rule, scores in row["best_score_at_fewer_layers"].items()}
    reached = {rule: score for rule, score in at.items() if score is not None}
    top = max(reached.values())
    return 100 * top, next(rule for rule in RULES if reached.get(rule, 0.0) > top - 1e-9)


# The page


def page(files: list[dict], found: Found) -> str:
    facts = files[0]
    commands = "\n".join(results["command"] for results in files)
    lower = [100 * found["sst-2"][name]["per_layer"]["4"] for name in FIRST_TOKEN]
    upper = [100 * found["sst-2"][name]["per_layer"]["4"] for name in ATTENTION]
    pairs = [100 * found["mrpc"][name]["per_layer"]["4"] for name in FIRST_TOKEN]
    sst2, mrpc = rows(found, "sst-2"), rows(found, "mrpc")
    near = {task: [span(full(found, task, group)) for group in (FIRST_TOKEN, ATTENTION)] for task in NAMES}

    def noise(task: str) -> float:
        one, other = full(found, task, {"fastbert": None, "fastbert, longer exits": None})
        return abs(one - other)

    return f"""# Early exits, measured

Made by `python benchmarks/early_exit_report.py`; not to be edited. The results it reads were made by:

```
{commands}
```

## What was measured

* **Encoder**: {facts["encoder"]}, 12 layers, 384 wide, MIT licence. It is a sentence encoder tuned by contrast, not a
  raw pre-training checkpoint. Its training data are not known to us, so they may hold texts like these.
* **Machine**: one {facts["device"]}, {facts["precision"]}, torch {facts["torch"]},
  transformers {facts["transformers"]}.
* **Data**: GLUE's own dev sets, {sst2} rows of SST-2 and {mrpc} of MRPC. The score is accuracy, for MRPC too.
* **Chosen on dev**: the weights of the best epoch, the exit rule and its threshold, as the papers do. Scores at a
  speed-up are therefore a little flattered; for new rows, choose on some rows and judge on others.
* **Mean of 2 seeds**. Each seed has its own threshold. One standard error of an accuracy of 92 % on {sst2} rows is
  {error(92, sst2):.1f} points, of 85 % on {mrpc} rows {error(85, mrpc):.1f} points: most differences below are smaller.
* **Noise**: *fastbert* and *fastbert, longer exits* share first stage, settings and seeds, yet their full depth differs
  by {noise("sst-2"):.1f} points on SST-2 and {noise("mrpc"):.1f} on MRPC; probably GPU runs do not repeat exactly.
* **Settings**: an alias keeps its paper's head, loss and rule. Batch, learning rate and epochs are the benchmark's own
  and nearly the same for all (last table). They are not the papers' settings, and no paper's figure is repeated here.
* **Speed-ups count layers only**: 12 over the mean layers run. The attention head costs some 5 % of a layer of this
  narrow encoder, at every layer a row passes, and is not counted. With it, 3.16 times fewer layers are about 3 times
  fewer multiplications. First-token heads cost next to nothing. Wall-clock time was not measured here.

## What was found

* **Attention heads work from the first layers on.** After 4 of 12 layers they score {span(upper)} on SST-2.
* **First-token heads hardly learn in the lower layers of this encoder.** `deebert`, `elasticbert`, `pabee` and
  `berxit` read the first token through a pooler. After 4 layers they score {span(lower)} on SST-2 and {span(pairs)} on
  MRPC, where always saying the larger class gives 50.9 and 68.4. The likely reason: this encoder was tuned to answer by
  the mean of its tokens, so nothing taught its first token to hold the sentence early. On an encoder whose first token
  was pre-trained to answer, expect better. What to do: `head=attention`, as in `elasticbert:head=attention`;
  *joint, attention heads* is that with imitation added.
* **At full depth all are close.** The same four methods reach {near["sst-2"][0]} on SST-2 and {near["mrpc"][0]}
  on MRPC there; methods with attention heads reach {near["sst-2"][1]} and {near["mrpc"][1]}. On SST-2 the lowest
  is `joint` with attention heads: training all exits from the first step cost the last one about a point. Not so on
  MRPC.
* **Which to take.** On SST-2 `fastbert`, and `self_distill` followed by a short `joint`, lead at every speed-up. On
  MRPC `joint` with attention heads followed by `self_distill` leads at every speed-up. Two seeds and small
  dev sets cannot settle it.
* **Entropy, confidence and margin** order rows alike when there are two classes. Where they differ, only the
  thresholds that were tried differ. Patience, votes and the learned rule were seldom better. Thresholds lie densely at
  the cautious end and thinly where heads are unsure, so the fast points of the first-token methods may be too low.

{chr(10).join(section(found, task) for task in NAMES)}
## Settings

{table(["task", "method", "trained by, in turn"], settings(found))}
"""


def section(found: Found, task: str) -> str:
    name, layers = NAMES[task], list(next(iter(found[task].values()))["per_layer"])
    scores = [
        [
            method,
            heads(method),
            f"{100 * row['full_depth']:.1f}",
            *(cell(row, target) for target in TARGETS),
            seeds(row),
        ]
        for method, row in found[task].items()
    ]
    given = REFERENCE[task]
    scores.append(
        ["**independent reference**", "attention", f"{given['full']:.1f}"]
        + [f"{given[target]:.1f}" if target in given else "–" for target in TARGETS]
        + ["–"]
    )
    each = [[method, *(f"{100 * row['per_layer'][k]:.1f}" for k in layers)] for method, row in found[task].items()]
    return f"""## {name}

![{name}: score against layers run, and accuracy after each layer]({picture(task).name})

Above: mean over seeds of the best score with at most so many layers, by the **entropy** rule for every method, so that
no method gains from a choice among rules. Below: the accuracy of each head alone. The scale is that of the error's
logarithm, so that small differences at the top can be seen; it reaches further down in the right-hand column.

Best score over all rules at so many times fewer layers, with the rule's name; the last column has each seed's score at
full depth:

{table(["method", "heads", "full depth", *(t.replace("x", "×") for t in TARGETS), "seeds"], scores)}

{against(found, task)}

Accuracy after each layer:

{table(["method", *layers], each)}
"""


def against(found: Found, task: str) -> str:
    """Where ours is better or worse than the reference, in the reference's one decimal."""
    lines = []
    for target, given in REFERENCE[task].items():
        groups: dict[str, list[str]] = {"better": [], "equal": [], "worse": []}
        for method in ATTENTION:
            row = found[task][method]
            score = round(100 * row["full_depth"] if target == "full" else best(row, target)[0], 1)
            side = "equal" if score == given else "better" if score > given else "worse"
            groups[side].append(f"*{method}*" + (f" ({score - given:+.1f})" if score != given else ""))
        said = "; ".join(f"{side}: {', '.join(methods)}" for side, methods in groups.items() if methods)
        where = "At full depth" if target == "full" else f"At {target.replace('x', '×')}"
        lines.append(f"* {where} the reference has {given:.1f}; {said}.")
    ours = "3 too" if task == "sst-2" else "8, which may explain a part of their lead"
    return f"""The independent reference is a plain script, not ours and not in this repository, with attention heads
and self-distillation, trained for 3 epochs; how many seeds it ran is not known. Our full-depth stages had {ours}.
Our methods with attention heads against it:

{chr(10).join(lines)}"""


def settings(found: Found) -> list[list[str]]:
    return [
        [NAMES[task], method, ", then ".join(f"`{text}`" for text in row["runs"][0]["methods"])]
        for task, methods in found.items()
        for method, row in methods.items()
    ]


def filled(text: str, mark: str = "") -> str:
    """A paragraph or list item, however its text is broken into lines."""
    words = " ".join(text.split())
    return textwrap.fill(words, 120, initial_indent=mark, subsequent_indent=" " * len(mark), break_on_hyphens=False)


def table(head: list[str], lines: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, ["---"] * len(head), *lines])


def heads(method: str) -> str:
    return "attention" if method in ATTENTION else "first token"


def cell(row: dict, target: str) -> str:
    score, rule = best(row, target)
    return f"{score:.1f} {rule}"


def seeds(row: dict) -> str:
    deepest = max(row["per_layer"], key=int)
    return ", ".join(f"{100 * run['per_layer'][deepest]:.1f}" for run in row["runs"])


def full(found: Found, task: str, group: dict) -> list[float]:
    return [100 * found[task][method]["full_depth"] for method in group]


def rows(found: Found, task: str) -> int:
    return next(iter(found[task].values()))["runs"][0]["rows"]


def span(scores: list[float]) -> str:
    low, high = f"{min(scores):.1f}", f"{max(scores):.1f}"
    return low if low == high else f"{low} to {high}"


def error(score: float, number: int) -> float:
    """One standard error of an accuracy, in points."""
    return (score * (100 - score) / number) ** 0.5


# The cards: each has a place `<!-- figures: method; method -->` … `<!-- end -->`

PLACE = re.compile(r"(<!-- figures: (.*?) -->\n).*?(<!-- end -->)", re.DOTALL)


def card(text: str, found: Found) -> str:
    """A card with its table of figures brought up to date."""
    return PLACE.sub(lambda place: place[1] + figures(place[2].split("; "), found) + "\n" + place[3], text)


def figures(methods: list[str], found: Found) -> str:
    lines = [
        [NAMES[task], method, f"{100 * found[task][method]['full_depth']:.1f}"]
        + [f"{best(found[task][method], target)[0]:.1f}" for target in TARGETS]
        for task in NAMES
        for method in methods
    ]
    return table(["dev accuracy", "run", "full depth", *(t.replace("x", "×") for t in TARGETS)], lines)


# The pictures


def picture(task: str) -> Path:
    return PAGE.with_name(f"early_exit_{NAMES[task].lower().replace('-', '')}.png")


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
        for place, (method, (colour, marker)) in enumerate(group.items()):
            row = found[task][method]
            look = {"color": colour, "marker": marker, "linewidth": 1.6, "markersize": 5.5, "markeredgecolor": "white"}
            scores = [frontier(row, budget) for budget in grid]
            # Markers at other places for every method, so that lines that coincide can still be told apart.
            above.plot(grid, scores, **look, markeredgewidth=0.6, markevery=(9 * place, 55), label=method)
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


def main() -> None:
    files, found = read(RESULTS)
    PAGE.write_text(page(files, found))
    for path in sorted((ROOT / "paredown" / "methods").glob("*/README.md")):
        path.write_text(card(path.read_text(), found))
    for task in NAMES:
        draw(found, task)
    print(f"written: {PAGE}, its pictures, and the figures of the cards")


if __name__ == "__main__":
    main()
