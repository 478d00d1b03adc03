"""One pass over the data that keeps every head's logits, so that every exit rule can be tried without the model."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from pathlib import Path
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
from paredown.evaluation.record_file import Facts, InMemory, Rows, hashes_of, is_record, read, writing
from paredown.model import AdaptiveModel
from paredown.plan import Plan
from paredown.state import Evidence, not_a_number

LOGITS, ERRORS = "logits.", "error_probability."  # names of tensors, before the number of layers run
READ = ("lengths", "dropped_to", "group")  # tensors of the rows that the encoder reads, options each on their own
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Record:
    kind: Kind
    logits: dict[int, Tensor]  # by layers run; the largest is the answer at full depth
    error_probability: dict[int, Tensor]  # likewise, where the model estimates it
    labels: Tensor | None
    lengths: Tensor  # [rows] tokens; questions have a row for each option
    answer_mask: Tensor | None = (
        None  # [rows, tokens, …] where every token is answered, [questions, options] of a choice
    )
    plan: Plan = field(default_factory=Plan)  # the depth and the reducer this was recorded with; it has no exit rule
    dropped_to: Tensor | None = None  # [rows, layers run] tokens left in each layer; None: all
    group: Tensor | None = None  # [rows] the question of each row, where several rows are its options
    windows: tuple[Any, ...] = ()  # the rows, where questions are read in windows: what is judged is decoded from them
    hashes: Mapping[str, str] = field(default_factory=dict, repr=False)  # sha256 of data, model and plan, where known
    # Computed once; a record made from this one by `replace` starts without.
    _evidence: dict[int, Evidence] = field(default_factory=dict, init=False, repr=False, compare=False)
    _certainties: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    _scored: dict[Any, float] = field(default_factory=dict, init=False, repr=False, compare=False)
    _decoded: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    # On disk

    @classmethod
    def of(cls, facts: Facts, tensors: Mapping[str, Tensor]) -> Record:
        """A record from its parts, as they stand in a file."""
        logits, errors = (
            {int(name.removeprefix(start)): value for name, value in tensors.items() if name.startswith(start)}
            for start in (LOGITS, ERRORS)
        )
        return cls(
            facts.kind,
            dict(sorted(logits.items())),
            dict(sorted(errors.items())),
            tensors.get("labels"),
            tensors["lengths"],
            tensors.get("answer_mask"),
            facts.plan,
            tensors.get("dropped_to"),
            tensors.get("group"),
            facts.windows,
            facts.hashes,
        )

    def tensors(self) -> dict[str, Tensor]:
        """All tensors, by their names in a file."""
        found: dict[str, Tensor | None] = {f"{LOGITS}{step}": value for step, value in self.logits.items()}
        found |= {f"{ERRORS}{step}": value for step, value in self.error_probability.items()}
        found |= {"labels": self.labels, "lengths": self.lengths, "answer_mask": self.answer_mask}
        found |= {"dropped_to": self.dropped_to, "group": self.group}
        return {name: value for name, value in found.items() if value is not None}

    def save(self, folder: str | Path) -> None:
        """Write a folder; a record in its place is replaced only when the new one is complete."""
        tensors = self.tensors()
        with writing(folder, Facts(self.kind, self.plan, self.hashes, self.windows)) as file:
            file.prepare({name: (value.dtype, tuple(value.shape)) for name, value in tensors.items()})
            for name, value in tensors.items():
                file.put(name, range(len(value)), value)

    @classmethod
    def load(cls, folder: str | Path) -> Record:
        """A saved record. Its tensors are mapped: what is not looked at takes no memory."""
        return cls.of(*read(folder))

    def differs(self, model: AdaptiveModel, rows: Sequence[Encoded], plan: Plan | None = None) -> list[str]:
        """Which of data, model and plan are others than those it was recorded with."""
        now = hashes_of(model, rows, recorded_plan(model, plan))
        return [name for name, value in now.items() if self.hashes.get(name) != value]

    def check_belongs(self, model: AdaptiveModel, rows: Sequence[Encoded], plan: Plan | None = None) -> None:
        """Raise where it was recorded with other rows, another model or another plan."""
        if not self.hashes:
            raise BadInput("this record does not know what it was made from")
        if other := self.differs(model, rows, plan):
            raise BadInput(f"this record was made with another {' and another '.join(other)}")

    # Rows and units

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
        """Layers run at every exit, the end included."""
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
            evidence = Evidence(
                self.kind, self.logits[layer], layer, self.answer_mask, self.error_probability.get(layer)
            )
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
        each = ([exits[index] for index in indexes] for indexes in self.units)
        predictions = [self.decoded(unit, outputs, left, kept) for unit, left in enumerate(each)]
        return *self.kind.judged_units(predictions, self.asked), np.arange(len(self.asked))

    def decoded(
        self, unit: int, outputs: Sequence[Tensor], exits: Sequence[int], kept: dict[Any, Any] | None = None
    ) -> Any:
        """The prediction of a unit, whose windows leave at these exits."""
        kept = self._decoded if kept is None else kept
        key = (unit, *[id(outputs[exit]) for exit in exits])
        if key not in kept:
            rows = list(zip(self.units[unit], exits, strict=True))
            logits = [outputs[exit][index][: len(self.windows[index])] for index, exit in rows]
            kept[key] = self._judging.decode([self.windows[index] for index, _ in rows], logits, ())
        return kept[key]

    @cached_property
    def asked(self) -> list[Any]:
        """What every unit of several windows asks."""
        return [self.windows[indexes[0]].asked for indexes in self.units]

    @cached_property
    def _judging(self) -> Kind:
        return self.kind.judging(self.asked)

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


def record(
    model: AdaptiveModel,
    rows: Sequence[Encoded],
    batch_size: int = 64,
    plan: Plan | None = None,
    to: str | Path | None = None,
    hashed: bool = True,
) -> Record:
    """Run every head over all rows, longest first, so that memory runs out at once or not at all.

    Of `plan` (default: the model's depth), depth and reducer are used; nobody leaves. `to`: a folder that outputs are
    written to batch by batch; the record is then mapped from there. `hashed` False: a record that nobody will save
    need not know which model and rows it is of.
    """
    if not rows:
        raise BadInput("there are no rows to record")
    plan = recorded_plan(model, plan)
    model.check_mode()
    model.route(plan)
    hashes = hashes_of(model, rows, plan) if hashed or to is not None else {}
    facts = Facts(model.kind, plan, hashes, model.kind.windows(rows))
    if to is not None:
        with writing(to, facts) as file:
            _fill(file, model, rows, batch_size, plan)
        return Record.load(to)
    memory = InMemory()
    _fill(memory, model, rows, batch_size, plan)
    return Record.of(facts, memory.tensors)


def recorded_plan(model: AdaptiveModel, plan: Plan | None) -> Plan:
    """What is recorded of a plan: depth and reducer."""
    return Plan(model.plan.depth) if plan is None else plan.but(exit=None)


def record_once(
    model: AdaptiveModel, rows: Sequence[Encoded], batch_size: int, plan: Plan | None, folder: str | Path
) -> Record:
    """The record in the folder, if it is of the same rows, model and plan; else a new one in its place."""
    if is_record(folder):
        found = Record.load(folder)
        if not (other := found.differs(model, rows, plan)):
            log.info("%s is of this model, these rows and this plan: it is used again, nothing is run", folder)
            return found
        log.info("%s was recorded with another %s: it is recorded anew", folder, " and another ".join(other))
    return record(model, rows, batch_size, plan, to=folder)


def _fill(tensors: Rows, model: AdaptiveModel, rows: Sequence[Encoded], batch_size: int, plan: Plan) -> None:
    """Run the batches and put the outputs of every row at its index."""
    order = sorted(range(len(rows)), key=lambda index: -len(rows[index]))
    options = [len(row.options) or 1 for row in rows]
    starts = [0, *accumulate(options)]  # of the rows that the encoder reads, the first of each question
    outputs = _Outputs(model, plan, rows)
    for start in range(0, len(rows), batch_size):
        units = order[start : start + batch_size]
        read = [row for unit in units for row in range(starts[unit], starts[unit + 1])]
        found = outputs.of([rows[unit] for unit in units])
        if rows[0].options:
            found["group"] = torch.tensor([unit for unit in units for _ in range(options[unit])])
        if not start:
            counts = {name: starts[-1] if name in READ else len(rows) for name in found}
            tensors.prepare({name: (its.dtype, (counts[name], *its.shape[1:])) for name, its in found.items()})
        for name, values in found.items():
            tensors.put(name, read if name in READ else units, values)


class _Outputs:
    """The heads' outputs for a batch, as tensors by the names they have in a file; equally wide in every batch."""

    def __init__(self, model: AdaptiveModel, plan: Plan, rows: Sequence[Encoded]):
        self.model, self.route = model, model.route(plan)
        self.width, self.item_width = model.kind.width(rows), model.kind.item_width(rows)
        self.labelled = not model.kind.windows(rows) and all(row.label is not None for row in rows)

    @torch.no_grad()
    def of(self, rows: Sequence[Encoded]) -> dict[str, Tensor]:
        model, kind = self.model, self.model.kind
        batch = collate(rows, model.tokenizer.pad_token_id, model.device)
        labels = batch.pop("labels", None)
        seen = Recording(model)
        state = model.embed(batch, self.route.drops_tokens, backend=model.backend)
        run_steps(model.backend, self.route.steps, state, seen)
        found = {"lengths": torch.tensor([len(one) for one in flat(rows)])}
        for evidence in seen.evidence:
            found[f"{LOGITS}{evidence.step}"] = _padded(evidence.logits.float(), self.width, RULED_OUT)
            if evidence.error_probability is not None:
                found[f"{ERRORS}{evidence.step}"] = _padded(evidence.error_probability.float(), self.item_width)
        if self.labelled and labels is not None:
            found["labels"] = _padded(labels, self.item_width, IGNORED)
        if self.width is not None:
            found["answer_mask"] = _padded(kind.answer_mask(batch), self.width)
        if self.route.plan.reduce is not None:
            found["dropped_to"] = torch.stack(seen.tokens, 1).cpu()
        return found


def _padded(value: Tensor, width: int | None, fill: float = 0.0) -> Tensor:
    """On the CPU, with the tokens of every batch padded to the same width."""
    value = value.cpu()
    if width is None or value.shape[1] == width:
        return value
    missing = value.new_full((value.shape[0], width - value.shape[1], *value.shape[2:]), fill)
    return torch.cat([value, missing], dim=1)
