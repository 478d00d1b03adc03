"""Run methods stage by stage: resumable to the bit, saved so that a crash costs nothing, stopped at the first NaN."""

from paredown.training.loop import train
from paredown.training.report import Evaluation, Report, StageReport

__all__ = ["Evaluation", "Report", "StageReport", "train"]
