"""One pass over the data that keeps what every head says, so that every plan can be tried afterwards without the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from paredown.evaluation.metrics import Metric
from paredown.evidence import Evidence
from paredown.kinds import IGNORED, Kind
from paredown.model import AdaptiveModel
from paredown.rows import Encoded, collate
from paredown.walk import evaluating


@dataclass(frozen=True)
class Record:
    kind: Kind
    logits: dict[int, Tensor]  # by layers run; the largest is the answer at full depth
    doubt: dict[int, Tensor]  # likewise, where the model has learned to doubt
    labels: Tensor | None
    lengths: Tensor  # [rows] tokens
    counts: Tensor | None = None  # [rows, tokens], only where every token is answered

    def evidence(self, layer: int) -> Evidence:
        """What an exit rule sees after so many layers."""
        return Evidence(self.kind, self.logits[layer], layer, self.counts, self.doubt.get(layer))

    def score(self, logits: Tensor, metric: Metric) -> float:
        """A metric of any answers to these rows."""
        if self.labels is None:
            raise ValueError("rows without labels cannot be scored")
        predicted, labels = self.kind.predicted(logits), self.labels
        if self.kind.per_token:
            asked = labels != IGNORED
            predicted, labels = predicted[asked], labels[asked]
        elif self.kind.name == "single_label":
            predicted = predicted.squeeze(1)
        return metric(predicted.numpy(), labels.numpy())

    def scores(self, metric: Metric) -> dict[int, float]:
        """The metric at every exit, by layers run."""
        return {layer: self.score(logits, metric) for layer, logits in self.logits.items()}


def record(model: AdaptiveModel, rows: Sequence[Encoded], batch_size: int = 64) -> Record:
    """Run every head over all rows, longest first, so that memory runs out at once or not at all."""
    order = sorted(range(len(rows)), key=lambda place: -len(rows[place]))
    width = len(rows[order[0]])
    pieces: list[tuple[dict[int, Tensor], dict[int, Tensor]]] = []
    asked, labels = [], []
    with torch.no_grad(), evaluating(model):
        for start in range(0, len(rows), batch_size):
            chosen = [rows[place] for place in order[start : start + batch_size]]
            batch = collate(chosen, model.tokenizer.pad_token_id, model.device)
            trace = model.trace(batch)
            said = {layer + 1: logits for layer, logits in trace.logits.items()} | {trace.last + 1: trace.final}
            widen = width if model.kind.per_token else None
            pieces.append(
                (
                    {layer: _kept(logits, widen) for layer, logits in said.items()},
                    {layer + 1: _kept(doubt, widen) for layer, doubt in trace.doubt.items()},
                )
            )
            if model.kind.per_token:
                asked.append(_kept(batch["answer_mask"], width).bool())
            if "labels" in batch:
                labels.append(_kept(batch["labels"], widen, IGNORED, exact=True))
    back = torch.tensor(order).argsort()
    return Record(
        model.kind,
        {layer: torch.cat([logits[layer] for logits, _ in pieces])[back] for layer in pieces[0][0]},
        {layer: torch.cat([doubt[layer] for _, doubt in pieces])[back] for layer in pieces[0][1]},
        torch.cat(labels)[back] if len(labels) == len(pieces) else None,
        torch.tensor([len(row) for row in rows]),
        torch.cat(asked)[back] if asked else None,
    )


def _kept(value: Tensor, width: int | None, fill: float = 0.0, exact: bool = False) -> Tensor:
    """On the CPU, in 32 bits unless `exact`, with the tokens of every batch padded to the same width."""
    value = value.cpu() if exact else value.float().cpu()
    if width is None or value.shape[1] == width:
        return value
    missing = value.new_full((value.shape[0], width - value.shape[1], *value.shape[2:]), fill)
    return torch.cat([value, missing], dim=1)
