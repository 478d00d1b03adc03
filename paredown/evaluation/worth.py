"""worth(): what a plan scores and costs on labelled rows, beside full depth."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from paredown.answers import Encoded
from paredown.errors import BadInput
from paredown.evaluation.cost import Bill, Cost
from paredown.evaluation.metrics import Metric, metric_for, metric_named
from paredown.evaluation.record import record
from paredown.evaluation.replay import point, replay
from paredown.model import AdaptiveModel
from paredown.plan import Plan


@dataclass(frozen=True)
class Worth:
    """Scores are fractions of 1; layers and FLOPs are means over rows; speed-ups are against the stock model, which
    runs all its layers and asks no exit."""

    plan: str
    metric: str
    rows: int  # units that are judged: rows, or questions with all their windows
    full_score: float  # the plan's layers, no exit, every token
    full_layers: float
    full_flops: float
    full_flops_speedup: float
    score: float  # under the plan
    layers: float
    flops: float
    flops_speedup: float
    exits: list[int]  # rows, or windows of long texts, that left after 1, 2, … layers

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Worth:
        try:
            return cls(**data)
        except TypeError as error:
            raise BadInput(f"these are not the figures of a plan: {error}") from None

    def table(self, name: str = "dev") -> Table:
        """For people; `name` says which rows these are."""
        title = f"what the plan is worth on {self.rows:,} {name} rows"
        table = Table("plan", title=title, title_justify="left")
        for column in (f"{self.metric} (%)", "layers", "MFLOPs", "speed-up"):
            table.add_column(column, justify="right", no_wrap=True)
        table.add_row(
            "full depth", *_cells(self.full_score, self.full_layers, self.full_flops, self.full_flops_speedup)
        )
        if self.plan != "full depth":
            table.add_row(self.plan, *_cells(self.score, self.layers, self.flops, self.flops_speedup))
        return table


def _cells(score: float, layers: float, flops: float, speedup: float) -> list[str]:
    return [f"{100 * score:.2f}", f"{layers:.2f}", f"{flops / 1e6:,.1f}", f"{speedup:.2f}×"]


def worth(
    model: AdaptiveModel,
    rows: Sequence[Encoded],
    metric: Metric | str | None = None,
    plan: Plan | None = None,
    batch_size: int = 64,
) -> Worth:
    """One pass over encoded rows with labels; a second one where the plan drops tokens. `plan` and `metric` default to
    the model's own."""
    plan = model.plan if plan is None else Plan.of(plan)
    measure = metric_named(metric) if isinstance(metric, str) else metric or metric_for(model.kind)
    full = Plan(plan.depth)
    seen = record(model, rows, batch_size, plan)
    cost = Cost.of(model, plan)
    whole, whole_cost = seen, cost
    if plan.reduce is not None:
        whole, whole_cost = record(model, rows, batch_size, full), Cost.of(model, full)
    for one in (seen, whole):
        one.check_finite()
    done = replay(seen, plan.exit)
    at_full = point(whole, None, measure, Bill(whole, whole_cost))
    at = point(seen, plan.exit, measure, Bill(seen, cost))
    figures = ("score", "layers", "flops", "flops_speedup")
    return Worth(
        plan="full depth" if plan == full else str(plan),
        metric=getattr(measure, "__name__", str(measure)),
        rows=len(seen.units),
        **{f"full_{name}": at_full[name] for name in figures},
        **{name: at[name] for name in figures},
        exits=done.histogram(len(seen.depth)),
    )
