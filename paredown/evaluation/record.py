"""One pass over the data that keeps what every head says, so that every exit rule can be tried without the model."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from paredown.answers import IGNORED, RULED_OUT, Encoded, Kind, collate, flat
from paredown.answers._questions import is_labelled
from paredown.answers._rows import by_unit
from paredown.engine import Recording, run_steps
from paredown.errors import BadInput, NonFiniteAnswer
from paredown.evaluation.metrics import Metric
from paredown.model import AdaptiveModel
from paredown.plan import Plan
from paredown.state import Evidence, not_a_number


@dataclass(frozen=True)
class Record:
    kind: Kind
    logits: dict[int, Tensor]  # by layers run; the largest is the answer at full depth
    doubt: dict[int, Tensor]  # likewise, where the model has learned to doubt
    labels: Tensor | None
    lengths: Tensor  # [rows] tokens; questions have a row for each option
    counts: Tensor | None = None  # [rows, tokens, …] where every token is answered, [questions, options] of a choice
    plan: Plan = field(default_factory=Plan)  # the depth and the reducer this was recorded with; it has no exit rule
    dropped_to: Tensor | None = None  # [rows, layers run] tokens left in each layer; None: all
    group: Tensor | None = None  # [rows] the question of each row, where several rows are its options
    windows: tuple[Any, ...] = ()  # the rows, where questions are read in windows: what is judged is decoded from them
    # Computed once; a record made from this one by `replace` starts without.
    _evidence: dict[int, Evidence] = field(default_factory=dict, init=False, repr=False, compare=False)
    _certainties: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    _scored: dict[Any, float] = field(default_factory=dict, init=False, repr=False, compare=False)
    _decoded: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.logits[self.stops[-1]])

    @cached_property
    def units(self) -> list[list[int]]:
        """The indexes of the rows of every unit that is judged."""
        return by_unit(self.windows) if self.windows else [[index] for index in range(len(self))]

    @property
    def labelled(self) -> bool:
        """Whether it is known what is right."""
        return all(is_labelled(row.asked) for row in self.windows) if self.windows else self.labels is not None

    @property
    def stops(self) -> list[int]:
        """Layers run at every place where a row can leave, the end included."""
        return sorted(self.logits)

    @property
    def depth(self) -> tuple[int, ...]:
        """The layers that ran."""
        return self.plan.depth or tuple(range(self.stops[-1]))

    @property
    def tokens(self) -> Tensor:
        """[rows, layers run] tokens in each layer."""
        if self.dropped_to is None:
            return self.lengths.unsqueeze(1).expand(-1, self.stops[-1])
        return self.dropped_to

    def summed(self, work: Tensor) -> Tensor:
        """Work of rows, [rows, …], as that of questions: a sum over their options."""
        if self.group is None:
            return work
        return work.new_zeros(len(self), *work.shape[1:]).index_add_(0, self.group, work)

    def check_finite(self) -> None:
        """Raise where a head answered NaN or infinity: no rule and no score can make sense of it."""
        for layer, logits in self.logits.items():
            if bool((bad := not_a_number(logits)).any()):
                where = bad.nonzero().flatten()[:10].tolist()
                raise NonFiniteAnswer(f"after layer {layer} the model answered NaN or infinity for rows {where}")

    def evidence(self, layer: int) -> Evidence:
        """What an exit rule sees after so many layers; kept, so that what it computes of it is computed once."""
        if layer not in self._evidence:
            evidence = Evidence(self.kind, self.logits[layer], layer, self.counts, self.doubt.get(layer))
            self._evidence[layer] = evidence
        return self._evidence[layer]

    def answers(self, logits: Tensor, metric: Metric) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Predicted and right answers as the metric reads them, and the row each belongs to."""
        if not self.labelled:
            raise BadInput("rows without labels cannot be scored")
        if self.windows:
            return self.answers_of_units(*self._traced(logits))
        assert self.labels is not None
        if getattr(metric, "of_scores", False):  # it ranks rows
            return self.kind.ranked(logits).numpy(), self.labels.numpy(), np.arange(len(self))
        predicted, labels, row = self.kind.judged(logits, self.labels)
        return predicted.numpy(), labels.numpy(), row.numpy()

    def answers_of_units(
        self, outputs: Sequence[Tensor], exits: Sequence[int], kept: dict[Any, Any] | None = None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The same for units of several windows, each of which leaves with `outputs[exit]`. What was decoded is kept:
        at most thresholds most windows leave where they left at others."""
        kept = self._decoded if kept is None else kept
        asked = [self.windows[indexes[0]].asked for indexes in self.units]
        kind, predictions = self.kind.judging(asked), []
        for unit, indexes in enumerate(self.units):
            key = (unit, *[id(outputs[exits[index]]) for index in indexes])
            if key not in kept:
                windows = [self.windows[index] for index in indexes]
                logits = [outputs[exits[index]][index][: len(self.windows[index])] for index in indexes]
                kept[key] = kind.decode(windows, logits, ())
            predictions.append(kept[key])
        return *self.kind.judged_units(predictions, asked), np.arange(len(asked))

    def _traced(self, logits: Tensor) -> tuple[list[Tensor], list[int], dict[Any, Any] | None]:
        """The outputs that rows may have left with, and which each did; a dict where these are not the record's own,
        so that nothing is remembered of them."""
        exits = torch.full((len(self),), len(self.stops))
        for index, stop in enumerate(self.stops):
            exits[(logits == self.logits[stop]).flatten(1).all(1)] = index
        outputs = [*(self.logits[stop] for stop in self.stops), logits]
        return outputs, exits.tolist(), {} if bool((exits == len(self.stops)).any()) else None

    def score(self, logits: Tensor, metric: Metric) -> float:
        """A metric of any logits of these rows."""
        predicted, labels, _ = self.answers(logits, metric)
        return self.score_answers(predicted, labels, metric)

    def score_answers(self, predicted: np.ndarray, labels: np.ndarray, metric: Metric) -> float:
        """A metric of answers as `answers` gives them; neighbouring thresholds often give the same, scored once."""
        if predicted.dtype == object:  # predictions, whose bytes are their addresses
            return float(metric(predicted, labels))
        key = (metric, hashlib.blake2b(predicted.tobytes()).digest())
        if key not in self._scored:
            self._scored[key] = float(metric(predicted, labels))
        return self._scored[key]

    def scores(self, metric: Metric) -> dict[int, float]:
        """The metric at every exit, by layers run."""
        return {layer: self.score(logits, metric) for layer, logits in self.logits.items()}


def record(model: AdaptiveModel, rows: Sequence[Encoded], batch_size: int = 64, plan: Plan | None = None) -> Record:
    """Run every head over all rows, longest first, so that memory runs out at once or not at all.

    Of `plan` (default: the model's depth), depth and reducer are used; nobody leaves.
    """
    if not rows:
        raise BadInput("there are no rows to record")
    plan = Plan(model.plan.depth) if plan is None else plan.but(exit=None)
    model.check_mode()
    route = model.route(plan)
    order = sorted(range(len(rows)), key=lambda place: -len(rows[place]))
    width = len(rows[order[0]]) if model.kind.per_token else max(len(row.options) for row in rows) or None
    words = width if model.kind.per_word else None  # only these have a doubt for each token
    heard: list[list[Evidence]] = []
    tokens, asked, labels = [], [], []
    with torch.no_grad():
        for start in range(0, len(rows), batch_size):
            chosen = [rows[place] for place in order[start : start + batch_size]]
            batch = collate(chosen, model.tokenizer.pad_token_id, model.device)
            if (right := batch.pop("labels", None)) is not None and not model.kind.windowed:
                labels.append(right)
            seen = Recording(model)
            run_steps(model.walk, route.steps, model.embed(batch, joinable=route.drops_tokens), seen)
            heard.append([_kept_evidence(evidence, width, words) for evidence in seen.evidence])
            tokens.append(torch.stack(seen.tokens, 1).cpu())
            if width is not None:
                asked.append(_kept(model.kind.answer_mask(batch), width, exact=True))
    back = torch.tensor(order).argsort()
    number = torch.arange(len(rows)).repeat_interleave(torch.tensor([len(row.options) or 1 for row in rows]))
    read = torch.argsort(back[number], stable=True).argsort()  # where the encoder read each row
    stops = {evidence.step: place for place, evidence in enumerate(heard[0])}
    doubted = {layer: place for layer, place in stops.items() if heard[0][place].doubt is not None}
    return Record(
        model.kind,
        {layer: torch.cat([said[place].logits for said in heard])[back] for layer, place in stops.items()},
        {layer: torch.cat([_doubt(said[place]) for said in heard])[back] for layer, place in doubted.items()},
        _joined(labels)[back] if len(labels) == len(heard) else None,
        torch.tensor([len(one) for one in flat(rows)]),
        torch.cat(asked)[back] if asked else None,
        plan,
        None if plan.reduce is None else torch.cat(tokens)[read],
        number if model.kind.grouped else None,
        tuple(rows) if model.kind.windowed else (),
    )


def _kept_evidence(evidence: Evidence, width: int | None, words: int | None) -> Evidence:
    doubt = None if evidence.doubt is None else _kept(evidence.doubt, words)
    return Evidence(evidence.kind, _kept(evidence.logits, width, RULED_OUT), evidence.step, None, doubt)


def _doubt(evidence: Evidence) -> Tensor:
    assert evidence.doubt is not None
    return evidence.doubt


def _joined(labels: list[Tensor]) -> Tensor:
    """The labels of all batches, as wide as the widest."""
    width = max(part.shape[1] for part in labels) if labels[0].dim() > 1 else None
    return torch.cat([_kept(part, width, IGNORED, exact=True) for part in labels])


def _kept(value: Tensor, width: int | None, fill: float = 0.0, exact: bool = False) -> Tensor:
    """On the CPU, in 32 bits unless `exact`, with the tokens of every batch padded to the same width."""
    value = value.cpu() if exact else value.float().cpu()
    if width is None or value.shape[1] == width:
        return value
    missing = value.new_full((value.shape[0], width - value.shape[1], *value.shape[2:]), fill)
    return torch.cat([value, missing], dim=1)
