"""Units that belong together: by their class and by their length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from paredown.calibration.judged import Judged

MOST_CLASSES, LENGTHS = 12, 5


@dataclass(frozen=True)
class Grouping:
    title: str
    names: list[str]
    of: np.ndarray  # [units] the number of each unit's group


def groupings(judged: Judged, labels: Sequence[str]) -> list[Grouping]:
    return [one for one in (_by_class(judged, labels), _by_length(judged)) if one is not None]


def _by_class(judged: Judged, labels: Sequence[str]) -> Grouping | None:
    """By the right label; numbers by thirds; None where a unit has no single answer."""
    right, kind = judged.record.labels, judged.record.kind
    if right is None or right[0].numel() != 1 or kind.grouped or kind.per_token:
        return None
    values = right.flatten().numpy()
    if kind.numeric:
        return _parts("right answer", values, 3, "{:.3g} to {:.3g}")
    classes, counts = np.unique(values.astype(int), return_counts=True)
    often = classes[np.argsort(-counts, kind="stable")][: MOST_CLASSES if len(classes) > MOST_CLASSES else None]
    numbers = {number: at for at, number in enumerate(sorted(often.tolist()))}
    names = [labels[number] for number in numbers]
    if len(often) < len(classes):
        names.append(f"{len(classes) - len(often)} rarer classes")
    return Grouping("class", names, np.array([numbers.get(int(value), len(often)) for value in values]))


def _by_length(judged: Judged) -> Grouping:
    """By tokens, in parts of about as many units; a question with all its windows or options."""
    record = judged.record
    tokens = record.summed(record.lengths.unsqueeze(1)).squeeze(1).numpy()
    return _parts("length", np.bincount(judged.unit_of, tokens), LENGTHS, "{:,.0f} to {:,.0f} tokens")


def _parts(title: str, values: np.ndarray, parts: int, text: str) -> Grouping:
    """Groups of neighbouring values, about as large; equal values are in the same one."""
    inner = np.unique(np.quantile(values, np.linspace(0, 1, parts + 1)[1:-1], method="higher"))
    of = np.unique(np.searchsorted(inner, values, side="right"), return_inverse=True)[1]
    names = []
    for number in range(int(of.max()) + 1):
        its = values[of == number]
        names.append(text.format(its.min(), its.max()))
    return Grouping(title, names, of)
