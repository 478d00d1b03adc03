"""evaluate(): one pass over labelled rows, then everything there is to know of a model's exits, as one value."""

from __future__ import annotations

import csv
import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.table import Table

from paredown.answers import Encoded, Kind
from paredown.errors import BadInput, BadPlan, BadSetting
from paredown.evaluation.cost import Bill, Cost, Paper
from paredown.evaluation.frontier import Point, area, front
from paredown.evaluation.intervals import intervals
from paredown.evaluation.metrics import Metric, metric_for, metric_named
from paredown.evaluation.record import Record, record, record_once
from paredown.evaluation.replay import SPEEDS, point, points, replay, sweep
from paredown.model import AdaptiveModel
from paredown.plan import Plan
from paredown.registry import exits
from paredown.runtime.timing import spread, time_plans

COLUMNS = ("rule", "speed", "score", "layers", "speedup", "token_layers", "flops", "flops_speedup")


@dataclass(frozen=True)
class Evaluation:
    encoder: str
    kind: str
    metric: str
    rows: int
    device: str
    counted_as: str  # how FLOPs are counted: "paredown", or a paper's name
    full: Point  # every row runs to the end, no exit asked; with its interval, low and high
    per_layer: list[Point]  # all rows leave after so many layers; with intervals
    curves: dict[str, list[Point]]  # by rule: score and cost at every speed
    front: list[Point]  # the points of all curves that none beats in both score and FLOPs
    areas: dict[str, float]  # by rule: mean score lost over all costs; see `area`
    allowed_drop: float  # of the score, for the chosen points
    chosen: list[Point]  # the plan's own rule, then of each rule the cheapest point within the allowed drop
    timings: list[dict[str, Any]]  # rule, batch_size, milliseconds per row, times faster than the stock model

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any] | str) -> Evaluation:
        return cls(**(json.loads(data) if isinstance(data, str) else data))

    @classmethod
    def load(cls, folder: str | Path) -> Evaluation:
        return cls.from_json((Path(folder) / "evaluation.json").read_text(encoding="utf-8"))

    def save(self, folder: str | Path, plots: bool = True) -> list[Path]:
        """evaluation.json, curves.csv and, where matplotlib is installed, the plots as PNG and SVG."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        data, table = folder / "evaluation.json", folder / "curves.csv"
        data.write_text(json.dumps(self.to_json(), indent=1) + "\n", encoding="utf-8")
        with open(table, "w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, extrasaction="ignore")
            writer.writeheader()
            writer.writerows(point for points in self.curves.values() for point in points)
        if not plots:
            return [data, table]
        from paredown.evaluation.plots import save_plots

        return [data, table, *save_plots(self, folder)]

    def table(self) -> Table:
        """Full depth and the chosen points, for people."""
        sizes = sorted({timing["batch_size"] for timing in self.timings})
        lost = f"at most {100 * self.allowed_drop:g} points lost"
        title = f"{self.encoder}: {self.metric} in % on {self.rows:,} rows; {lost}"
        table = Table(title=title, title_justify="left")
        table.add_column("rule", overflow="fold", min_width=8)  # bounds for every layer are long
        for name in ("score", "95 %", "layers", "MFLOPs", "speed-up"):
            table.add_column(name, justify="right", no_wrap=name != "95 %")
        for size in sizes:
            table.add_column(f"ms/row,\nbatch {size}", justify="right")
        for index, at in enumerate([self.full, *self.chosen]):
            times = {t["batch_size"]: t for t in self.timings if t["rule"] == at["rule"]}
            table.add_row(
                at["rule"],
                f"{100 * at['score']:.2f}",
                f"{100 * at['low']:.1f} to {100 * at['high']:.1f}",
                f"{at['layers']:.2f}",
                f"{at['flops'] / 1e6:,.1f}",
                f"{at['flops_speedup']:.2f}×",
                *[f"{times[n]['milliseconds']:.2f} ({times[n]['faster']:.2f}×)" if n in times else "" for n in sizes],
                end_section=index == 0,
            )
        return table

    def layer_table(self) -> Table:
        """The score after every layer, for people."""
        table = Table(
            title=f"{self.encoder}: {self.metric} in % when all rows leave after a layer", title_justify="left"
        )
        for name in ("layers", "score", "95 %", "MFLOPs", "speed-up"):
            table.add_column(name, justify="right")
        for at in self.per_layer:
            interval = f"{100 * at['low']:.1f} to {100 * at['high']:.1f}"
            flops, times = f"{at['flops'] / 1e6:,.1f}", f"{at['flops_speedup']:.2f}×"
            table.add_row(f"{at['layers']:.0f}", f"{100 * at['score']:.2f}", interval, flops, times)
        return table


def evaluate(
    model: AdaptiveModel,
    rows: Any,
    rules: str | Sequence[Any] = "all",
    metric: Metric | str | None = None,
    *,
    plan: Plan | None = None,
    speeds: Sequence[float] = SPEEDS,
    allowed_drop: float = 0.01,
    paper: Paper | None = None,
    batch_size: int = 64,
    max_length: int | None = None,
    timed_batches: Sequence[int] = (32,),
    timed_rows: int = 64,
    resamples: int = 1000,
    seed: int = 0,
    record_in: str | Path | None = None,
) -> Evaluation:
    """Labelled texts, questions, or rows encoded already. `plan` (the model's own by default) gives depth and reducer;
    its exit rule is judged beside `rules`: names, short texts or rules, each at all `speeds`; "all": all that fit.

    `paper` counts FLOPs as that paper's tool did. Times are measured on `timed_rows` rows for each of `timed_batches`.
    `record_in`: a folder that keeps the record; one of the same model, rows and plan that is there already is used.
    """
    plan = model.plan if plan is None else Plan.of(plan)
    encoded = model.encode(rows, max_length)
    measure = metric_named(metric) if isinstance(metric, str) else metric or metric_for(model.kind)
    if record_in is None:
        seen = record(model, encoded, batch_size, plan, hashed=False)
    else:
        seen = record_once(model, encoded, batch_size, plan, record_in)
    if not seen.labelled:
        raise BadInput("every row needs a label to be evaluated")
    seen.check_finite()
    swept = fitting_rules(rules, seen.kind, tuple(seen.stops[:-1]), bool(seen.error_probability), plan.exit)
    cost = Cost.of(model, plan) if paper is None else Cost.of_paper(paper, model.config, grown=len(model.grown))
    judge = RecordJudge(seen, measure, Bill(seen, cost), resamples, seed)
    curves = {str(rule.name): judge.curve(rule, speeds) for rule in swept}
    full, per_layer = judge.full(), judge.per_layer()
    chosen = judge.chosen(curves, plan.exit, full["score"] - allowed_drop)
    return Evaluation(
        encoder=model.walk.family,
        kind=model.kind.name,
        metric=getattr(measure, "__name__", str(measure)),
        rows=len(seen.units),
        device=_device(model),
        counted_as=paper or "paredown",
        full=full,
        per_layer=per_layer,
        curves=curves,
        front=front(point for points in curves.values() for point in points),
        areas={name: area(points, per_layer[0], full) for name, points in curves.items()},
        allowed_drop=allowed_drop,
        chosen=chosen,
        timings=_timings(model, spread(encoded, timed_rows), plan, [p["rule"] for p in chosen], timed_batches),
    )


@dataclass(frozen=True)
class RecordJudge:
    """One record, one metric, one bill."""

    record: Record
    metric: Metric
    bill: Bill
    resamples: int = 1000
    seed: int = 0

    def curve(self, rule: Any, speeds: Sequence[float]) -> list[Point]:
        swept = sweep(rule, speeds)
        found = points(self.record, [at for _, at in swept], self.metric, self.bill)
        return [{"speed": speed, **at} for (speed, _), at in zip(swept, found, strict=True)]

    def full(self) -> Point:
        logits = replay(self.record, None).logits
        return point(self.record, None, self.metric, self.bill) | self._interval([logits])[0]

    def per_layer(self) -> list[Point]:
        """Every head alone: what all rows answer and cost if they leave there, and only there are asked."""
        stops = self.record.stops
        limits = self._interval([self.record.logits[stop] for stop in stops])
        found = []
        for stop, interval in zip(stops, limits, strict=True):
            plan = self.record.plan.but(depth=self.record.depth[:stop])
            only = dataclasses.replace(self.record, logits={stop: self.record.logits[stop]}, plan=plan)
            alone = point(only, None, self.metric, Bill(only, self.bill.cost))
            found.append({**alone, "rule": f"after layer {stop}", **interval})
        return found

    def chosen(self, curves: dict[str, list[Point]], own: Any, least: float) -> list[Point]:
        """Points with interval and histogram; `of` names the curve a point lies on."""
        wanted = [] if own is None else [("", own)]
        for name, line in curves.items():
            good = [at for at in line if at["score"] >= least]
            if good:
                wanted.append((name, exits.of(min(good, key=lambda at: at["flops"])["rule"])))
        depth, found = self.record.stops[-1], []
        for name, rule in wanted:
            done = replay(self.record, rule)
            at = point(self.record, rule, self.metric, self.bill)
            histogram = {"histogram": done.histogram(depth)}
            found.append({"of": name, **at, **self._interval([done.logits])[0], **histogram})
        return found

    def _interval(self, answers: Sequence[torch.Tensor]) -> list[dict[str, float]]:
        limits = intervals(self.record, answers, self.metric, self.resamples, seed=self.seed)
        return [{"low": low, "high": high} for low, high in limits]


def fitting_rules(
    rules: str | Sequence[Any], kind: Kind, asked: tuple[int, ...], has_error_probability: bool, own: Any = None
) -> list[Any]:
    """The rules to sweep: those named, which must suit the answers; of "all", those that do and have a knob to turn.

    `asked` are the counts of layers run after which a head answers, the end left out. `own` is the plan's rule, whose
    other settings (a tolerance) are kept when its name is swept.
    """
    if rules == "all":
        mine = {} if own is None else {own.name: own}
        known = [mine.get(name) or exits.make(name) for name in exits.names()] if asked else []
        return [rule for rule in known if rule.knob and suits(rule, kind, asked, has_error_probability)]
    found = [exits.of(rule) for rule in ([rules] if isinstance(rules, str) else rules)]
    if len({rule.name for rule in found}) < len(found):
        raise BadSetting("every rule can be swept once; two have the same name")
    if found and not asked:
        raise BadPlan(f"no layer before the last has a head, so {found[0].name} would never be asked")
    for rule in found:
        rule.check(kind, asked, has_error_probability)
    return found


def suits(rule: Any, kind: Kind, asked: tuple[int, ...], has_error_probability: bool) -> bool:
    try:
        rule.check(kind, asked, has_error_probability)
    except BadPlan:
        return False
    return True


def _timings(
    model: AdaptiveModel, rows: list[Encoded], plan: Plan, rules: list[str], sizes: Sequence[int]
) -> list[dict[str, Any]]:
    """Full depth first, then every rule, for each batch size; against the stock model, as FLOPs are."""
    found = []
    plans = {"full depth": plan.but(exit=None)} | {rule: plan.but(exit=rule) for rule in rules}
    for size in sizes:
        taken = time_plans(model, rows, list(dict.fromkeys([Plan(), *plans.values()])), size)
        for rule, its in plans.items():
            fast, faster = 1000 * taken[its].seconds_per_row, taken[its].times_faster(taken[Plan()])
            found.append({"rule": rule, "batch_size": size, "milliseconds": fast, "faster": faster})
    return found


def _device(model: AdaptiveModel) -> str:
    if model.device.type == "cuda":
        return torch.cuda.get_device_name(model.device)
    return f"{model.device.type}, {torch.get_num_threads()} threads"
