"""From the results beside it: docs/tokens.md, its picture, and the figures in the cards of the token methods.

python -m benchmarks.tokens_report
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.early_exit_report import ROOT, filled, table
from benchmarks.tokens import EXITS, PLAIN, best_exit, wanted

RESULTS = [Path(__file__).with_name(f"tokens{which}.json") for which in ("", "_mpnet")]
ON_CPU = Path(__file__).with_name("token_time.json")
PAGE, PICTURE = ROOT / "docs" / "tokens.md", ROOT / "docs" / "tokens.png"
NAMES = {"imdb": "IMDb", "20news": "20 Newsgroups", "squad": "SQuAD 1.1"}
TOKENS = ("trained with attention", "policy", "gate", "dense gate")
CHOSEN = TOKENS[1:]  # by selectors
BOTH = (*(f"{name}, then exits" for name in CHOSEN), *(f"exits, then {name}" for name in CHOSEN))
CARDS = {"token_gate": ("gate", "dense gate"), "token_policy": ("policy",)}
FINDINGS = ["", "what is saved", "asked of dev", "FLOPs, times fewer", "test", "difference", "on dev", "run and plan"]
LOSSES = {"tokens, untrained": 0.005, "tokens": 0.005, "exits": 0.01, "both": 0.01}
SPEEDS = {  # times fewer FLOPs that are asked for
    "imdb": {"tokens": 2.3, "exits": 2.3, "both": 6.0},
    "20news": {"tokens": 4.0, "exits": 4.0, "both": 6.0},
    "squad": {"tokens": 1.5, "both": 1.5},
}
COLOURS = {  # Okabe and Ito's, which colour-blind readers can tell apart; markers say the same again
    "attention": ("#999999", "x"),
    "fixed share by attention": ("#000000", "+"),
    "trained with attention": ("#E69F00", "v"),
    "policy": ("#0072B2", "o"),
    "gate": ("#CC79A7", "D"),
    "dense gate": ("#D55E00", "s"),
    "exits": ("#009E73", "^"),
}
ZOOM = {"imdb": (6, 13), "20news": (12, 13), "squad": (12, 3)}  # points below the whole model, times fewer FLOPs

Found = dict[tuple[str, str], dict[str, dict]]  # (encoder, task) -> label -> run
Chosen = tuple[str, dict] | None  # label and point


def read(paths: list[Path]) -> tuple[list[dict], Found]:
    files = [json.loads(path.read_text()) for path in paths]
    order = [(task, run["label"]) for task in NAMES for run in wanted(task, 1.0)]
    found: Found = {}
    for file in files:
        for run in sorted(file["runs"], key=lambda run: order.index((run["task"], run["label"]))):
            times = [entry for entry in file["times"] if same(entry, run)]
            run["times"] = times[0]["plans"] if times else []
            found.setdefault((file["encoder"], run["task"]), {})[run["label"]] = run
    return files, found


def same(one: dict, other: dict) -> bool:
    return all(one[name] == other[name] for name in ("task", "label", "seed"))


# Points


def end(run: dict, reduce: str | None = None) -> dict:
    """The point without exits of a reducer; by default of the run's first plan."""
    wanted = run["plans"][0] if reduce is None else reduce
    return next(point for point in run["points"] if point["reduce"] == wanted and point["exit"] is None)


def full(runs: dict[str, dict]) -> dict:
    """All tokens, all layers."""
    return end(runs[PLAIN])


def fastest(runs: dict[str, dict], labels: list[str], loss: float) -> Chosen:
    """What saves most of all that costs dev at most `loss` beside the model with all tokens and layers."""
    least = full(runs)["dev"]["score"] - loss
    able = [entry for entry in points(runs, labels) if entry[1]["dev"]["score"] >= least]
    return max(able, key=lambda entry: entry[1]["dev"]["flops_speedup"], default=None)


def best(runs: dict[str, dict], labels: list[str], speed: float) -> Chosen:
    """What scores best on dev of all that is at least so fast."""
    able = [entry for entry in points(runs, labels) if entry[1]["dev"]["flops_speedup"] >= speed]
    return max(able, key=lambda entry: entry[1]["dev"]["score"], default=None)


def points(runs: dict[str, dict], labels: list[str]) -> list[tuple[str, dict]]:
    return [(label, point) for label in labels for point in runs[label]["points"]]


def sorts(runs: dict[str, dict]) -> dict[str, list[str]]:
    """Labels of the runs, by what is saved."""
    tokens, both = ([label for name in names for label in called(runs, name)] for names in (TOKENS, BOTH))
    return {"tokens, untrained": [PLAIN], "tokens": tokens, "exits": [EXITS], "both": both}


def called(runs: dict[str, dict], name: str) -> list[str]:
    """Labels that are this name but for their number."""
    return [label for label in runs if re.sub(r"[ :][\d.]+x?", "", label) == name]


def loss_of(point: dict, runs: dict[str, dict], split: str = "test") -> float:
    return 100 * (point[split]["score"] - full(runs)[split]["score"])


def faster(runs: dict[str, dict], run: dict, point: dict, size: str) -> str:
    """Measured time of all tokens and layers over that of this point."""
    before = runs[PLAIN]["times"][0]["milliseconds"][size] if runs[PLAIN]["times"] else None
    for plan in run["times"]:
        if (plan["reduce"], plan["exit"]) == (point["reduce"], point["exit"]) and before:
            return f"{before / plan['milliseconds'][size]:.2f}x"
    return ""


# The page


def page(files: list[dict], found: Found) -> str:
    commands = "\n".join(file["command"] for file in files)
    facts = files[0]
    sections = "\n\n".join(section(*key, runs) for key, runs in found.items())
    return f"""# Fewer tokens, measured

Made by `python -m benchmarks.tokens_report`; not to be edited. The results it reads were made by:

```
{commands}
```

and the same with `--time`.

## What was measured

* **Encoders**: gte-small (12 layers, 384 wide) and mpnet-base (12 layers, 768 wide; it came through 8-bit integers,
  one scale a row, which moved its weights by about 1 %). Both are sentence encoders tuned by contrast; mpnet-base saw
  SQuAD in that tuning.
* **Machine**: one {facts["device"]}, training and times in bf16, scores in TF32; torch {facts["torch"]},
  transformers {facts["transformers"]}. One seed: differences of a few tenths may be chance.
* **Places**: gate and policy choose before the second and the middle layer, as TR-BERT does; a dense gate before every
  other layer.
* **Scores**: test accuracy on IMDb and 20 Newsgroups (by-date split, headers kept), rows cut at 512 tokens; official F1
  on the whole dev set of SQuAD 1.1, windows of 384 tokens. SQuAD has {squad_rows(found)} questions to learn from.
* **Chosen on dev**: rows held out of train; all points are in the committed results. But these recipes are a second
  round. A first one, not kept, had been seen on test too: fewer epochs, selectors that learned more slowly, exits from
  the start (IMDb: policy 93.5 at 2.5x, gate 88.5 at 2.8x; SQuAD: gate 77.8 at 1.5x). And the first table below was
  added when the results were known; the second had been planned.
* **FLOPs**: counted for every row and its own tokens in each layer, heads, selectors and the watching of attention
  included, beside the stock model. **Time**: `answer()` of the reference runtime, alone on the machine, rows of like
  length together; all tokens and layers over this plan, before dropped tokens were put back faster. Below 1 it is
  slower; presumably the GPU waits to be told what to run, which was not looked into. On a CPU, below, tokens are time.
  Where none is given, none was measured.{left_out(files, found)}

## What was found

Of the plans that are at least so many times cheaper on dev, the one that is best there; and what it does on test:

{table(FINDINGS, findings(found, fast))}

The fastest plan that costs at most so many points on dev:

{table(FINDINGS, findings(found, cheap))}

![Score against FLOPs]({PICTURE.name})

Test score against FLOPs, times fewer; the line is the model with all tokens and layers. Gates and policy are drawn at
every threshold tried, exits at every rule; dashed where exits came after tokens, dotted where before.

{sections}

### On a CPU

{on_cpu()}

## Settings

{table(["", "run", "starts from", "trained by"], settings(found))}
"""


def squad_rows(found: Found) -> str:
    return f"{found['gte-small', 'squad'][PLAIN]['rows']['train']:,}"


def left_out(files: list[dict], found: Found) -> str:
    """Runs that were asked for by name and are not there."""
    labels = {label for runs in found.values() for label in runs}
    asked = {label for file in files for label in re.findall(r'"([^"]+)"', file["command"])}
    missing = [f"`{label}`" for label in sorted(asked - labels)]
    said = f"""**Not there**: {", ".join(missing)}. In the first call `dense gate 3.5x` ended with an error of cuDNN
        while the GPU's memory was nearly full; the second was stopped before its other runs were done, and its one
        result was put into the first one's file."""
    return "\n" + filled(said, "* ") if missing else ""


def findings(found: Found, chosen: Callable[[str, dict], Iterator[tuple[str, str, Chosen]]]) -> list[list[str]]:
    """Choices made on dev, as they do on test."""
    lines = []
    for (encoder, task), runs in found.items():
        whole = f"{100 * full(runs)['test']['score']:.2f}"
        lines.append([f"**{NAMES[task]}, {encoder}**", "all tokens and layers", "", "1.00x", whole, "", "", ""])
        for what, asked, choice in chosen(task, runs):
            cells = ["nothing", "", "", "", ""]
            if choice is not None:
                label, point = choice
                cells = [f"{point['test']['flops_speedup']:.2f}x", f"{100 * point['test']['score']:.2f}"]
                cells += [f"{loss_of(point, runs, split):+.2f}" for split in ("test", "dev")]
                cells.append(f"{label}: {plan_text(point)}")
            lines.append(["", what, asked, *cells])
    return lines


def fast(task: str, runs: dict[str, dict]) -> Iterator[tuple[str, str, Chosen]]:
    for what, speed in SPEEDS[task].items():
        yield what, f"{speed:g}x", best(runs, sorts(runs)[what], speed)


def cheap(task: str, runs: dict[str, dict]) -> Iterator[tuple[str, str, Chosen]]:
    for what, loss in LOSSES.items():
        yield what, f"{-100 * loss:g}", fastest(runs, sorts(runs)[what], loss)


def plan_text(point: dict) -> str:
    parts = [part for part in (point["exit"], point["reduce"]) if part not in (None, "none")]
    return "`" + " x ".join(parts) + "`" if parts else "`full`"


def section(encoder: str, task: str, runs: dict[str, dict]) -> str:
    head = ["", "plan", "FLOPs, times fewer", "test", "difference", "time, batch 128", "batch 1"]
    return f"### {NAMES[task]}, {encoder}\n\n{table(head, lines(runs))}"


def lines(runs: dict[str, dict]) -> list[list[str]]:
    found = []
    for label, run in runs.items():
        if label == PLAIN:
            shown = run["points"]
        else:
            shown = [end(run, reduce) for reduce in run["plans"]]
        if run["points"][-1]["exit"] and (rule := best_exit(run, 0.01)):
            shown = [*shown, rule]
        for point in shown:
            cells = [f"{point['test']['flops_speedup']:.2f}x", f"{100 * point['test']['score']:.2f}"]
            cells += [f"{loss_of(point, runs):+.2f}", *(faster(runs, run, point, size) for size in ("128", "1"))]
            found.append([label, plan_text(point), *cells])
    return found


def on_cpu() -> str:
    facts = json.loads(ON_CPU.read_text())
    whole = facts["points"][0]["milliseconds"]
    rows = [
        [f"`{point['reduce']}`", f"{point['flops_speedup']:.2f}x", *(f"{whole[n] / t:.2f}x" for n, t in spent.items())]
        for point in facts["points"]
        for spent in [point["milliseconds"]]
    ]
    head = ["plan", "FLOPs, times fewer", *(f"time, batch {size}" for size in whole)]
    said = f"""Process time of one thread, {facts["encoder"]} on {facts["rows"]} reviews of IMDb with
        {facts["tokens"]:.0f} tokens on average, by `{facts["command"]}` with torch {facts["torch"]}. How many tokens go
        counts, not which: nothing was trained."""
    return f"{filled(said)}\n\n{table(head, rows)}"


def settings(found: Found) -> list[list[str]]:
    return [
        [f"{NAMES[task]}, {encoder}", label, run["start"] or "the encoder", spelled(run["methods"])]
        for (encoder, task), runs in found.items()
        for label, run in runs.items()
    ]


def spelled(methods: str | list[str]) -> str:
    return ", then ".join(f"`{method}`" for method in ([methods] if isinstance(methods, str) else methods))


# Cards


def card(text: str, names: tuple[str, ...], found: Found) -> str:
    """A method's card with its figures."""
    rows = []
    for (encoder, task), runs in found.items():
        for label in (label for name in names for label in called(runs, name)):
            point = end(runs[label])
            cells = [f"{point['test']['flops_speedup']:.2f}x", f"{100 * full(runs)['test']['score']:.2f}"]
            cells += [f"{100 * point['test']['score']:.2f}", faster(runs, runs[label], point, "128")]
            rows.append([f"{NAMES[task]}, {encoder}", label, *cells])
    head = ["", "token-layers", "FLOPs, times fewer", "all tokens", "these tokens", "time, batch 128"]
    new = "Test scores of one seed; more, and exits on top, in [the whole comparison](../../../docs/tokens.md).\n\n"
    return re.sub(
        r"(## Our figures\n\n).*?(\n\n## )", lambda m: f"{m[1]}{new}{table(head, rows)}{m[2]}", text, flags=re.S
    )


# The picture


def draw(found: Found) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "axes.axisbelow": True})
    figure, axes = plt.subplots(1, len(found), figsize=(4.2 * len(found), 4.6), layout="constrained")
    for axis, ((encoder, task), runs) in zip(axes, found.items()):
        panel(axis, task, runs)
        axis.set_title(f"{NAMES[task]}, {encoder}")
    axes[0].set_ylabel("test score (accuracy or F1), %")
    handles, labels = axes[0].get_legend_handles_labels()
    named = dict(zip(labels, handles))  # each name once, however many lines it has
    figure.legend(named.values(), named, loc="outside lower center", ncols=6, frameon=False)
    figure.savefig(PICTURE, dpi=140, metadata={"Software": None})


def panel(axis: Any, task: str, runs: dict[str, dict]) -> None:
    top = 100 * full(runs)["test"]["score"]
    untrained: dict[str, list[dict]] = {"attention": [], "fixed share by attention": []}
    for point in runs[PLAIN]["points"]:
        kind = "attention" if point["reduce"].startswith("attention") else "fixed share by attention"
        untrained[kind].append(point)
    series = list(untrained.items())
    for name in (*TOKENS, EXITS, *BOTH):
        series += [(name, points) for label in called(runs, name) for points in by_reducer(runs[label])]
    axis.axhline(top, color="0.6", linewidth=1)
    for name, points in series:
        colour, marker = COLOURS[name.removesuffix(", then exits").removeprefix("exits, then ")]
        ordered = sorted(points, key=lambda point: point["test"]["flops_speedup"])
        xs = [point["test"]["flops_speedup"] for point in ordered]
        ys = [100 * point["test"]["score"] for point in ordered]
        look = {"color": colour, "marker": marker, "markersize": 5, "linewidth": 1.3, "markevery": 1 + len(xs) // 12}
        if name in BOTH:
            look |= {"linestyle": ":" if name.startswith(EXITS) else "--", "markerfacecolor": "white"}
        axis.plot(xs, ys, label=name, **look)
    axis.set_xscale("log")
    axis.set_xticks([1, 2, 3, 4, 6, 8, 12], [f"{x}x" for x in (1, 2, 3, 4, 6, 8, 12)])
    axis.minorticks_off()
    depth, right = ZOOM[task]
    axis.set_xlim(0.95, right)
    axis.set_ylim(top - depth, top + depth / 8)
    axis.set_xlabel("FLOPs, times fewer")
    axis.grid(color="0.9", linewidth=0.8)


def by_reducer(run: dict) -> list[list[dict]]:
    """A line for every threshold where there are exits; else one for all thresholds."""
    points = [point for point in run["points"] if not point["reduce"].startswith("fixed_share")]
    if not any(point["exit"] for point in points):
        return [points]
    return [[point for point in points if point["reduce"] == reducer] for reducer in run["plans"]]


def main() -> None:
    files, found = read(RESULTS)
    PAGE.write_text(page(files, found))
    for method, names in CARDS.items():
        path = ROOT / "paredown" / "methods" / method / "README.md"
        path.write_text(card(path.read_text(), names, found))
    draw(found)
    print(f"written: {PAGE}, its picture, and the figures of the cards")


if __name__ == "__main__":
    main()
