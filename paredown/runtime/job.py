"""Job: some inputs made ready to be predicted. Making one is work for the host alone, so it can be done ahead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor

from paredown.route import Route

if TYPE_CHECKING:
    from paredown.answers import Encoded, Kind, Prediction
    from paredown.model import AdaptiveModel
    from paredown.plan import Plan


@dataclass(frozen=True)
class Job:
    kind: Kind
    labels: list[str]
    rows: list[Encoded]
    by_unit: list[list[int]]  # indexes of the rows of each unit
    routes: list[Route]  # of each row

    @classmethod
    def of(
        cls, model: AdaptiveModel, kind: Kind, units: Sequence[Any], plans: Sequence[Plan], max_length: int | None
    ) -> Job:
        rows = kind.encode(model.tokenizer, units, model.labels, kind.row_length(model, max_length))
        by_unit = kind.by_unit(rows)
        routes = {plan: model.route(plan) for plan in dict.fromkeys(plans)}
        of_row = {index: routes[plan] for plan, indexes in zip(plans, by_unit, strict=True) for index in indexes}
        return cls(kind, model.labels, rows, by_unit, [of_row[index] for index in range(len(rows))])

    def predictions(self, answers: Mapping[int, tuple[Tensor, int, int]]) -> list[Prediction]:
        """From the logits, layers and tokens of every row."""
        units = [[self.rows[index] for index in indexes] for indexes in self.by_unit]
        found = [[answers[index] for index in indexes] for indexes in self.by_unit]
        decoded = self.kind.decode_units(units, [[its[0] for its in unit] for unit in found], self.labels)
        return [
            one.after(sum([its[1] for its in unit]), sum([its[2] for its in unit]), len(unit))
            for one, unit in zip(decoded, found, strict=True)
        ]
