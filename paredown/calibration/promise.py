"""Promise: what a user wants of a plan, as a value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from paredown.calibration.losses import RISKS, RiskName
from paredown.errors import BadSetting

Guarantee = Literal["confidence", "average"]


@dataclass(frozen=True)
class Promise:
    """One goal, and how losses are judged."""

    max_drop: float | None = None  # as fast as can be, while the expected loss is at most this
    target_speedup: float | None = None  # as good as can be, with so many times fewer FLOPs than the stock model
    max_latency_ms: float | None = None  # as good as can be, with a mean time of a row alone, on this machine
    confidence: float = 0.95
    risk: RiskName = "score"
    guarantee: Guarantee = "confidence"  # the bound holds with that confidence, or on average over calibration rows

    def __post_init__(self) -> None:
        if len(self.asked) != 1:
            raise BadSetting("a promise has one goal: max_drop, target_speedup or max_latency_ms")
        ranges = {"max_drop": (0, 1), "confidence": (0, 1), "target_speedup": (1, 1e6), "max_latency_ms": (0, 1e9)}
        for name, (low, high) in ranges.items():
            if (value := getattr(self, name)) is not None and not low < value < high:
                raise BadSetting(f"{name} must lie between {low} and {high:g}, not {value}")
        if self.risk not in RISKS:
            raise BadSetting(f"the risk is one of {', '.join(RISKS)}, not {self.risk!r}")
        if self.guarantee not in ("confidence", "average"):
            raise BadSetting(f"the guarantee holds with confidence or on average, not {self.guarantee!r}")
        if self.guarantee == "average" and self.max_drop is None:
            raise BadSetting("a guarantee on average is for max_drop; other goals are certified with confidence")

    @property
    def asked(self) -> dict[str, Any]:
        """The goal."""
        goals = ("max_drop", "target_speedup", "max_latency_ms")
        return {name: getattr(self, name) for name in goals if getattr(self, name) is not None}

    @property
    def level(self) -> float:
        """How often the promise may be broken."""
        return 1 - self.confidence
