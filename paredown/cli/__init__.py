"""The command line: one file per command."""

from paredown.cli._app import app, main
from paredown.cli._commands import COMMANDS, command

__all__ = ["COMMANDS", "app", "command", "main"]
