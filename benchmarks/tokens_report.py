"""From the results beside it: docs/tokens.md, its picture, and the figures in the cards of the token methods.

python -m benchmarks.tokens_report
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.early_exit_report import ROOT, filled, table
from benchmarks.tokens import EXITS, PLAIN, best_exit
from benchmarks.tokens_results import (
    BOTH,
    FORMER,
    NAMES,
    TOKENS,
    Chosen,
    Found,
    Runs,
    at,
    best,
    called,
    end,
    fastest,
    full,
    loss_of,
    read,
    sorts,
)

RESULTS = [Path(__file__).with_name(f"tokens{which}.json") for which in ("", "_seeds", "_gates", "_order", "_mpnet")]
ON_CPU = Path(__file__).with_name("token_time.json")
PAGE, PICTURE = ROOT / "docs" / "tokens.md", ROOT / "docs" / "tokens.png"
CARDS = {"token_gate": ("gate",), "token_policy": ("policy", "early policy")}
SEEDS = (1, 2, 3)
FINDINGS = ["", "what is saved", "asked of dev", *(f"seed {seed}" for seed in SEEDS), "mean"]
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
    "early policy": ("#D55E00", "s"),
    "gate": ("#CC79A7", "D"),
    "exits": ("#009E73", "^"),
}
ZOOM = {"imdb": (6, 13), "20news": (12, 13), "squad": (12, 3)}  # points below the whole model, times fewer FLOPs

Rule = tuple[str, Callable[[Runs, list[str]], Chosen]]  # what is asked of dev, and how runs of some labels answer it


# The page


def faster(runs: Runs, run: dict, point: dict, size: str) -> str:
    """Measured time of all tokens and layers over that of this point."""
    before = runs[PLAIN]["times"][0]["milliseconds"][size] if runs[PLAIN]["times"] else None
    for plan in run["times"]:
        if (plan["reduce"], plan["exit"]) == (point["reduce"], point["exit"]) and before:
            return f"{before / plan['milliseconds'][size]:.2f}x"
    return ""


def page(files: list[dict], found: Found) -> str:
    commands = "\n".join(file["command"] for file in files)
    facts = files[0]
    sections = "\n\n".join(section(*key, runs) for key, runs in found.items())
    return f"""# Fewer tokens, measured

Made by `python -m benchmarks.tokens_report`; not to be edited. The results it reads were made by:

```
{commands}
```

and, for seed 1, the same with `--time`.

## What was measured

* **Encoders**: gte-small (12 layers, 384 wide) and mpnet-base (12 layers, 768 wide; it came through 8-bit integers,
  one scale a row, which moved its weights by about 1 %). Both are sentence encoders tuned by contrast; mpnet-base saw
  SQuAD in that tuning.
* **Machine**: one {facts["device"]}, training and times in bf16, scores in TF32; torch {facts["torch"]},
  transformers {facts["transformers"]}. One to three seeds: differences of a few tenths may be chance.
* **Places**: gate and policy choose before the second and the middle layer, as TR-BERT does; an early policy before the
  first too, so that rows that leave early have seen few tokens.
* **Former gates**: as they were when seed 1 was run, with a target for each choice and nothing left to chance, and
  "dense" before every other layer. This version has one target for all choices, and chance that fades.
* **Scores**: test accuracy on IMDb and 20 Newsgroups (by-date split, headers kept), rows cut at 512 tokens; official F1
  on the whole dev set of SQuAD 1.1, windows of 384 tokens. SQuAD has {squad_rows(found)} questions to learn from.
* **Chosen on dev**: rows held out of train; all points are in the committed results. But these recipes are a second
  round. A first one, not kept, had been seen on test too: fewer epochs, selectors that learned more slowly, exits from
  the start (IMDb: policy 93.5 at 2.5x, gate 88.5 at 2.8x; SQuAD: gate 77.8 at 1.5x). And the first table below was
  added when the results of seed 1 were known; the second had been planned. Seeds 2 and 3 came after both;
  early policies and the present gates after short trials judged on dev. Not every seed has every run, so a mean may be
  one of different runs.
* **FLOPs**: counted for every row and its own tokens in each layer, heads, selectors and the watching of attention
  included, beside the stock model. **Time**: `answer()` of the reference runtime, alone on the machine, rows of like
  length together; all tokens and layers over this plan, before dropped tokens were put back faster. Below 1 it is
  slower; presumably the GPU waits to be told what to run, which was not looked into. On a CPU, below, tokens are time.
  Where none is given, none was measured.{left_out(files)}

## What was found

Of the plans that are at least so many times cheaper on dev, the one that is best there; and what it does on test:

{table(FINDINGS, findings(found, fast))}

The fastest plan that costs at most so many points on dev:

{table(FINDINGS, findings(found, cheap))}

![Score against FLOPs]({PICTURE.name})

Test score against FLOPs, times fewer, beside the model of the same seed with all tokens and layers. Gates and policy
are drawn at every threshold tried, exits at every rule; dashed where exits came after tokens, dotted where before.
Former gates are left out.

{sections}

### On a CPU

{on_cpu()}

## Settings

{table(["", "run", "starts from", "trained by"], settings(found))}
"""


def squad_rows(found: Found) -> str:
    return f"{found['gte-small', 'squad'][FORMER][PLAIN]['rows']['train']:,}"


def left_out(files: list[dict]) -> str:
    """Runs that were asked for by name and are not there."""
    there = {(run["label"], run["seed"]) for file in files for run in file["runs"]}
    asked = {
        (label, int(seed))
        for file in files
        for seed in (re.findall(r"--seeds ([\d ]+)", file["command"]) or ["1"])[0].split()
        for label in re.findall(r'"([^"]+)"', file["command"])
    }
    missing = [f"`{label}` (seed {seed})" for label, seed in sorted(asked - there)]
    said = f"""**Not there**: {", ".join(missing)}. Of the first call, one ended with an error of cuDNN while the GPU's
        memory was nearly full; of seed 2, it was stopped before it was done; the rest are of a second call for seed 1,
        which was stopped and whose one result was put into the first one's file."""
    return "\n" + filled(said, "* ") if missing else ""


def findings(found: Found, rule: Callable[[str, str], Rule | None]) -> list[list[str]]:
    """Choices made on dev, as they do on test."""
    lines = []
    for (encoder, task), seeds in found.items():
        whole = [f"{100 * full(seeds[seed])['test']['score']:.2f}" if seed in seeds else "" for seed in SEEDS]
        lines.append([f"**{NAMES[task]}, {encoder}**", "all tokens and layers", "", *whole, ""])
        for what in LOSSES:
            its = rule(task, what)
            able = {seed: runs for seed, runs in seeds.items() if sorts(runs)[what]}
            if its is None or not able:
                continue
            asked, choose = its
            choices = {seed: choose(runs, sorts(runs)[what]) for seed, runs in able.items()}
            cells = [said(choices[seed], seeds[seed]) if seed in able else "" for seed in SEEDS]
            made = [(seeds[seed], choice[1]) for seed, choice in choices.items() if choice is not None]
            lost, speed = [loss_of(point, runs) for runs, point in made], [at(point) for _, point in made]
            mean = f"{fmean(lost):+.2f} at {fmean(speed):.2f}x" if len(made) > 1 else ""
            lines.append(["", what, asked, *cells, mean])
    return lines


def said(choice: Chosen, runs: Runs) -> str:
    if choice is None:
        return "nothing"
    label, point = choice
    figures = f"{loss_of(point, runs):+.2f} at {at(point):.2f}x (dev {loss_of(point, runs, 'dev'):+.2f})"
    return f"{figures}<br>{label}: {plan_text(point)}"


def fast(task: str, what: str) -> Rule | None:
    speed = SPEEDS[task].get(what)
    return None if speed is None else (f"{speed:g}x", partial(best, speed=speed))


def cheap(task: str, what: str) -> Rule:
    return f"{-100 * LOSSES[what]:g}", partial(fastest, loss=LOSSES[what])


def plan_text(point: dict) -> str:
    parts = [part for part in (point["exit"], point["reduce"]) if part not in (None, "none")]
    return "`" + " x ".join(parts) + "`" if parts else "`full`"


def section(encoder: str, task: str, seeds: dict[int, Runs]) -> str:
    head = ["", "seed", "plan", "FLOPs, times fewer", "test", "difference", "time, batch 128", "batch 1"]
    rows = [line for seed, runs in seeds.items() for line in lines(seed, runs)]
    return f"### {NAMES[task]}, {encoder}\n\n{table(head, rows)}"


def lines(seed: int, runs: Runs) -> list[list[str]]:
    found = []
    for label, run in runs.items():
        if label == PLAIN:
            shown = run["points"]
        else:
            shown = [end(run, reduce) for reduce in run["plans"]]
        if run["points"][-1]["exit"] and (rule := best_exit(run, 0.01)):
            shown = [*shown, rule]
        for point in shown:
            cells = [f"{at(point):.2f}x", f"{100 * point['test']['score']:.2f}", f"{loss_of(point, runs):+.2f}"]
            cells += [faster(runs, run, point, size) for size in ("128", "1")]
            found.append([label, str(seed), plan_text(point), *cells])
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
    rows = [
        (f"{NAMES[task]}, {encoder}", label, run["start"] or "the encoder", spelled(run["methods"]))
        for (encoder, task), seeds in found.items()
        for runs in seeds.values()
        for label, run in runs.items()
    ]
    return [list(row) for row in dict.fromkeys(rows)]  # seeds share them


def spelled(methods: str | list[str]) -> str:
    return ", then ".join(f"`{method}`" for method in ([methods] if isinstance(methods, str) else methods))


# Cards


def card(text: str, names: tuple[str, ...], found: Found) -> str:
    """A method's card with its figures."""
    rows = []
    for (encoder, task), seeds in found.items():
        labels = dict.fromkeys(label for name in names for runs in seeds.values() for label in called(runs, name))
        for label in labels:
            its = {seed: runs for seed, runs in seeds.items() if label in runs}
            points = [(full(runs)["test"]["score"], end(runs[label])) for runs in its.values()]
            cells = [f"{fmean(at(point) for _, point in points):.2f}x", f"{100 * fmean(top for top, _ in points):.2f}"]
            cells.append(f"{100 * fmean(point['test']['score'] for _, point in points):.2f}")
            cells.append(next(faster(runs, runs[label], end(runs[label]), "128") for runs in its.values()))
            rows.append([f"{NAMES[task]}, {encoder}", label, ", ".join(map(str, its)), *cells])
    head = ["", "token-layers", "seeds", "FLOPs, times fewer", "all tokens", "these tokens", "time, batch 128"]
    new = "Test scores; more, and exits on top, in [the whole comparison](../../../docs/tokens.md).\n\n"
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
    for axis, ((encoder, task), seeds) in zip(axes, found.items()):
        for runs in seeds.values():
            draw_runs(axis, runs)
        scale(axis, *ZOOM[task])
        axis.set_title(f"{NAMES[task]}, {encoder}")
    axes[0].set_ylabel("test score beside all tokens and layers, points")
    known = [axis.get_legend_handles_labels() for axis in axes]
    named = {label: handle for handles, labels in known for label, handle in zip(labels, handles)}  # each name once
    figure.legend(named.values(), named, loc="outside lower center", ncols=6, frameon=False)
    figure.savefig(PICTURE, dpi=140, metadata={"Software": None})


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
