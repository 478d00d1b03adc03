"""What every command shares: the app, errors and exit codes, output for people and machines."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from paredown import __version__
from paredown.cli._commands import Commands
from paredown.cli._spelling import hint, understood
from paredown.errors import Interrupted, ParedownError

MOST_LISTED, MOST_SHOWN = 20, 500  # entries of a list and characters of one, for people to read
FAILED, INTERRUPTED = 1, 130  # exit codes; 2 is a command line that cannot be understood


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"paredown {__version__}")
        raise typer.Exit


def _group(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Makes the app a group, though no command is imported yet."""


app = typer.Typer(
    name="paredown",
    cls=Commands,
    callback=_group,
    help="Transformer encoders that spend compute only where it is needed.",
    epilog="--debug anywhere shows the traceback of an error.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
people = Console(stderr=True)  # messages and progress; results go to standard output
results = Console(width=None if sys.stdout.isatty() else 120)  # a file or a pipe has no width of its own


def main(words: Sequence[str] | None = None) -> int:
    """Run one command; errors that a user can cause are a line, not a traceback."""
    words = list(sys.argv[1:] if words is None else words)
    debug = "--debug" in words
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    _quiet_neighbours()
    try:
        return int(app(understood([word for word in words if word != "--debug"]), standalone_mode=False) or 0)
    except typer.Exit as end:
        return end.exit_code
    except typer.Abort:  # Ctrl-C where nothing is lost by it
        return INTERRUPTED
    except (BrokenPipeError, SystemExit) as end:  # the reader of our output has had enough; typer makes it an exit
        if isinstance(end, SystemExit) and not isinstance(end.__context__, BrokenPipeError):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if debug:
            raise
        return _report(error)


def _report(error: Exception) -> int:
    usage = getattr(error, "exit_code", None)  # click's own errors know their code and how to show themselves
    if usage is not None and hasattr(error, "show"):
        error.show()
        if (instead := hint(getattr(error, "option_name", ""))) is not None:
            people.print(f"{error.option_name}: {instead}", highlight=False, soft_wrap=True)  # type: ignore[attr-defined]
        return int(usage)
    if not isinstance(error, (ParedownError, OSError)):
        raise error
    people.print("[bold red]error[/]", escape(str(error)), highlight=False, markup=True, soft_wrap=True)
    return 128 + error.signal if isinstance(error, Interrupted) else FAILED  # as shells count


def _quiet_neighbours() -> None:
    """transformers reports every new classifier and shows a bar for every file; a user did not ask for that. Set by
    its environment, which it reads when it is imported: `--help` does not import it."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    for name in ("httpx", "matplotlib", "absl"):
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # it reports every try to reach the hub


def print_json(value: Any) -> None:
    results.out(json.dumps(value, indent=1))


def print_forecast(found: dict[str, Any], as_json: bool) -> None:
    """What a dry run found."""
    if as_json:
        return print_json(found)
    print_facts(found)
    results.print("Nothing was run.")


def print_facts(found: dict[str, Any]) -> None:
    """A line for every fact, or for every entry of a list; of long ones the beginning."""
    for name, value in found.items():
        listed = value if isinstance(value, list) else [value]
        more = [f"… ({len(listed)} in all)"] if len(listed) > MOST_LISTED else []
        for index, entry in enumerate([*listed[:MOST_LISTED], *more]):
            text = f"{entry:,}" if isinstance(entry, (int, float)) and not isinstance(entry, bool) else str(entry)
            label = "" if index else name.replace("_", " ")
            text = text if len(text) <= MOST_SHOWN else text[:MOST_SHOWN] + "…"
            results.print(f"{label:<18} {text}", markup=False, highlight=False, soft_wrap=True)
