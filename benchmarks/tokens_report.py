"""The figures of docs/tokens.md, of the policy's card and of the README, from the results of `tokens-*`."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean, median
from typing import NamedTuple

from benchmarks.experiment import Experiment
from benchmarks.experiments import ALL_TOKENS, TOKENS
from benchmarks.experiments_report import mean, waiting
from benchmarks.pages import DOCS, ROOT, Document, committed, decimal, filled, put, span, spoken, stacked, table
from benchmarks.result_files import FULL, by_seed, paired
from benchmarks.result_files import committed as result_of
from benchmarks.rows import SETS

PAGE, CARD = DOCS / "tokens.md", ROOT / "paredown" / "methods" / "token_policy" / "README.md"
KEPT = f"selector:0.5, {FULL}"
POLICIES = {"policy": "led to a target", "trbert": "at the published prices"}


class Saving(NamedTuple):
    """What a policy does on a set, beside the same models with all tokens."""

    lost: tuple[float, ...]  # points, by seed
    faster: float  # times fewer FLOPs, mean of the seeds


def saving(experiment: Experiment, recipe: str) -> Saving | None:
    if not (both := paired(by_seed(experiment.name), (recipe, KEPT), (ALL_TOKENS, FULL))):
        return None
    lost = tuple(100 * (whole["score"] - kept["score"]) for kept, whole in both)
    return Saving(lost, mean((kept for kept, _ in both), "flops_speedup"))


def answer() -> str:
    """What a reader came for: what fewer tokens cost on test rows, and what time follows."""
    policies = [text for recipe in POLICIES if (text := over_sets(recipe))]
    if not policies:
        return stacked(waiting([one.name for one in TOKENS]), filled(times()))
    return filled(f"On test rows, beside the same models with all tokens, {', and '.join(policies)}. {times()}")


def over_sets(recipe: str) -> str:
    found = [its for one in TOKENS if (its := saving(one, recipe))]
    if not found:
        return ""
    lost, faster = zip(*((fmean(its.lost), its.faster) for its in found), strict=True)
    several, typical = ("s", f", in the median {decimal(median(lost))}") if len(found) > 1 else ("", "")
    return f"""a policy {POLICIES[recipe]} runs {span(faster)} times fewer FLOPs on {len(found)} set{
        several
    } and loses {span(lost)} points{typical}"""


def times() -> str:
    points, gpu = committed("token_time")["points"], committed("gpu")["IMDb-like at 512, tokens dropped"]
    half = next(point for point in points if point["reduce"] == "fixed_share:0.5")
    cpu = [f"{ms / half['milliseconds'][size]:.1f} (batch {size})" for size, ms in points[0]["milliseconds"].items()]
    return f"""Time on one CPU thread falls by a factor of {spoken(cpu)} for {half["flops_speedup"]:.2f} times fewer
        FLOPs; on a GPU, packed, with random weights and 512 tokens, by {gpu["faster"]:.2f} for {
        gpu["fewer token-layers"]:.2f} times less work."""


def sets() -> str:
    """A line for each set: the score with all tokens, and what each policy loses and saves."""
    lines = []
    for one in TOKENS:
        found = [saving(one, recipe) for recipe in POLICIES]
        if any(found):
            run = result_of(one.name)["runs"][0]
            whole = 100 * mean(by_seed(one.name)[ALL_TOKENS, FULL].values())
            about = [
                one.short,
                one.encoder,
                f"{run['rows']['test']:,}",
                f"{run['tokens']:.0f}",
                SETS[one.rows].metric,
            ]
            lines.append([*about, f"{whole:.1f}", *map(cell, found)])
    head = [
        "",
        "encoder",
        "test rows",
        "tokens",
        "metric",
        "all tokens",
        *(f"{its}: points lost (by seed)" for its in POLICIES.values()),
    ]
    return table(head, lines) if lines else waiting([one.name for one in TOKENS])


def cell(its: Saving | None) -> str:
    if its is None:
        return ""
    return f"{fmean(its.lost):+.2f} ({', '.join(f'{lost:+.2f}' for lost in its.lost)}) at {its.faster:.2f}x"


def on_cpu() -> str:
    facts = committed("token_time")
    whole = facts["points"][0]["milliseconds"]
    rows = [
        [f"`{point['reduce']}`", f"{point['flops_speedup']:.2f}x", *(f"{whole[n] / t:.2f}x" for n, t in spent.items())]
        for point in facts["points"]
        for spent in [point["milliseconds"]]
    ]
    text = f"""Process time of one thread, {facts["encoder"]} on {facts["rows"]} reviews of IMDb with
        {facts["tokens"]:.0f} tokens on average, by `{facts["command"]}` with torch {facts["torch"]}. How many tokens go
        counts, not which: nothing was trained."""
    head = ["plan", "FLOPs, times fewer", *(f"time, batch {size}" for size in whole)]
    return f"{filled(text)}\n\n{table(head, rows)}"


def documents() -> Iterator[Document]:
    yield PAGE, lambda text: put(text, answer=answer(), sets=sets(), time=on_cpu())
    yield CARD, lambda text: put(text, figures=sets())
