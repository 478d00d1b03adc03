"""Transformer encoders that spend compute only where it is needed. Train once, then choose how to spend."""

from paredown import exits, heads, methods, published, reducers, tasks  # importing a catalogue registers its entries
from paredown.answers import Answer, Prediction
from paredown.model import AdaptiveModel
from paredown.plan import Plan
from paredown.stage import Stage

__version__ = "0.1.0"
__all__ = [
    "AdaptiveModel",
    "Answer",
    "Plan",
    "Prediction",
    "Stage",
    "exits",
    "heads",
    "methods",
    "published",
    "reducers",
    "tasks",
]
