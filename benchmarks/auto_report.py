"""The figures of docs/auto.md, of the method's card and of the README, from the results of `auto-*`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean, median

from benchmarks.experiment import Experiment
from benchmarks.experiments import AUTOS
from benchmarks.experiments_report import mean, spread, waiting
from benchmarks.pages import DOCS, ROOT, Document, decimal, filled, put, span, table
from benchmarks.result_files import FULL, Point, by_seed, committed, paired
from benchmarks.rows import SETS

PAGE, CARD = DOCS / "auto.md", ROOT / "paredown" / "methods" / "auto" / "README.md"
RECIPES = ("auto", "independent")
SPEEDS = (FULL, *(f"{target:g}x" for target in AUTOS[0].targets))
ASKED = [FULL, *(f"{speed} on dev" for speed in SPEEDS[1:])]
Both = tuple[tuple[Point, ...], ...]  # figures of the same seeds


@dataclass(frozen=True)
class Compared:
    """What `auto` and the independent recipe do on one set, of the seeds that both have."""

    experiment: Experiment

    @cached_property
    def by_speed(self) -> dict[str, Both]:
        """The figures of both; none at a speed that some seed does not reach."""
        seen = by_seed(self.experiment.name)
        rule = "patience" if SETS[self.experiment.rows].kind == "regression" else "entropy"
        plans = {speed: speed if speed == FULL else f"{rule} {speed}" for speed in SPEEDS}
        found = {speed: paired(seen, *((recipe, plan) for recipe in RECIPES)) for speed, plan in plans.items()}
        return {
            speed: tuple(zip(*its, strict=True)) for speed, its in found.items() if its and len(its) == len(found[FULL])
        }

    @cached_property
    def own(self) -> Both:
        """The plan that `auto` chose itself, and its full depth."""
        return tuple(zip(*paired(by_seed(self.experiment.name), ("auto", "own"), ("auto", FULL)), strict=True))

    @property
    def lost(self) -> list[float]:
        """By that plan, in points, by seed."""
        return [100 * (whole["score"] - own["score"]) for own, whole in zip(*self.own, strict=True)]

    @property
    def seeds(self) -> int:
        return len(self.by_speed[FULL][0])

    def gain(self, speed: str) -> float:
        ours, theirs = self.by_speed[speed]
        return 100 * (mean(ours) - mean(theirs))


def compared() -> list[Compared]:
    """The sets that some seed has both recipes of."""
    return [its for its in map(Compared, AUTOS) if its.by_speed]


def answer() -> str:
    """What a reader came for: how far above the plain recipe, and what the plans save and lose."""
    if not (found := compared()):
        return waiting([one.name for one in AUTOS])
    gains = {(its, speed): its.gain(speed) for its in found for speed in its.by_speed}
    least, most = (described(*end(gains, key=lambda at: gains[at])) for end in (min, max))
    saved, lost = [mean(its.own[0], "flops_speedup") for its in found], [fmean(its.lost) for its in found]
    seeds = max(its.seeds for its in found)
    fewer = "".join(f", of {its.experiment.short} {its.seeds}" for its in found if its.seeds < seeds)
    return filled(
        f"""`auto` beside a plain recipe (fine-tune, then exits by self-distillation), on {len(found)} of the table's {
            len(AUTOS)
        } sets, at full depth and where {", ".join(SPEEDS[1:])} fewer layers were asked of dev rows: the
        median gain is {decimal(median(gains.values()))} points, the least {least}, the largest {
            most
        }. The plans that `auto` chose
        itself run {span(saved)} times fewer FLOPs and lose {span(lost)} points, in the median {decimal(median(lost))}.
        Scores are of test rows, which nothing was chosen on, mean of {seeds} seeds{fewer}."""
    )


def described(its: Compared, speed: str) -> str:
    """A gain and where it is; a plan may save far more than was asked for."""
    ours, theirs = (f"{100 * mean(points):.1f} at {mean(points, 'speedup'):.1f}x" for points in its.by_speed[speed])
    return f"{decimal(its.gain(speed))} ({its.experiment.short}: {ours}, the plain recipe {theirs})"


def scores() -> str:
    """A line for each set: `auto`, and how far it is above the independent recipe."""
    lines = []
    for its in compared():
        one, counts = its.experiment, committed(its.experiment.name)["runs"][0]["rows"]
        rows = " / ".join(f"{counts[split]:,}" for split in ("train", "dev", "test"))
        cells = [
            f"{100 * mean(its.by_speed[at][0]):.1f} ({its.gain(at):+.1f})" if at in its.by_speed else ""
            for at in SPEEDS
        ]
        lines.append([one.short, one.encoder, SETS[one.rows].metric, rows, str(its.seeds), *cells])
    return table(["set", "encoder", "metric", "train / dev / test rows", "seeds", *ASKED], lines)


def plans() -> str:
    """What the plans that `auto` chose on dev rows do on test rows."""
    lines = []
    for its in compared():
        own, whole = its.own
        layers = f"{mean(own, 'layers'):.1f} of {mean(whole, 'layers'):.0f}"
        by_seeds = ", ".join(f"{lost:+.1f}" for lost in its.lost)
        saved = f"{mean(own, 'flops_speedup'):.2f}x"
        lines.append([its.experiment.short, layers, saved, f"{fmean(its.lost):+.2f}", by_seeds])
    return table(["its own plan", "layers run", "fewer FLOPs", "points lost", "by seed"], lines)


def spreads() -> str:
    """How far the seeds lie apart, and how many times fewer layers test rows ran."""
    lines = []
    for its in compared():
        for number, recipe in enumerate(RECIPES):
            able = {speed: spread(list(both[number]), "speedup") for speed, both in its.by_speed.items()}
            lines.append([its.experiment.short, recipe, *(able.get(speed, "") for speed in SPEEDS)])
    return table(["", "recipe", *ASKED], lines)


def documents() -> Iterator[Document]:
    yield PAGE, lambda text: put(text, answer=answer(), scores=scores(), plans=plans(), spread=spreads())
    yield CARD, lambda text: put(text, figures=scores())
