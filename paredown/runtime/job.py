"""Job: some inputs made ready to be predicted. Making one is work for the host alone, so it can be done ahead."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor

from paredown.route import Route

if TYPE_CHECKING:
    from paredown.answers import Encoded, Kind, Prediction
    from paredown.model import AdaptiveModel
    from paredown.plan import Plan
    from paredown.runtime.stream import Answered


@dataclass(frozen=True)
class Job:
    kind: Kind
    labels: list[str]
    rows: list[Encoded]
    routes: list[Route]  # of each row
    by_unit: list[list[int]] | None  # indexes of the rows of each unit; None: each row is one

    @classmethod
    def of(
        cls, model: AdaptiveModel, kind: Kind, units: Sequence[Any], plans: Sequence[Plan], max_length: int | None
    ) -> Job:
        rows = kind.encode(model.tokenizer, units, model.labels, kind.row_length(model, max_length))
        routes = {plan: model.route(plan) for plan in dict.fromkeys(plans)}
        if all(row.unit is None for row in rows):
            return cls(kind, model.labels, rows, [routes[plan] for plan in plans], None)
        by_unit = kind.by_unit(rows)
        of_row = {index: routes[plan] for plan, indexes in zip(plans, by_unit, strict=True) for index in indexes}
        return cls(kind, model.labels, rows, [of_row[index] for index in range(len(rows))], by_unit)

    def predictions(self, answered: Answered) -> list[Prediction]:
        """Of every unit, from the answers to all rows."""
        order = answered.rows.argsort()
        logits: Sequence[Tensor] = answered.logits[order].float()  # type: ignore[assignment]
        layers, tokens = answered.layers[order].tolist(), answered.tokens[order].tolist()
        if self.kind.per_token:
            logits = [its[: len(row)] for its, row in zip(logits, self.rows, strict=True)]
        if self.by_unit is None:
            decoded = self.kind.decode_rows(self.rows, logits, self.labels)
            return [one.after(ran, run, 1) for one, ran, run in zip(decoded, layers, tokens, strict=True)]
        found = []
        for unit in self.by_unit:
            one = self.kind.decode([self.rows[row] for row in unit], [logits[row] for row in unit], self.labels)
            found.append(one.after(sum(layers[row] for row in unit), sum(tokens[row] for row in unit), len(unit)))
        return found
