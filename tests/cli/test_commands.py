"""What every command takes."""

from __future__ import annotations

from typing import Any

import pytest
from typer.main import get_command

from paredown.cli import app

COMMANDS: dict[str, Any] = get_command(app).commands  # type: ignore[attr-defined]
LOOKS_ONLY = {"info"}  # does no work that could be foreseen


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_takes_the_common_flags(name: str) -> None:
    taken = {option for parameter in COMMANDS[name].params for option in parameter.opts}
    assert {"--json", "--config", *([] if name in LOOKS_ONLY else ["--dry-run"])} <= taken
    assert COMMANDS[name].help
