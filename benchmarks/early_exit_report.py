"""docs/early_exit.md, its pictures, and the tables of figures in the methods' cards, from the results beside it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from benchmarks.early_exit_pictures import draw, picture
from benchmarks.early_exit_results import (
    ATTENTION,
    FIRST_TOKEN,
    NAMES,
    REFERENCE,
    RESULTS,
    TARGETS,
    Found,
    best,
    full,
    read,
    rows,
)
from benchmarks.pages import DOCS, ROOT, Document, bullets, error, filled, how_made, machine, span, table

PAGE = DOCS / "early_exit.md"
CUT = "3.16x"  # the speed-up that the page's first sentences speak of

# The page


def page(files: list[dict], found: Found) -> str:
    return f"""# Early exits, measured

{answer(files[0], found)}

{chr(10).join(scores(found, task) for task in NAMES)}
## What was found

{bullets(findings(found))}

{chr(10).join(details(found, task) for task in NAMES)}
## Settings

{table(["task", "method", "trained by, in turn"], settings(found))}

{how_made([], cautions(files[0], found), now="exits-sst-2 exits-mrpc")}
"""


def answer(facts: dict, found: Found) -> str:
    """What a reader came for, in a few sentences."""
    tops = []
    for task, name in NAMES.items():
        ours = {method: best(found[task][method], CUT)[0] for method in ATTENTION}
        method = max(ours, key=lambda one: ours[one])
        rival = max(best(found[task][one], CUT)[0] for one in FIRST_TOKEN)
        tops.append(
            f"""On {name} the best method with attention heads, *{method}*, scores {ours[method]:.1f} with
            {CUT[:-1]} times fewer layers and {100 * found[task][method]["full_depth"]:.1f} with all; the best with
            first-token heads scores {rival:.1f} with as few."""
        )
    return filled(
        f"""{" ".join(tops)} These are dev accuracies of {facts["encoder"]}, mean of {seeds_run(found)} seeds; weights,
        exit rule and threshold were chosen on the same dev rows, which flatters them."""
    )


def findings(found: Found) -> list[str]:
    lower, pairs = ([100 * found[task][name]["per_layer"]["4"] for name in FIRST_TOKEN] for task in NAMES)
    upper = [100 * found["sst-2"][name]["per_layer"]["4"] for name in ATTENTION]
    near = {task: [span(full(found, task, group)) for group in (FIRST_TOKEN, ATTENTION)] for task in NAMES}
    return [
        f"""**Which method to take.** On SST-2 `fastbert`, and `self_distill` followed by a short `joint`, lead at every
        speed-up. On MRPC `joint` with attention heads followed by `self_distill` leads at every speed-up.
        {seeds_run(found)} seeds and small dev sets cannot settle it.""",
        f"**Attention heads work from the first layers on.** After 4 of 12 layers they score {span(upper)} on SST-2.",
        f"""**First-token heads hardly learn in the lower layers of this encoder.** `deebert`, `elasticbert`, `pabee`
        and `berxit` read the first token through a pooler. After 4 layers they score {span(lower)} on SST-2 and
        {span(pairs)} on MRPC, where always giving the larger class scores 50.9 and 68.4. The likely reason: this
        encoder was tuned to answer by the mean of its tokens, so nothing taught its first token to hold the sentence
        early. On an encoder whose first token was pre-trained to answer, expect better. Use `head=attention`, as in
        `elasticbert:head=attention`; *joint, attention heads* is that with imitation added.""",
        f"""**At full depth all methods are close.** The same four reach {near["sst-2"][0]} on SST-2 and
        {near["mrpc"][0]} on MRPC; methods with attention heads reach {near["sst-2"][1]} and {near["mrpc"][1]}. On SST-2
        the lowest is `joint` with attention heads: training all exits from the first step cost the last one about a
        point. This did not happen on MRPC.""",
        """**Entropy, confidence and margin** order rows alike when there are two classes. Where they differ, only the
        thresholds that were tried differ. Patience, votes and the learned rule were seldom better. Thresholds are dense
        at the cautious end and sparse where heads are unsure, so the fast points of the first-token methods may be too
        low.""",
    ]


def cautions(facts: dict, found: Found) -> list[str]:
    sst2, mrpc = rows(found, "sst-2"), rows(found, "mrpc")
    noise = {task: full(found, task, {"fastbert": None, "fastbert, longer exits": None}) for task in NAMES}
    apart = {task: abs(one - other) for task, (one, other) in noise.items()}
    return [
        f"""**Encoder**: {facts["encoder"]}, 12 layers, 384 wide, MIT licence. It is a sentence encoder tuned by
        contrast, not a raw pre-training checkpoint. Its training data are not known to us, so they may hold texts
        like these.""",
        machine(facts, facts["precision"]),
        f"**Data**: GLUE's own dev sets, {sst2} rows of SST-2 and {mrpc} of MRPC. The score is accuracy, for MRPC too.",
        """**Chosen on dev rows**: the weights of the best epoch, the exit rule and its threshold, as the papers do.
        Scores at a speed-up are therefore a little flattered; for new rows, choose on some rows and judge on
        others.""",
        f"""**Mean of {seeds_run(found)} seeds**. Each seed has its own threshold. One standard error of an accuracy of
        92 % on {sst2} rows is {error(92, sst2):.1f} points, of 85 % on {mrpc} rows {error(85, mrpc):.1f} points: most
        differences are smaller.""",
        f"""**Noise**: *fastbert* and *fastbert, longer exits* share first stage, settings and seeds, yet their full
        depth differs by {apart["sst-2"]:.1f} points on SST-2 and {apart["mrpc"]:.1f} on MRPC; probably GPU runs do not
        repeat exactly.""",
        """**Settings**: an alias keeps its paper's head, loss and rule. Batch, learning rate and epochs are the
        benchmark's own and nearly the same for all (table above). They are not the papers' settings, and no paper's
        figure is repeated here.""",
        """**Speed-ups count layers only**: 12 over the mean layers run. The attention head costs some 5 % of a layer of
        this narrow encoder, at every layer a row passes, and is not counted. With it, 3.16 times fewer layers are about
        3 times fewer multiplications. First-token heads cost next to nothing. Wall-clock time was not measured
        here.""",
    ]


def scores(found: Found, task: str) -> str:
    name, given = NAMES[task], REFERENCE[task]
    lines = [
        [
            method,
            heads(method),
            f"{100 * row['full_depth']:.1f}",
            *(cell(row, target) for target in TARGETS),
            seeds(row),
        ]
        for method, row in found[task].items()
    ]
    lines.append(
        ["**independent reference**", "attention", f"{given['full']:.1f}"]
        + [f"{given[target]:.1f}" if target in given else "–" for target in TARGETS]
        + ["–"]
    )
    return f"""## {name}

Dev accuracy, the best over all rules at so many times fewer layers, with the rule's name; the last column has each
seed's score at full depth:

{table(["method", "heads", "full depth", *(t.replace("x", "×") for t in TARGETS), "seeds"], lines)}

![{name}: score against layers run, and accuracy after each layer]({picture(task).name})

Above: mean over seeds of the best score with at most so many layers, by the **entropy** rule for every method, so that
no method gains from a choice among rules. Below: the accuracy of each head alone. The scale is that of the error's
logarithm, so that small differences at the top can be seen; it reaches further down in the right-hand column.
"""


def details(found: Found, task: str) -> str:
    layers = list(next(iter(found[task].values()))["per_layer"])
    each = [[method, *(f"{100 * row['per_layer'][k]:.1f}" for k in layers)] for method, row in found[task].items()]
    return f"""## {NAMES[task]}, in detail

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
        text = "; ".join(f"{side}: {', '.join(methods)}" for side, methods in groups.items() if methods)
        where = "At full depth" if target == "full" else f"At {target.replace('x', '×')}"
        lines.append(f"* {where} the reference has {given:.1f}; {text}.")
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


def seeds_run(found: Found) -> int:
    return len(next(iter(found["sst-2"].values()))["runs"])


def heads(method: str) -> str:
    return "attention" if method in ATTENTION else "first token"


def cell(row: dict, target: str) -> str:
    score, rule = best(row, target)
    return f"{score:.1f} {rule}"


def seeds(row: dict) -> str:
    deepest = max(row["per_layer"], key=int)
    return ", ".join(f"{100 * run['per_layer'][deepest]:.1f}" for run in row["runs"])


# The cards: each has a slot `<!-- figures: method; method -->` … `<!-- end -->`

SLOT = re.compile(r"(<!-- figures: (.*?) -->\n).*?(<!-- end -->)", re.DOTALL)


def card(text: str, found: Found) -> str:
    """A card with its table of figures brought up to date."""
    return SLOT.sub(lambda match: match[1] + figures(match[2].split("; "), found) + "\n" + match[3], text)


def figures(methods: list[str], found: Found) -> str:
    lines = [
        [NAMES[task], method, f"{100 * found[task][method]['full_depth']:.1f}"]
        + [f"{best(found[task][method], target)[0]:.1f}" for target in TARGETS]
        for task in NAMES
        for method in methods
    ]
    return table(["dev accuracy", "run", "full depth", *(t.replace("x", "×") for t in TARGETS)], lines)


def documents() -> Iterator[Document]:
    files, found = read(RESULTS)
    yield PAGE, lambda _: page(files, found)
    for path in sorted((ROOT / "paredown" / "methods").glob("*/README.md")):
        yield path, lambda text: card(text, found)


def pictures() -> None:
    _, found = read(RESULTS)
    for task in NAMES:
        draw(found, task)
