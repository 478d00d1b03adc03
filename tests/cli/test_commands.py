"""What every command takes, and what the list of commands shows before any of them is imported."""

from __future__ import annotations

from pathlib import Path

import pytest

import paredown.cli
from paredown.cli import COMMANDS, command
from paredown.cli._commands import Listed

LOOKS_ONLY = {"info"}  # does no work that could be foreseen


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_takes_the_common_flags(name: str) -> None:
    taken = {option for parameter in command(name).params for option in parameter.opts}
    assert {"--json", "--config", *([] if name in LOOKS_ONLY else ["--dry-run"])} <= taken
    assert command(name).help


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_of_commands_shows_the_help_that_a_command_has(name: str) -> None:
    assert Listed(name).help == command(name).help


def test_every_module_without_an_underscore_is_a_command() -> None:
    modules = {path.stem for path in Path(paredown.cli.__file__).parent.glob("[a-z]*.py")}
    assert {name.rstrip("_") for name in modules} == set(COMMANDS)
