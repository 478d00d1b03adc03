"""The command line: one file per command."""

from paredown.cli import demo, elue, evaluate, export, info, predict, pretrain, train
from paredown.cli._app import app, main

__all__ = ["app", "demo", "elue", "evaluate", "export", "info", "main", "predict", "pretrain", "train"]
