"""What the results of fewer layers and of benchmarks.elastic_pretrain say, as the sentences of docs/depth.md."""

from __future__ import annotations

import math
import statistics

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
    pair,
    scores,
    seeds_of,
)
from benchmarks.pages import bullets, error, filled, span, spoken, table

HELD = 1280  # rows of held-out text
CLEAR = 0.5  # points that a layer must change by to be named


def answer(theseus: dict, elastic: dict) -> str:
    """What a reader came for: what fewer layers cost, and what a pre-training with exits does."""
    found = medians(theseus)
    deepest = depths(found)[0]
    pairs = [pair(found, k) for k in depths(found)]
    ours = spoken([f"{macro(after):.1f} with {k} layers" for k, (_, after) in zip(depths(found), pairs, strict=True)])
    plain = spoken([f"{macro(first):.1f}" for first, _ in pairs])
    without = [f"{macro(row, 'cola'):.1f}" for row in (pairs[0][1], pairs[0][0])]
    changes = spoken([f"on {NAMES[task]} by {extremes(elastic, task)}" for task in CHANCE])
    return filled(
        f"""All 12 layers score {macro(found[BEFORE]):.1f} on average over {len(NAMES)} GLUE tasks; `module_replacing`
        scores {ours}, fine-tuning as many first layers {plain}. Without CoLA the {deepest} layers score {without[0]} by
        `module_replacing` and {without[1]} fine-tuned. A short pre-training with an exit after every layer,
        `elastic_pretrain`, changes the exits {changes}. All are dev scores of {theseus["encoder"]}, median of
        {len({run["seed"] for run in theseus["runs"]})} seeds for `module_replacing`, mean of {seeds_of(elastic)} for
        the pre-training; the best epoch was chosen on the same dev rows."""
    )


def extremes(elastic: dict, task: str) -> str:
    """The smallest and the largest change of an exit by pre-training."""
    without, after = (scores(elastic, task, start) for start in ("without", "with"))
    change = {k: after[k] - without[k] for k in without}
    low, high = min(change, key=lambda k: change[k]), max(change, key=lambda k: change[k])
    return f"{change[low]:+.1f} (layer {low}) to {change[high]:+.1f} points (layer {high})"


def theseus_findings(theseus: dict, found: Scores) -> str:
    deepest, *others = depths(found)
    lines = [advantage(found, deepest), bulk(found, deepest)]
    lines += [f"**{k} layers**: {gains(found, k)}" for k in others]
    lines += [small_sets(found), imitation(found, deepest)]
    lines.append("""**How much training each had**: the predecessor, the first layers alone and Theseus were trained for
        the same number of epochs each, Theseus four fifths of them replacing. But Theseus starts from the trained
        predecessor, so that counted from the encoder it has had twice as many; the first layers start from the
        encoder.""")
    return bullets(lines)


def advantage(found: Scores, layers: int) -> str:
    first, after = pair(found, layers)
    above = [task for task in NAMES if after[task] > found[BEFORE][task]]
    text = f"""**12 layers into {layers}** keep {kept(found, after):.1f} % of the predecessor's macro average
        ({macro(after):.1f} of {macro(found[BEFORE]):.1f}) and lie {macro(after) - macro(first):.1f} points above
        fine-tuning the first {layers} layers ({macro(first):.1f})."""
    if above:
        names = spoken([f"{NAMES[task]} ({after[task] - found[BEFORE][task]:+.1f})" for task in above])
        text += f""" On {names} they are above the predecessor itself; without {spoken([NAMES[t] for t in above])} they
            keep {kept(found, after, *above):.1f} %."""
    return text


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
    text = f"""BERT-of-Theseus compressed BERT-base, which is twice as wide, with batches of 32 at 1e-5 or 2e-5 and
        schedules from a grid, and reports the median of 5 runs. With 6 layers it keeps {share["theseus 6"]:.1f} % of
        its macro average over 8 tasks and gains {gain:.1f} points over fine-tuning them. Here it is
        {kept(found, after):.1f} % and {macro(after) - macro(first):.1f} points, for another encoder, with other
        settings, over fewer tasks. Its figures:"""
    heading = ["paper, GLUE dev", *NAMES.values(), "macro of 8", "kept, %", "macro of these 5"]
    return f"{filled(text)}\n\n{table(heading, lines)}"


def elastic_findings(elastic: dict, short: dict) -> str:
    facts = elastic["pretraining"]
    before, after = ([entry for entry in facts[when].values()] for when in ("before", "after"))
    accuracies = [100 * entry["sop_accuracy"] for entry in after]
    lower, orders = accuracies[:6], accuracies[6:]
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
    return bullets(lines)


def half_as_long(elastic: dict, short: dict) -> str:
    facts = short["pretraining"]
    accuracies = [100 * entry["sop_accuracy"] for entry in facts["after"].values()]
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
        {span(accuracies)} %, yet gave {spoken(changes)}: the longer run did not do more for early layers."""


def moved(elastic: dict, task: str) -> str:
    """Which exits gained and lost by pre-training."""
    without, after = (scores(elastic, task, start) for start in ("without", "with"))
    change = {k: after[k] - without[k] for k in without}
    idle = [k for k in change if max(without[k], after[k]) < CHANCE[task] + 0.1]
    gained = [
        f"{change[k]:+.1f} after {k} layers ({without[k]:.1f} to {after[k]:.1f})" for k in change if change[k] > CLEAR
    ]
    lost = [k for k in change if change[k] < -CLEAR]
    text = f"**{NAMES[task]}, exits after every layer**: {spoken(gained) if gained else 'no layer gains'}"
    if lost:
        text += f"; layers {runs_of(lost)} lose {span([-change[k] for k in lost])}"
    return text + f". Layers {runs_of(idle)} stay at {CHANCE[task]}, the larger class, either way." * bool(idle)


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
