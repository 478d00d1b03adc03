"""From the results beside it: docs/depth.md, its pictures, and the figures in two methods' cards.

python -m benchmarks.depth_report
"""

from __future__ import annotations

import math
import re
import statistics
from pathlib import Path

from benchmarks.depth_pictures import draw
from benchmarks.depth_results import (
    BEFORE,
    CHANCE,
    NAMES,
    PAPER,
    RESULTS,
    WORDS,
    Scores,
    depths,
    differences,
    each_seed,
    kept,
    macro,
    medians,
    of_seeds,
    pair,
    read,
    scores,
    seeds_of,
)
from benchmarks.early_exit_report import error, filled, span, table
from benchmarks.fastbert_paper_report import spoken

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "depth.md"
PICTURES = [PAGE.with_name(f"depth_{name}.png") for name in ("theseus", "pretraining")]
CARDS = [ROOT / "paredown" / "methods" / name / "README.md" for name in ("theseus", "elastic_pretrain")]
HELD = 1280  # rows of held-out text
CLEAR = 0.5  # points that a layer must change by to be named


# The page


def page(theseus: dict, elastic: dict, short: dict) -> str:
    found = medians(theseus)
    seeds = len({run["seed"] for run in theseus["runs"]})
    return f"""# Fewer layers, measured

Made by `python -m benchmarks.depth_report`; not to be edited. The results it reads were made by:

```
{theseus["command"]}
{elastic["command"]}
```

{earlier(theseus, elastic)}
Two ways to a model that needs fewer layers: `theseus`, which trains fewer layers to take the places of all, and
`elastic_pretrain`, which pre-trains an encoder to answer after every layer.

## What was measured

{conditions(theseus, elastic)}

## Theseus: twelve layers into {spoken(depths(found))}

{theseus_findings(theseus, found)}

![Dev score of each task against layers]({PICTURES[0].name})

Dev scores, median of {seeds} seeds; thin marks are the seeds, the dashed line is the predecessor with all 12 layers.

{table(["", *NAMES.values(), "macro", "kept, %", "macro without STS-B", "kept, %"], theseus_lines(found))}

Each seed:

{table(["", *NAMES.values()], seed_lines(theseus, found))}

### Beside the paper

{beside(found)}

### What was tried before

One seed on the small tasks, in trials whose results are not kept here. They chose settings of Theseus, and were judged
on the same dev sets, which flatters it a little; the fine-tuned first layers took their predecessor's settings as is.

* Learning rate of the replacing: 1, 2 and 4 times the predecessor's. Twice was best.
* Successors that begin as the first layers were better than ones that begin as one layer of each module
  (`start=spread`), by some 5 points on CoLA, and than the last layers, by some 20.
* A rate that reaches 1 only after 0.9 of the replacing steps, or begins at 0.6, made no clear difference.

## Pre-training with an exit after every layer

{elastic_findings(elastic, short)}

![Dev accuracy after each layer with and without pre-training, and the loss of hidden words]({PICTURES[1].name})

Dev accuracy of every exit of one fine-tuned model, mean of {seeds_of(elastic)} seeds; thin lines are the seeds, the
dotted line is always saying the larger class. To the right, the loss on held-out text before and after; the dotted line
is guessing.

Exits after every layer:

{table(["layer", *(str(k) for k in range(1, 13))], layer_lines(elastic))}

The first layers alone, with the seeds:

{table(["", "without", "with", "difference"], static_lines(elastic))}

Held-out text, before and after:

{table(["layer", *(str(k) for k in range(1, 13))], loss_lines(elastic["pretraining"]))}

## Settings

Rows are cut at 128 tokens.

{table(["", "task", "rows of train, dev", "trained by"], settings(theseus, elastic))}
"""


def earlier(theseus: dict, elastic: dict) -> str:
    """Calls before the last one, which add to the same file."""
    said = []
    if "--layers" in theseus["command"]:
        said.append("""the first had made the other tasks and depths, all else alike, in the same file; STS-B's
            predecessors were made anew by this one, its 6 layers began from those before (86.7, 87.0, 87.0)""")
    if "--text" not in elastic["command"]:
        said.append("the second had pre-trained, with `--text wiki_clean.txt`")
    return filled(f"In a call before, {'; '.join(said)}.") + "\n" if said else ""


def conditions(theseus: dict, elastic: dict) -> str:
    rows = {run["task"]: run["rows"][1] for run in theseus["runs"]}
    usual = {"cola": 40, "mrpc": 86, "rte": 60, "sst-2": 91}
    errors = [
        f"{error(usual[task], rows[task]):.1f} points on the {rows[task]} rows of {NAMES[task]}"
        for task in ("rte", "mrpc", "sst-2")
    ]
    lines = [
        f"""**Encoder**: {theseus["encoder"]}, 12 layers, 384 wide. It is a sentence encoder tuned by contrast, not
        BERT-base, and comes without a pooler and without a head for words. Its training data are not known to us, so
        they may hold texts like these.""",
        f"""**Machine**: one {theseus["device"]}, {theseus["precision"]} in training, torch {theseus["torch"]},
        transformers {theseus["transformers"]}. Up to 16 runs shared it, so times are no measure of speed.""",
        """**Scores**: GLUE's own dev sets. For Theseus as in its paper: Matthews correlation (CoLA), mean of accuracy
        and F1 (MRPC), mean of Pearson and Spearman (STS-B), else accuracy. For pre-training accuracy throughout.""",
        """**Chosen on dev**: the weights of the best epoch of a stage, for all alike. Scores are therefore a little
        flattered.""",
        f"""**Small dev sets**: one standard error of such a score, for the choice of rows alone, is {spoken(errors)}.
        Most differences below one or two points may be chance.""",
    ]
    return "\n".join(filled(line, "* ") for line in lines)


def theseus_findings(theseus: dict, found: Scores) -> str:
    deepest, *others = depths(found)
    lines = [advantage(found, deepest), bulk(found, deepest)]
    lines += [f"**{k} layers**: {gains(found, k)}" for k in others]
    lines += [small_sets(found), imitation(found, deepest)]
    lines.append("""**How much training each had**: the predecessor, the first layers alone and Theseus were trained for
        the same number of epochs each, Theseus four fifths of them replacing. But Theseus starts from the trained
        predecessor, so that counted from the encoder it has had twice as many; the first layers start from the
        encoder.""")
    return "\n".join(filled(line, "* ") for line in lines)


def advantage(found: Scores, layers: int) -> str:
    first, after = pair(found, layers)
    above = [task for task in NAMES if after[task] > found[BEFORE][task]]
    said = f"""**12 layers into {layers}** keep {kept(found, after):.1f} % of the predecessor's macro average
        ({macro(after):.1f} of {macro(found[BEFORE]):.1f}) and lie {macro(after) - macro(first):.1f} points above
        fine-tuning the first {layers} layers ({macro(first):.1f})."""
    if above:
        names = spoken([f"{NAMES[task]} ({after[task] - found[BEFORE][task]:+.1f})" for task in above])
        said += f""" On {names} they are above the predecessor itself; without {spoken([NAMES[t] for t in above])} they
            keep {kept(found, after, *above):.1f} %."""
    return said


def bulk(found: Scores, layers: int) -> str:
    first, after = pair(found, layers)
    return f"""**Where the gain comes from**: {differences(first, after)}. Without CoLA the macro averages are
        {macro(after, "cola"):.1f} and {macro(first, "cola"):.1f}, the predecessor's is
        {macro(found[BEFORE], "cola"):.1f}: with this encoder the gain of Theseus is CoLA's."""


def gains(found: Scores, layers: int) -> str:
    first, after = pair(found, layers)
    return f"""{kept(found, after):.1f} % kept ({macro(after):.1f}), {macro(after) - macro(first):.1f} points above the
        fine-tuned first {layers} ({macro(first):.1f}): {differences(first, after)}. Without STS-B
        {macro(after, "sts-b"):.1f} against {macro(first, "sts-b"):.1f}."""


def small_sets(found: Scores) -> str:
    few = depths(found)[-1]
    rte, mrpc = (span([one[task] for one in pair(found, few)]) for task in ("rte", "mrpc"))
    return f"""**With few layers little is learnt of pairs**: always giving the larger class scores 52.7 on RTE and
        74.8 on MRPC; {few} layers score {rte} and {mrpc}."""


def imitation(found: Scores, layers: int) -> str:
    plain, helped = found[f"theseus {layers}"], found[f"theseus {layers}, distilled"]
    first, taught = found[f"first {layers} layers"], found[f"first {layers} layers, distilled"]
    side = "better" if macro(helped) > macro(plain) else "not better"
    return f"""**Imitation added**: Theseus that imitates its predecessor too (`distill=1.0,temperature=2.0`) and trains
        everything at the end was {side}: {macro(helped):.1f} against {macro(plain):.1f}. The first layers that imitate
        the predecessor, half labels and half teacher, come to {macro(taught):.1f} from {macro(first):.1f}
        ({differences(first, taught)}). Both were run with {layers} layers only."""


def beside(found: Scores) -> str:
    theirs = {name: dict(zip([*NAMES, "macro"], row)) for name, row in PAPER.items()}
    share = {name: 100 * row["macro"] / theirs["BERT-base"]["macro"] for name, row in theirs.items()}
    lines = [
        [name, *(f"{score:.1f}" for score in (*row.values(), share[name], macro(row, "macro")))]
        for name, row in theirs.items()
    ]
    gain = theirs["theseus 6"]["macro"] - theirs["first 6 layers"]["macro"]
    first, after = pair(found, 6)
    said = f"""BERT-of-Theseus compressed BERT-base, which is twice as wide, with batches of 32 at 1e-5 or 2e-5 and
        schedules from a grid, and reports the median of 5 runs. With 6 layers it keeps {share["theseus 6"]:.1f} % of
        its macro average over 8 tasks and gains {gain:.1f} points over fine-tuning them. Here it is
        {kept(found, after):.1f} % and {macro(after) - macro(first):.1f} points, for another encoder, with other
        settings, over fewer tasks. Its figures:"""
    heading = ["paper, GLUE dev", *NAMES.values(), "macro of 8", "kept, %", "macro of these 5"]
    return f"{filled(said)}\n\n{table(heading, lines)}"


def elastic_findings(elastic: dict, short: dict) -> str:
    facts = elastic["pretraining"]
    before, after = ([entry for entry in facts[when].values()] for when in ("before", "after"))
    told = [100 * entry["sop_accuracy"] for entry in after]
    lower, orders = told[:6], told[6:]
    lines = [
        f"""**What was run**: {facts["epochs"]:g} epochs over 14.0 M tokens of English Wikipedia, {facts["rows"]:,}
        rows, {facts["steps"]:,} steps of 256 rows at {facts["lr"]:g}, in {facts["seconds"]:.0f} s on a GPU shared with
        some 15 other runs. That is tiny beside ElasticBERT's pre-training, which took 64 GPUs.""",
        f"""**Hidden words**: the loss fell at every exit, to {after[0]["mlm"]:.1f}
        after the first layer and {after[-1]["mlm"]:.1f} after the last. Before it was
        {span([entry["mlm"] for entry in before])}: the heads for words begin
        anew, and know less than to give all words the same chance (ln {WORDS:,} = {math.log(WORDS):.1f}).""",
        f"""**Sentence order** is told right in {span(orders)} % of the pairs after the last six layers, in
        {span(lower)} % after the first six; guessing gives 50 with a standard error of {error(50, HELD):.1f}.""",
        *(moved(elastic, task) for task in CHANCE),
        f"""**The first layers alone (static)**: no reliable gain.
        {"; ".join(f"{name} {change}" for name, _, _, change in static_lines(elastic))}.""",
        half_as_long(elastic, short),
        f"""**So** it taught the first token of some lower layers to answer, at a cost at the top. More text, rather
        than more epochs over this one, may be the next step; {seeds_of(elastic)} seeds settle nothing.""",
    ]
    return "\n".join(filled(line, "* ") for line in lines)


def half_as_long(elastic: dict, short: dict) -> str:
    facts = short["pretraining"]
    told = [100 * entry["sop_accuracy"] for entry in facts["after"].values()]
    changes = []
    for task in CHANCE:
        one, other = (scores(found, task, "with") for found in (short, elastic))
        changes += [
            f"{NAMES[task]} after {k} layers {one[k]:.1f} (now {other[k]:.1f})"
            for k in one
            if abs(one[k] - other[k]) > 2
        ]
    return f"""**{facts["epochs"]:g} epochs** ({facts["steps"]:,} steps, in another call: `{RESULTS[2].name}`)
        left the loss of hidden words at {list(facts["after"].values())[-1]["mlm"]:.1f} and sentence order at
        {span(told)} %, yet gave {spoken(changes)}: the longer run did not do more for early layers."""


def moved(elastic: dict, task: str) -> str:
    """Which exits gained and lost by pre-training."""
    without, after = (scores(elastic, task, start) for start in ("without", "with"))
    change = {k: after[k] - without[k] for k in without}
    idle = [k for k in change if max(without[k], after[k]) < CHANCE[task] + 0.1]
    gained = [
        f"{change[k]:+.1f} after {k} layers ({without[k]:.1f} to {after[k]:.1f})" for k in change if change[k] > CLEAR
    ]
    lost = [k for k in change if change[k] < -CLEAR]
    said = f"**{NAMES[task]}, exits after every layer**: {spoken(gained) if gained else 'no layer gains'}"
    if lost:
        said += f"; layers {runs_of(lost)} lose {span([-change[k] for k in lost])}"
    return said + f". Layers {runs_of(idle)} stay at {CHANCE[task]}, the larger class, either way." * bool(idle)


# Tables


def theseus_lines(found: Scores) -> list[list[str]]:
    return [
        [name, *(f"{row[task]:.1f}" for task in NAMES), f"{macro(row):.1f}", f"{kept(found, row):.1f}"]
        + [f"{macro(row, 'sts-b'):.1f}", f"{kept(found, row, 'sts-b'):.1f}"]
        for name, row in found.items()
    ]


def seed_lines(theseus: dict, found: Scores) -> list[list[str]]:
    return [
        [name, *(", ".join(f"{score:.1f}" for score in of_seeds(theseus, name, task)) for task in NAMES)]
        for name in found
    ]


def layer_lines(elastic: dict) -> list[list[str]]:
    return [
        [f"{NAMES[task]}, {start}", *(f"{score:.1f}" for score in scores(elastic, task, start).values())]
        for task in CHANCE
        for start in ("without", "with")
    ]


def static_lines(elastic: dict) -> list[list[str]]:
    lines = []
    for task in CHANCE:
        for use in sorted({run["use"] for run in elastic["runs"] if run["depth"]}):
            seeds = [each_seed(elastic, task, start, use) for start in ("without", "with")]
            without, after = ([next(iter(found.values())) for found in one] for one in seeds)
            cells = [f"{statistics.mean(one):.1f} ({', '.join(f'{s:.1f}' for s in one)})" for one in (without, after)]
            change = statistics.mean(after) - statistics.mean(without)
            lines.append([f"{NAMES[task]}, {use.removeprefix('static, ')}", *cells, f"{change:+.1f}"])
    return lines


def loss_lines(facts: dict) -> list[list[str]]:
    return [
        [f"{name}, {when}", *(f"{scale * entry[key]:.{digits}f}" for entry in facts[when].values())]
        for name, key, scale, digits in (
            ("loss of hidden words", "mlm", 1, 2),
            ("order told right, %", "sop_accuracy", 100, 1),
        )
        for when in ("before", "after")
    ]


def settings(theseus: dict, elastic: dict) -> list[list[str]]:
    """One line for each task of a benchmark and each use; what differs only in the number of layers is one."""
    lines = {}
    for run in sorted(theseus["runs"], key=lambda run: list(NAMES).index(run["task"])):
        if run["variant"] == BEFORE or run["variant"] == f"theseus {run['layers']}":
            use = "predecessor, first k layers" if run["variant"] == BEFORE else "theseus k"
            lines[use, run["task"]] = [run["rows"], re.sub(r"into=\d+", "into=k", run["method"])]
    for run in sorted(elastic["runs"], key=lambda run: (list(CHANCE).index(run["task"]), run["use"])):
        lines[f"pre-training, {run['use'].split(',')[0]}", run["task"]] = [run["rows"], run["method"]]
    return [
        [use, NAMES[task], ", ".join(f"{number:,}" for number in rows), f"`{method}`"]
        for (use, task), (rows, method) in lines.items()
    ]


def runs_of(layers: list[int]) -> str:
    """1, 2, 3, 7 as "1 to 3 and 7"."""
    groups: list[list[int]] = []
    for layer in layers:
        if groups and layer == groups[-1][-1] + 1:
            groups[-1].append(layer)
        else:
            groups.append([layer])
    parts = [[f"{one[0]} to {one[-1]}"] if len(one) > 2 else one for one in groups]
    return spoken([part for one in parts for part in one])


# The cards: each has a place `<!-- depth -->` … `<!-- end -->`

PLACE = re.compile(r"(<!-- depth -->\n).*?(<!-- end -->)", re.DOTALL)


def card(text: str, theseus: dict, elastic: dict) -> str:
    """A card with its table of figures brought up to date."""
    made = theseus_card if text.startswith("# theseus\n") else elastic_card
    return PLACE.sub(lambda place: place[1] + made(theseus, elastic) + "\n" + place[2], text)


def theseus_card(theseus: dict, elastic: dict) -> str:
    found = medians(theseus)
    lines = [line[:-1] for line in theseus_lines(found) if "distilled" not in line[0]]
    return table(["dev score", *NAMES.values(), "macro", "kept, %", "macro without STS-B"], lines)


def elastic_card(theseus: dict, elastic: dict) -> str:
    shown = (1, 3, 4, 6, 8, 12)
    lines = [
        [f"{NAMES[task]}, {start}", *(f"{scores(elastic, task, start)[k]:.1f}" for k in shown)]
        for task in CHANCE
        for start in ("without", "with")
    ]
    return table(["dev accuracy after layer", *map(str, shown)], lines)


def main() -> None:
    theseus, elastic, short = read(RESULTS)
    PAGE.write_text(page(theseus, elastic, short))
    for path in CARDS:
        path.write_text(card(path.read_text(), theseus, elastic))
    draw(theseus, elastic, PICTURES)
    print(f"written: {PAGE.relative_to(ROOT)}, {len(PICTURES)} pictures, the figures in {len(CARDS)} cards")


if __name__ == "__main__":
    main()
