"""What the page holds of every unit, as bytes: for each rule the settings where a unit's layers or score change."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np

from paredown.reporting.curves import RuleCurve

MOST_UNITS, MOST_BYTES = 5000, 1_200_000  # kept in the page; of all rules, before base64


def layer_scale(depth: int) -> int:
    """Layers are kept as whole multiples of this part of a layer; whole layers are then exact."""
    return max(255 // depth, 1)


def changes(curve: RuleCurve, scale: int) -> np.ndarray:
    """[settings, units] True where a unit's layers or score differ from the setting before; in the first, always."""
    bytes_ = np.stack([_bytes(curve.layers, scale), _bytes(curve.scores, 255)])
    found = np.ones(curve.layers.shape, bool)
    found[1:] = (bytes_[:, 1:] != bytes_[:, :-1]).any(0)
    return found


def kept_units(curves: Sequence[RuleCurve], units: int, scale: int, seed: int = 0) -> np.ndarray:
    """The units that fit in the page: all, or as many drawn at random."""
    per_unit = sum(1 + 3 * changes(curve, scale).sum() / units for curve in curves)
    most = min(units, MOST_UNITS, int(MOST_BYTES / max(per_unit, 1)))
    return np.sort(np.random.default_rng(seed).permutation(units)[:most])


def packed(curve: RuleCurve, units: np.ndarray, scale: int) -> dict[str, str]:
    """For each unit how many states it goes through; then, unit by unit, from which setting on each holds, and its
    layers and score."""
    changed = changes(curve, scale)[:, units].T  # [units, settings]
    return {
        "counts": encoded(changed.sum(1)),
        "from": encoded(np.nonzero(changed)[1]),
        "layers": encoded(_bytes(curve.layers, scale)[:, units].T[changed]),
        "scores": encoded(_bytes(curve.scores, 255)[:, units].T[changed]),
    }


def encoded(values: Any) -> str:
    return base64.b64encode(np.asarray(values).astype(np.uint8).tobytes()).decode()


def _bytes(values: np.ndarray, scale: int) -> np.ndarray:
    return np.rint(values * scale).astype(np.uint8)
