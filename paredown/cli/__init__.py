"""The command line: one file per command."""

from paredown.cli import demo, elue, evaluate, export, info, lengthen, predict, pretrain, train
from paredown.cli._app import app, main

__all__ = ["app", "demo", "elue", "evaluate", "export", "info", "lengthen", "main", "predict", "pretrain", "train"]
