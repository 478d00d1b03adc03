"""What every command takes, and what the list of commands shows before any of them is imported."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer

import paredown.cli
from paredown.cli import COMMANDS, command, main
from paredown.cli import _options as options
from paredown.cli._commands import Listed
from paredown.cli._spelling import INSTEAD, SAME, understood
from paredown.errors import Interrupted

LOOKS_ONLY = {"bench", "drift", "info"}  # does no work that could be foreseen


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


@dataclass(frozen=True, kw_only=True)
class Group:
    first: Annotated[int, typer.Option(help="One.")] = 1
    second: Annotated[str | None, typer.Option("--other", "-s")] = None


def test_a_group_of_options_is_spread_where_it_stands() -> None:
    seen: list[Any] = []
    lone = typer.Typer()

    @lone.command()
    @options.grouped
    def made(name: str, *, before: int = 0, group: Group, after: options.AsJson = False) -> None:
        """Makes it."""
        seen.append((name, before, group, after))

    made_command = typer.main.get_command(lone)
    names = [str(parameter.name) for parameter in made_command.params]
    assert names[:5] == ["name", "before", "first", "second", "after"] and made_command.help == "Makes it."
    for words in (["a"], ["b", "--before", "2", "-s", "x", "--first", "3", "--json"]):
        made_command(words, standalone_mode=False)
    assert seen == [("a", 0, Group(), False), ("b", 2, Group(first=3, second="x"), True)]


def test_the_version(capsys: Any) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"paredown {paredown.__version__}\n"


@pytest.mark.parametrize("flag", SAME)
def test_flags_of_transformers_are_understood(flag: str) -> None:
    taken = {option for parameter in command("train").params for option in parameter.opts}
    assert SAME[flag] in taken and flag not in taken
    for written in (flag, flag.replace("-", "_").replace("__", "--", 1)):
        assert understood(["train", written, "a_b", f"{written}=c_d"]) == [
            "train",
            SAME[flag],
            "a_b",
            f"{SAME[flag]}=c_d",
        ]


def test_a_model_behind_a_flag_is_the_argument() -> None:
    assert understood(["train", "--model_name_or_path", "a_b"]) == ["train", "a_b"]
    assert understood(["train", "--model-name-or-path=a_b"]) == ["train", "a_b"]


@pytest.mark.parametrize("flag", INSTEAD)
def test_for_other_flags_the_right_one_is_named(flag: str, capsys: Any) -> None:
    assert main(["train", "model", flag.replace("-", "_").replace("__", "--", 1)]) == 2
    assert INSTEAD[flag] in capsys.readouterr().err.replace("\n", " ")


@pytest.mark.parametrize(
    "raised, code",
    [(KeyboardInterrupt(), 130), (Interrupted("stopped", signal.SIGINT), 130), (Interrupted("stopped"), 143)],
)
def test_a_command_that_is_stopped_says_by_what(
    raised: BaseException, code: int, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    def stop(source: str) -> None:
        raise raised

    command("info")
    monkeypatch.setattr("paredown.cli.info.check_source", stop)
    assert main(["info", "model"]) == code
    assert "Traceback" not in capsys.readouterr().err
