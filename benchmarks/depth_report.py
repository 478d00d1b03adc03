"""docs/depth.md, its pictures, and the figures in two methods' cards, from the results beside it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from benchmarks.depth_findings import answer, beside, elastic_findings, static_lines, theseus_findings
from benchmarks.depth_pictures import draw
from benchmarks.depth_results import (
    BEFORE,
    CHANCE,
    NAMES,
    RESULTS,
    Scores,
    depths,
    kept,
    macro,
    medians,
    of_seeds,
    read,
    scores,
    seeds_of,
)
from benchmarks.pages import DOCS, ROOT, Document, error, how_made, machine, spoken, table

PAGE = DOCS / "depth.md"
PICTURES = [DOCS / f"depth_{name}.png" for name in ("theseus", "pretraining")]
CARDS = [ROOT / "paredown" / "methods" / name / "README.md" for name in ("module_replacing", "elastic_pretrain")]


# The page


def page(theseus: dict, elastic: dict, short: dict) -> str:
    return f"""# Fewer layers, measured

{answer(theseus, elastic)}

{of_theseus(theseus)}

{of_pretraining(elastic, short)}

## Settings

Rows are cut at 128 tokens.

{table(["", "task", "rows of train, dev", "trained by"], settings(theseus, elastic))}

{how_made([elastic], cautions(theseus, elastic), now="'theseus-*' 'depth-*'")}
"""


def of_theseus(theseus: dict) -> str:
    found = medians(theseus)
    seeds = len({run["seed"] for run in theseus["runs"]})
    return f"""## Theseus: twelve layers into {spoken(depths(found))}

`module_replacing` trains fewer layers to take the places of all: BERT-of-Theseus, with settings of ours, which are not
those of its alias `theseus`. Dev scores, median of {seeds} seeds:

{table(["", *NAMES.values(), "macro", "kept, %", "macro without STS-B", "kept, %"], theseus_lines(found))}

![Dev score of each task against layers]({PICTURES[0].name})

Thin marks are the seeds, the dashed line is the predecessor with all 12 layers.

{theseus_findings(theseus, found)}

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
* A rate that reaches 1 only after 0.9 of the replacing steps, or begins at 0.6, made no clear difference."""


def of_pretraining(elastic: dict, short: dict) -> str:
    return f"""## Pre-training with an exit after every layer

`elastic_pretrain` pre-trains an encoder to answer after every layer. Dev accuracy of every exit of one fine-tuned
model, with and without that pre-training, mean of {seeds_of(elastic)} seeds:

{table(["layer", *(str(k) for k in range(1, 13))], layer_lines(elastic))}

![Dev accuracy after each layer with and without pre-training, and the loss of hidden words]({PICTURES[1].name})

Thin lines are the seeds, the dotted line is always giving the larger class. To the right, the loss on held-out text
before and after; the dotted line is guessing.

{elastic_findings(elastic, short)}

The first layers alone, with the seeds:

{table(["", "without", "with", "difference"], static_lines(elastic))}

Held-out text, before and after:

{table(["layer", *(str(k) for k in range(1, 13))], loss_lines(elastic["pretraining"]))}"""


def cautions(theseus: dict, elastic: dict) -> list[str]:
    rows = {run["task"]: run["rows"][1] for run in theseus["runs"]}
    usual = {"cola": 40, "mrpc": 86, "rte": 60, "sst-2": 91}
    errors = [
        f"{error(usual[task], rows[task]):.1f} points on the {rows[task]} rows of {NAMES[task]}"
        for task in ("rte", "mrpc", "sst-2")
    ]
    return [
        f"""**Encoder**: {theseus["encoder"]}, 12 layers, 384 wide. It is a sentence encoder tuned by contrast, not
        BERT-base, and comes without a pooler and without a head for words. Its training data are not known to us, so
        they may hold texts like these.""",
        machine(
            theseus,
            f"{theseus['precision']} in training",
            "Up to 16 runs shared it, so times are no measure of speed.",
        ),
        """**Names**: when these runs were made, `module_replacing` was called `theseus`, which now is the alias with
        the published settings. The results carry the present name; the settings are those that were run.""",
        """**Scores**: GLUE's own dev sets. For Theseus as in its paper: Matthews correlation (CoLA), mean of accuracy
        and F1 (MRPC), mean of Pearson and Spearman (STS-B), else accuracy. For pre-training accuracy throughout.""",
        """**Chosen on dev rows**: the weights of the best epoch of a stage, for all alike. Scores are therefore a
        little flattered.""",
        f"""**Small dev sets**: one standard error of such a score, for the choice of rows alone, is {spoken(errors)}.
        Most differences below one or two points may be chance.""",
    ]


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


# The cards: each has a slot `<!-- depth -->` … `<!-- end -->`

SLOT = re.compile(r"(<!-- depth -->\n).*?(<!-- end -->)", re.DOTALL)


def card(text: str, theseus: dict, elastic: dict) -> str:
    """A card with its table of figures brought up to date."""
    made = theseus_card if text.startswith("# module_replacing\n") else elastic_card
    return SLOT.sub(lambda match: match[1] + made(theseus, elastic) + "\n" + match[2], text)


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


def documents() -> Iterator[Document]:
    theseus, elastic, short = read(RESULTS)
    yield PAGE, lambda _: page(theseus, elastic, short)
    for path in CARDS:
        yield path, lambda text: card(text, theseus, elastic)


def pictures() -> None:
    theseus, elastic, _ = read(RESULTS)
    draw(theseus, elastic, PICTURES)
