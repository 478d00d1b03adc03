"""What exit rules and reducers share: one knob with its limits that trades caution for speed, and a short text."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar

from paredown.errors import BadSetting


class Knob:
    """Base of a frozen dataclass of plain values whose field `knob` trades caution for speed."""

    name: ClassVar[str]
    knob: ClassVar[str] = "threshold"
    limits: ClassVar[tuple[float, float]] = (0.0, 1.0)  # of the knob; whole limits ask for a whole number
    per_layer: ClassVar[bool] = False  # whether the knob may have one value for each count of layers run

    def __post_init__(self) -> None:
        if not self.knob:
            return
        value = getattr(self, self.knob)
        if not (self.per_layer and isinstance(value, (list, tuple))):
            object.__setattr__(self, self.knob, self._checked(value))
        elif value:
            object.__setattr__(self, self.knob, tuple(self._checked(item) for item in value))
        else:
            raise BadSetting(f"{self.name}.{self.knob} must be one value or one for each layer, not an empty list")

    def _checked(self, value: Any) -> float:
        low, high = self.limits
        whole = isinstance(low, int)
        number = isinstance(value, int if whole else (int, float)) and not isinstance(value, bool)
        if not (number and math.isfinite(value) and low <= value <= high):
            span = f"from {low} to {high}" if math.isfinite(high) else f"of {low} or more"
            what = "a whole number" if whole else "a number"
            raise BadSetting(f"{self.name}.{self.knob} must be {what} {span}, not {value!r}")
        return int(value) if whole else float(value)  # plain, so that it can be printed and written as JSON

    def at_speed(self, speed: float) -> Any:
        """The same at another speed: 0 spares nothing, 1 all it can. Never more work as it grows.

        Values per layer give way to one value for all.
        """
        if not 0 <= speed <= 1:
            raise BadSetting(f"speed must lie between 0 (nothing is spared) and 1, not {speed!r}")
        knob = {self.knob: self._value_at(float(speed))} if self.knob else {}
        return dataclasses.replace(self, **knob)  # type: ignore[type-var]

    def _value_at(self, speed: float) -> float:
        """The knob's value at a speed; as it stands, for a threshold in 0..1 where 0 spares nothing."""
        return speed

    def __str__(self) -> str:
        """Short text that the registry reads back: the knob, and every other setting that is not at its default."""
        parts: list[str] = []
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            text = str(value).replace(" ", "")
            if field.name == self.knob:
                parts.insert(0, text)
            elif value != field.default:
                parts.append(f"{field.name}={text}")
        return ":".join([self.name, ",".join(parts)] if parts else [self.name])
