"""ELUE (Liu et al., 2022): how far a model's points lie above a baseline's curve of score against FLOPs, by task."""

from __future__ import annotations

import dataclasses
import json
import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from rich.table import Table

from paredown.answers import Kind
from paredown.errors import BadInput, BadPlan
from paredown.evaluation.cost import Bill, Cost
from paredown.evaluation.frontier import Point
from paredown.evaluation.metrics import Metric
from paredown.evaluation.original_files import ELASTICBERT_TOLERANCE
from paredown.evaluation.record import Record
from paredown.evaluation.replay import curve, point, sweep
from paredown.exits import EntropyNats, Patience

TASKS = {  # ELUE's names, in its order: the catalogue's
    "SST-2": "elue-sst-2",
    "IMDb": "elue-imdb",
    "SNLI": "elue-snli",
    "SciTail": "elue-scitail",
    "MRPC": "elue-mrpc",
    "STS-B": "elue-sts-b",
}
STATIC = "static"  # the use of a model whose first layers alone were trained; the other uses are exit rules
THRESHOLDS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6)  # nats; ElasticBERT's scripts have 0.1 and 0.3 to 0.5
FEW = (0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7)  # speeds of the rules that ELUE's authors did not try
BASELINE = Path(__file__).with_name("elue_baseline.json")  # made by benchmarks/elue.py


@dataclass(frozen=True)
class Line:
    """The points of one task, and on what they were measured."""

    points: Sequence[Point]  # each with flops, of a row in the mean, and score, of 1; more facts may stand beside them
    metric: str
    split: str
    rows: int
    max_length: int | None = None  # tokens at which longer rows were cut

    def __post_init__(self) -> None:
        if not self.points:
            raise BadInput("a curve needs points")
        for at in self.points:
            for name in ("flops", "score"):
                value = at.get(name)
                if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
                    raise BadInput(f"every point of a curve needs flops and score as numbers; got {dict(at)!r:.80}")


@dataclass(frozen=True)
class Curve:
    """Score against FLOPs for several tasks: what is scored, and what it is scored against."""

    encoder: str
    tasks: Mapping[str, Line]
    counted_as: str = "paredown"  # how FLOPs are counted, or a paper's name

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: Any, source: object = "this") -> Curve:
        try:
            lines = {name: Line(**line) for name, line in data["tasks"].items()}
            return cls(data["encoder"], lines, data["counted_as"])
        except (KeyError, TypeError, AttributeError, BadInput) as error:
            raise BadInput(f"{source} is no curve that `paredown elue --save-baseline` wrote: {error}") from None

    def line(self, task: str) -> Line:
        if task not in self.tasks:
            raise BadInput(f"the baseline has no curve for {task}; it has: {', '.join(self.tasks)}")
        return self.tasks[task]

    @classmethod
    def load(cls, path: str | Path) -> Curve:
        try:
            return cls.from_json(json.loads(Path(path).read_text(encoding="utf-8")), path)
        except (OSError, ValueError) as error:
            if isinstance(error, BadInput):
                raise
            raise BadInput(f"no curve can be read from {path}: {error}") from None

    def save(self, path: str | Path) -> Path:
        """Written only if it can serve as a baseline."""
        for name, line in self.tasks.items():
            _knots(line.points, name)
        return _write(path, self.to_json())


@dataclass(frozen=True)
class Score:
    tasks: dict[str, float]  # of 1, as scores are: 0.01 is one point
    average: float  # their plain mean


@dataclass(frozen=True)
class Standing:
    """Several uses of one encoder against one baseline."""

    curves: Mapping[str, Curve]  # by use: static, or the name of a rule
    baseline: Curve
    scores: Mapping[str, Score]
    notes: tuple[str, ...] = ()  # what was left out, and what makes a score doubtful

    @classmethod
    def of(cls, curves: Mapping[str, Curve], baseline: Curve, notes: Iterable[str] = ()) -> Standing:
        found, scores = list(notes), {}
        for use, its in curves.items():
            scores[use], remarks = compare(its, baseline)
            found += [f"{use}, {note}" for note in remarks]
        return cls(curves, baseline, scores, tuple(found))

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Standing:
        curves = {use: Curve.from_json(its, use) for use, its in data["curves"].items()}
        scores = {use: Score(**its) for use, its in data["scores"].items()}
        return cls(curves, Curve.from_json(data["baseline"], "baseline"), scores, tuple(data["notes"]))

    def save(self, folder: str | Path, plots: bool = True) -> list[Path]:
        """elue.json and, where matplotlib is installed, a picture as PNG and SVG."""
        data = _write(Path(folder) / "elue.json", self.to_json())
        if not plots:
            return [data]
        from paredown.evaluation.plots import save_elue

        return [data, *save_elue(self, folder)]

    def table(self) -> Table:
        """ELUE scores in points, for people."""
        title = f"ELUE scores against {self.baseline.encoder}, in points"
        table = Table("task", "metric", "judged on", title=title, title_justify="left")
        for use in self.curves:
            table.add_column(use, justify="right")
        lines = {name: line for its in self.curves.values() for name, line in its.tasks.items()}
        names = [name for name in TASKS if name in lines]
        for name in names:
            gains = [score.tasks.get(name) for score in self.scores.values()]
            judged = f"{lines[name].rows:,} rows of {lines[name].split}"
            shown = ["" if gain is None else f"{100 * gain:+.2f}" for gain in gains]
            table.add_row(name, lines[name].metric, judged, *shown, end_section=name == names[-1])
        table.add_row("average", "", "", *[f"{100 * score.average:+.2f}" for score in self.scores.values()])
        return table


def elue_score(points: Sequence[Point], baseline: Sequence[Point]) -> tuple[float, list[str]]:
    """Mean over points of the score less the baseline's at the same FLOPs; and warnings.

    The baseline is linear between its points and constant outside; the warnings name that.
    """
    knots = _knots(baseline)
    gains = [at["score"] - _between(at["flops"], knots) for at in points]
    low, high = knots[0][0], knots[-1][0]
    outside = sum(not low <= at["flops"] <= high for at in points)
    beyond = (
        f"{outside} of {len(points)} points lie outside the baseline's {low / 1e6:,.1f} to {high / 1e6:,.1f} MFLOPs"
    )
    return math.fsum(gains) / len(gains), [f"{beyond}; its nearest end stands for it there"] if outside else []


def compare(its: Curve, baseline: Curve) -> tuple[Score, list[str]]:
    """The score of every task and their mean; and warnings."""
    if its.counted_as != baseline.counted_as:
        ways = f"as {its.counted_as} here and as {baseline.counted_as} in the baseline"
        raise BadInput(f"FLOPs are counted {ways}; count both the same way")
    scores, notes = {}, []
    for name, line in its.tasks.items():
        theirs = baseline.line(name)
        if line.metric != theirs.metric:
            raise BadInput(f"{name} is scored by {line.metric} here and by {theirs.metric} in the baseline")
        scores[name], remarks = elue_score(line.points, theirs.points)
        for fact in ("split", "rows", "max_length"):
            here, there = getattr(line, fact), getattr(theirs, fact)
            remarks += [f"{fact} is {here} here and {there} in the baseline"] if here != there else []
        notes += [f"{name}: {remark}" for remark in remarks]
    return Score(scores, math.fsum(scores.values()) / len(scores)), notes


def static_point(seen: Record, metric: Metric, cost: Cost) -> Point:
    """All rows run to the end of the plan that was recorded, and no exit is asked."""
    return {"layers_kept": len(seen.depth), **point(seen, None, metric, Bill(seen, cost))}


def dynamic_points(
    seen: Record, rules: Sequence[Any], metric: Metric, cost: Cost
) -> tuple[dict[str, list[Point]], list[str]]:
    """A handful of points for each rule, by its name; and which rules were left out."""
    asked, found, left_out = tuple(seen.stops[:-1]), {}, []
    if not asked:
        raise BadPlan("the model has no exits; train it by a method that grows heads")
    for rule in rules:
        fitting = fitted(rule, seen.kind)
        try:
            fitting.check(seen.kind, asked, bool(seen.error_probability))
        except BadPlan as error:
            left_out.append(f"{rule.name} is left out: {error}")
            continue
        found[str(rule.name)] = curve(seen, settings_of(fitting, len(asked)), metric, cost)
    return found, left_out


def fitted(rule: Any, kind: Kind) -> Any:
    """The rule as a kind of answer needs it: a tolerance is for numbers."""
    if not isinstance(rule, Patience):
        return rule
    tolerance = (rule.tolerance or ELASTICBERT_TOLERANCE) if kind.numeric else None
    return dataclasses.replace(rule, tolerance=tolerance)


def settings_of(rule: Any, exits: int) -> list[Any]:
    """The rule at a handful of settings, cautious first; for ElasticBERT's two rules they are like its own."""
    if isinstance(rule, EntropyNats):
        return [dataclasses.replace(rule, threshold=at) for at in THRESHOLDS]
    if isinstance(rule, Patience):
        return [dataclasses.replace(rule, patience=at) for at in range(exits, 0, -1)]
    return [at for _, at in sweep(rule, FEW)]


def _knots(points: Sequence[Point], name: str = "a baseline") -> list[tuple[float, float]]:
    knots = sorted((at["flops"], at["score"]) for at in points)
    if len(knots) < 2:
        raise BadInput(f"{name}: a curve to score against needs 2 points or more, not {len(knots)}")
    for (flops, _), (after, _) in pairwise(knots):
        if flops == after:
            raise BadInput(f"{name}: two points of the baseline have {flops:,.0f} FLOPs, so its score there is unclear")
    return knots


def _between(flops: float, knots: list[tuple[float, float]]) -> float:
    """The score at these FLOPs; exact at the knots themselves."""
    index = bisect_right(knots, flops, key=lambda knot: knot[0])
    if index == 0:
        return knots[0][1]
    (low, score), (high, after) = knots[index - 1], knots[min(index, len(knots) - 1)]
    return score if flops == low or high == low else score + (after - score) * (flops - low) / (high - low)


def _write(path: str | Path, data: Any) -> Path:
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    return path
