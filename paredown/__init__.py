"""Transformer encoders that spend compute only where it is needed. Train once, then choose how to spend."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from paredown import answers, exits, heads, methods, published, reducers, tasks
    from paredown.answers import Prediction
    from paredown.calibration import Promise, calibrate
    from paredown.evaluation import evaluate, record
    from paredown.methods._stage import Stage
    from paredown.model import AdaptiveModel
    from paredown.plan import Plan
    from paredown.state import Answer
    from paredown.training import train

__version__ = "0.1.0"
__all__ = [
    "AdaptiveModel",
    "Answer",
    "Plan",
    "Prediction",
    "Promise",
    "Stage",
    "answers",
    "calibrate",
    "evaluate",
    "exits",
    "heads",
    "methods",
    "published",
    "record",
    "reducers",
    "tasks",
    "train",
]
_HOMES = {
    "AdaptiveModel": "model",
    "Answer": "state",
    "Plan": "plan",
    "Prediction": "answers",
    "Promise": "calibration",
    "Stage": "methods._stage",
    "calibrate": "calibration",
    "evaluate": "evaluation",
    "record": "evaluation",
    "train": "training",
}

if not TYPE_CHECKING:  # a type checker would take any name for one of ours

    def __getattr__(name: str) -> Any:
        """A public name, imported when it is first used: torch and transformers take seconds."""
        if name not in __all__:
            raise AttributeError(f"module 'paredown' has no attribute {name!r}")
        home = import_module(f"paredown.{_HOMES.get(name, name)}")
        value = globals()[name] = getattr(home, name) if name in _HOMES else home
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
