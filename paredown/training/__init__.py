"""Run methods stage by stage: resumable to the bit, saved so that a crash costs nothing, stopped at the first NaN."""

from paredown.training.guard import CannotSave, Interrupted, NonFiniteLoss, OutOfMemory
from paredown.training.loop import train
from paredown.training.report import Evaluation, Report, StageReport

__all__ = [
    "CannotSave",
    "Evaluation",
    "Interrupted",
    "NonFiniteLoss",
    "OutOfMemory",
    "Report",
    "StageReport",
    "train",
]
