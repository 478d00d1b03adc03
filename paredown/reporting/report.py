"""report(): one pass over labelled rows, then one HTML file that holds a compact record of it."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from paredown import __version__
from paredown.answers import Encoded
from paredown.answers._rows import are_encoded
from paredown.calibration.judged import Judged
from paredown.errors import BadInput
from paredown.evaluation.cost import Bill, Cost
from paredown.evaluation.metrics import Metric, metric_for, metric_named
from paredown.evaluation.record import Record, record, record_once
from paredown.evaluation.record_file import hashes_of
from paredown.evaluation.report import RecordJudge
from paredown.model import AdaptiveModel
from paredown.plan import Plan
from paredown.reporting.compact import encoded, kept_units, layer_scale, packed
from paredown.reporting.curves import RuleCurve, curves, metric_name, unit_risk
from paredown.reporting.examples import Examples
from paredown.reporting.groups import groupings
from paredown.reporting.page import page
from paredown.reporting.times import add_times, times
from paredown.system.machine import machine, versions
from paredown.system.saving import saving, write_text

ALLOWED_DROP = 0.01  # of the score, where the slider begins without a plan to begin at


@dataclass(frozen=True)
class HtmlReport:
    """What the page shows, as JSON."""

    data: dict[str, Any]

    def html(self) -> str:
        return page(self.data)

    def save(self, path: str | Path) -> Path:
        path = Path(path)
        with saving(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_text(path, self.html())
        return path


def report(
    model: AdaptiveModel,
    rows: Any,
    metric: Metric | str | None = None,
    *,
    name: str = "",
    record_in: str | Path | None = None,
    bench: Mapping[str, Any] | None = None,
    commands: Sequence[str] = (),
    examples: int = 8,
    timed: bool = True,
    batch_size: int = 64,
    max_length: int | None = None,
) -> HtmlReport:
    """Labelled texts, questions, or rows encoded already, under the model's plan. `record_in`: a folder that keeps the
    record, or has it already; `bench`: what `paredown bench` found; `commands`: how the page was made; `examples`:
    how many hard, easy and shortened rows are shown; `timed`: measure time too."""
    measure = metric_named(metric) if isinstance(metric, str) else metric or metric_for(model.kind)
    asked = None if are_encoded(rows) else model.kind.units(rows)
    ready = model.encode(rows if asked is None else asked, max_length)
    judged = _judged(model, ready, measure, batch_size, record_in)
    seen, plan = judged.record, model.plan
    scale = layer_scale(seen.stops[-1])
    found = curves(judged, plan.exit)
    units = kept_units(found, judged.units, scale)
    measured = times(model, ready, plan, seen.stops) if timed else None
    if measured is not None:
        add_times(found, measured)
    looked_at = Examples(model, ready, asked, judged)
    full = RecordJudge(judged.full, measure, Bill(judged.full, Cost.of(model, Plan(plan.depth)))).full()
    return HtmlReport(
        {
            **_about(model, name, judged),
            "full": full,
            "per_layer": RecordJudge(seen, measure, judged.bill).per_layer(),
            "kept": len(units),
            "layer_scale": scale,
            "rules": [
                {"name": curve.name, "points": curve.points, "states": packed(curve, units, scale)} for curve in found
            ],
            "plan": {"text": str(plan), "exit": plan.exit is not None, **_place(found, plan, full["score"])},
            "groups": [
                {"title": one.title, "names": one.names, "of": encoded(one.of[units])}
                for one in groupings(judged, model.labels)
            ],
            "rows": looked_at.of(found, units, examples, scale),
            "tokens": looked_at.dropped(plan, units, examples) if plan.reduce is not None else [],
            "times": measured and {**measured, "on": machine(model.device)},
            "bench": bench,
            "made": _made(commands, seen.hashes or hashes_of(model, ready, seen.plan)),
        }
    )


def _judged(
    model: AdaptiveModel, rows: Sequence[Encoded], metric: Metric, batch_size: int, record_in: str | Path | None
) -> Judged:
    """The plan's record, judged unit by unit, beside full depth with every token."""
    plan = model.plan
    if record_in is None:
        seen = record(model, rows, batch_size, plan)
    else:
        seen = record_once(model, rows, batch_size, plan, record_in)
    full: Record = seen if plan.reduce is None else record(model, rows, batch_size, Plan(plan.depth))
    for one in (seen, full):
        if not one.labelled:
            raise BadInput("every row needs a label to be reported on")
        one.check_finite()
    return Judged(seen, Bill(seen, Cost.of(model, plan)), unit_risk(seen, metric)[0], full)


def _about(model: AdaptiveModel, name: str, judged: Judged) -> dict[str, Any]:
    """What the model is, and how it is judged."""
    seen, certificate = judged.record, model.certificate
    metric = judged.risk.metric
    return {
        "name": name or model.walk.family,
        "family": model.walk.family,
        "kind": model.kind.name,
        "unit": "question" if seen.windows or seen.kind.grouped else "row",
        "units": judged.units,
        "metric": metric_name(metric),
        "is_mean": judged.risk.name == "score",
        "unit_score": unit_risk(seen, metric)[1],
        "depth": seen.stops[-1],
        "stops": seen.stops,
        "stock_flops": judged.bill.flops[2],
        "certificate": None if certificate is None else {**certificate.to_json(), "text": str(certificate)},
        "void": model.void,
    }


def _place(found: Sequence[RuleCurve], plan: Plan, full: float) -> dict[str, int]:
    """Where the slider begins, rule and setting counted from 0: at the plan; without an exit rule, where the least work
    loses a point at most."""
    if not found:
        return {"rule": 0, "setting": 0}
    if plan.exit is not None:
        return {"rule": 0, "setting": found[0].rules.index(plan.exit)}
    settings = [(rule, setting) for rule, curve in enumerate(found) for setting in range(len(curve.points))]
    points = {(rule, setting): found[rule].points[setting] for rule, setting in settings}
    good = [at for at in settings if points[at]["score"] >= full - ALLOWED_DROP] or settings
    rule, setting = min(good, key=lambda at: points[at]["flops"])
    return {"rule": rule, "setting": setting}


def _made(commands: Sequence[str], hashes: Mapping[str, str]) -> dict[str, Any]:
    """How, when and from what."""
    return {
        "commands": list(commands),
        "date": datetime.now(timezone.utc).isoformat(timespec="minutes"),
        "hashes": dict(hashes),
        "versions": {
            "paredown": __version__,
            **versions(("torch", "transformers")),
            "python": platform.python_version(),
        },
    }
