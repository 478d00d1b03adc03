"""The end of a training run that shall keep a promise: rows that only the certificate sees, and the certified plan."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from paredown.answers import Encoded, Kind
from paredown.bundle import save_plan
from paredown.calibration import Calibrated, Promise, Risk, calibrate
from paredown.calibration.calibrating import SELECTION
from paredown.errors import BadSetting, CannotPromise
from paredown.evaluation import Metric
from paredown.model import AdaptiveModel
from paredown.plan import Plan

SHARE, MOST = 0.2, 4000  # of the training rows, that certify where no others are given
log = logging.getLogger("paredown.training")


def promise_of(max_drop: float | None, confidence: float | None, risk: str, given: str | None) -> Promise | None:
    """What --max-drop and --confidence promise together; without the latter, nothing."""
    if confidence is None:
        if given is not None:
            raise BadSetting("--calibration rows certify a plan: say how sure it shall be, --confidence 0.95")
        return None
    if max_drop is None:
        raise BadSetting("--confidence is about a loss of score: say how large it may be, --max-drop 0.01")
    return Promise(max_drop, confidence=confidence, risk=risk)  # type: ignore[arg-type]


def held_out(rows: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Rows to learn from, and a fifth of them, at most 4,000, that only the certificate sees; logged."""
    size = min(int(SHARE * len(rows)), MOST)
    chosen = set(np.random.default_rng(1).permutation(len(rows))[:size].tolist())
    log.info("%s of the %s training rows are held out to certify the plan", f"{size:,}", f"{len(rows):,}")
    learnt = [row for index, row in enumerate(rows) if index not in chosen]
    return learnt, [rows[index] for index in sorted(chosen)]


@dataclass(frozen=True)
class Certifying:
    """A promise, and encoded rows to certify it on."""

    promise: Promise
    rows: Sequence[Encoded]
    metric: Metric
    dev: Sequence[Encoded] = ()

    @property
    def choose_on(self) -> Sequence[Encoded] | None:
        """Dev rows, where these are as many as would choose of the others: then all of those can test."""
        return self.dev if self.dev and len(self.dev) >= SELECTION * len(self.rows) else None

    def check(self, kind: Kind) -> None:
        """Say before training, not after it, what cannot be promised."""
        labelled = all(row.label is not None or not row.teaches for row in self.rows)
        Risk(self.promise.risk, self.metric).check(kind, labelled)

    def certify(self, bundle: Path, device: Any) -> tuple[Plan, Calibrated | None, str | None]:
        """The plan that is now in the bundle, how it was certified, or why it was not: then every row runs to the end,
        which keeps any promise. The model is that of the bundle, as it will be loaded."""
        model = AdaptiveModel.from_pretrained(bundle).to(device)
        try:
            done = calibrate(model, self.rows, self.promise, metric=self.metric, choose_on=self.choose_on)
        except CannotPromise as error:
            full = Plan(model.plan.depth)
            save_plan(bundle, full)
            return full, None, f"{error}; so every row runs to the end"
        save_plan(bundle, done.plan, done.certificate)
        return done.plan, done, None
