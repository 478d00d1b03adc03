"""Certificate: what is promised of a plan, on which grounds, as one value. It is void for other weights and plans."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from paredown.errors import BadSetting
from paredown.plan import Plan


@dataclass(frozen=True)
class Certificate:
    risk: str  # what is bounded: score, error or disagreement, of a unit
    metric: str
    bound: float  # the expected loss is at most this
    confidence: float | None  # over the rows that certified; None: the bound holds on average over them
    method: str  # how it was certified
    asked: dict[str, Any]  # what was asked for: max_drop, target_speedup or max_latency_ms
    units: int  # that certified: rows, or questions
    selected_on: int  # other units, which chose the plan
    observed: float  # the mean loss of the units that certified
    speedup: float  # on these: times fewer FLOPs than the stock model
    exits: tuple[int, ...]  # of these: how many ran 1, 2, … layers, windows of a question on average
    disagreement: float  # of these: the share whose answer is another than at full depth
    disagreement_bound: float  # what that is at most, with the same confidence
    plan: Plan
    data: str  # sha256 of all rows
    model: str  # sha256 of all weights, and of what gives them their meaning
    runtime: str  # what ran the layers
    exact: bool  # whether that gives the encoder's own answers
    date: str
    versions: dict[str, str]
    scale: float | None = None  # of numbers: the distance that counts as 1
    milliseconds: float | None = None  # of a row alone, where that was asked for

    def to_json(self) -> dict[str, Any]:
        facts = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return facts | {"plan": self.plan.to_json(), "exits": list(self.exits)}

    @classmethod
    def from_json(cls, data: Any) -> Certificate:
        try:
            return cls(**{**data, "plan": Plan.from_json(data["plan"]), "exits": tuple(map(int, data["exits"]))})
        except (TypeError, KeyError, ValueError) as error:
            raise BadSetting(f"this is no certificate: {error!r:.200}") from None

    def __str__(self) -> str:
        most, full = f"at most {100 * self.bound:.3g}", "full depth" if self.exact else "full depth in 32 bits"
        promised = {
            "score": f"{self.metric} {most} points below {full}",
            "error": f"error {most} points above {full}",
            "disagreement": f"{most} % of the answers differ from {full}",
        }
        sure = "on average" if self.confidence is None else f"with {100 * self.confidence:g} % confidence"
        return f"{promised.get(self.risk, self.risk)}, {sure} ({self.units:,} units, {self.date[:10]})"
