"""The command line: one file per command."""

from paredown.cli import demo, evaluate, info, predict, train
from paredown.cli._app import app, main

__all__ = ["app", "demo", "evaluate", "info", "main", "predict", "train"]
