"""Rows to look at: the hardest and the easiest of every rule, with their texts and answers, and which tokens left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from paredown.answers import Choices, Encoded, Question, collate, flat
from paredown.calibration.judged import Judged
from paredown.engine import Observer, run_steps
from paredown.evaluation.replay import certainties
from paredown.model import AdaptiveModel
from paredown.plan import Plan
from paredown.reporting.compact import changes
from paredown.reporting.curves import RuleCurve
from paredown.route import Step
from paredown.state import State

MOST_ROWS = 200  # in all, of hard and easy ones
MOST_CHARACTERS, MOST_OF_ANSWER, MOST_TOKENS = 400, 100, 200  # shown of a text
MARKS = ("##", "Ġ", "▁", "</w>")  # that tokenizers put at the ends of tokens


@dataclass(frozen=True)
class Examples:
    """The units of a model's rows, for people."""

    model: AdaptiveModel
    encoded: Sequence[Encoded]
    asked: Sequence[Any] | None  # what was encoded; None: token ids are all there is
    judged: Judged

    def of(self, curves: Sequence[RuleCurve], units: np.ndarray, many: int, scale: int) -> list[dict[str, Any]]:
        """The hardest and the easiest of the units, `many` of both for every rule, or as many as the page has room
        for, by their mean layers over all settings. `answers` are by rule: of each state of a unit, which of the
        things it `said`."""
        many = min(many, max(MOST_ROWS // (2 * max(len(curves), 1)), 1))
        chosen: dict[int, dict[str, list[str]]] = {}
        for curve in curves:
            order = units[np.argsort(curve.layers[:, units].mean(0), kind="stable")]
            some = dict.fromkeys([*order[:many].tolist(), *order[::-1][:many].tolist()])
            for unit, answers in zip(some, self._answers(curve, list(some), scale), strict=True):
                chosen.setdefault(unit, {})[curve.name] = answers
        where = {int(unit): at for at, unit in enumerate(units)}
        full = self._at_full_depth(list(chosen))
        return [
            {"unit": where[unit], "text": self.text(unit), "right": self.right(unit), **_told(answers, at_end)}
            for (unit, answers), at_end in zip(chosen.items(), full, strict=True)
        ]

    def _answers(self, curve: RuleCurve, units: list[int], scale: int) -> list[list[str]]:
        """Of each unit, what it answers in each of its states."""
        seen, changed = certainties(self.judged.record, curve.rules[0]), changes(curve, scale)
        exits = seen.exits(curve.rules).numpy()  # [settings, rows]
        return [[self._said(unit, seen.outputs, exits[at]) for at in np.nonzero(changed[:, unit])[0]] for unit in units]

    def _at_full_depth(self, units: list[int]) -> list[str]:
        full = self.judged.full
        exits = np.zeros(len(full), int)
        return [self._said(unit, [full.logits[full.stops[-1]]], exits) for unit in units]

    def _said(self, unit: int, outputs: Sequence[torch.Tensor], exits: np.ndarray) -> str:
        record = self.judged.record
        if record.windows:
            return _text(record.decoded(unit, outputs, exits[record.units[unit]].tolist()).label)
        row = self.encoded[unit]
        logits = outputs[exits[unit]][unit]
        if record.kind.per_token or record.kind.grouped:
            logits = logits[: len(row.options) or len(row)]
        return _text(record.kind.decode([row], [logits], self.model.labels).label)

    # Texts

    def _first_row(self, unit: int) -> Encoded:
        return self.encoded[self.judged.record.units[unit][0]]

    def text(self, unit: int) -> str:
        asked = self._first_row(unit).asked if self.asked is None else self.asked[unit]
        if asked is None:
            ids = flat([self._first_row(unit)])[0].ids["input_ids"]
            return _cut(self.model.tokenizer.decode(ids, skip_special_tokens=True))
        if isinstance(asked, (Question, Choices)):
            return _cut(asked.question) + (f" — {_cut(asked.context)}" if asked.context else "")
        text = asked.text if isinstance(asked.text, str) else " ".join(asked.text)
        return _cut(text) if asked.pair is None else f"{_cut(text)} — {_cut(asked.pair)}"

    def right(self, unit: int) -> str:
        """The right answer; empty where it is several things at once."""
        asked = self._first_row(unit).asked if self.asked is None else self.asked[unit]
        if isinstance(asked, Question):
            return "no answer" if asked.impossible else _text(asked.choice or " / ".join(dict.fromkeys(asked.answers)))
        if isinstance(asked, Choices):
            return "" if asked.label is None else _text(asked.options[asked.label])
        label = self._first_row(unit).label
        labels, kind = self.model.labels, self.judged.record.kind
        if kind.numeric or isinstance(label, float):
            return _text(label)
        return labels[label] if isinstance(label, int) else "" if asked is None else _text(asked.label)

    # Tokens

    @torch.no_grad()
    def dropped(self, plan: Plan, units: np.ndarray, many: int) -> list[dict[str, Any]]:
        """Some units, of all lengths: their tokens, and in how many layers each was. Of several rows the first."""
        lengths = [len(self._first_row(int(unit))) for unit in units]
        order = units[np.argsort(lengths, kind="stable")]
        some = order[np.unique(np.linspace(0, len(order) - 1, min(many, len(order))).astype(int))]
        where = {int(unit): at for at, unit in enumerate(units)}
        found = []
        for unit in map(int, some):
            row = flat([self._first_row(unit)])[0]
            names = self.model.tokenizer.convert_ids_to_tokens(row.ids["input_ids"])[:MOST_TOKENS]
            layers = _layers_of_tokens(self.model, plan, row)[:MOST_TOKENS]
            found.append({"unit": where[unit], "tokens": [_plain(name) for name in names], "layers": layers})
        return found


class _Surviving(Observer):
    """Counts the layers that each token of a row is in."""

    def __init__(self, tokens: int):
        self.layers = [0] * tokens

    def before(self, state: State, step: Step) -> State:
        for position in state.position.flatten().tolist():
            self.layers[position] += 1
        return state


def _layers_of_tokens(model: AdaptiveModel, plan: Plan, row: Encoded) -> list[int]:
    route, surviving = model.route(plan.but(exit=None)), _Surviving(len(row))
    batch = collate([row], model.tokenizer.pad_token_id, model.device)
    batch["group"] = torch.zeros(1, dtype=torch.long, device=model.device)  # of a question, one option
    run_steps(model.walk, route.steps, model.embed(batch, joinable=True), surviving)
    return surviving.layers


def _told(answers: dict[str, list[str]], at_end: str) -> dict[str, Any]:
    """Every answer once, that at full depth first, and by rule the numbers of those given."""
    numbers = {
        said: at for at, said in enumerate(dict.fromkeys([at_end, *(one for its in answers.values() for one in its)]))
    }
    return {"said": list(numbers), "answers": {rule: [numbers[one] for one in its] for rule, its in answers.items()}}


def _plain(token: str | None) -> str:
    """A token without the marks of its tokenizer, which may not know it."""
    text = token or ""
    for mark in MARKS:
        text = text.removeprefix(mark).removesuffix(mark)
    return text or "·"


def _cut(text: str, most: int = MOST_CHARACTERS) -> str:
    return text if len(text) <= most else text[:most].rstrip() + "…"


def _text(answer: Any) -> str:
    if isinstance(answer, float):
        return f"{answer:.4g}"
    if isinstance(answer, (list, tuple)):
        return _cut(" ".join("·" if one is None else str(one) for one in answer), MOST_OF_ANSWER) or "none"
    return _cut(str(answer), MOST_OF_ANSWER) or "no answer"
