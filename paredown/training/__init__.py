"""Run methods stage by stage: resumable to the bit, saved so that a crash costs nothing, stopped at the first NaN."""

from paredown.training.loop import train
from paredown.training.report import DevEvaluation, Report, StageReport

__all__ = ["DevEvaluation", "Report", "StageReport", "train"]
