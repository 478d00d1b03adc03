"""The commands by name. A command's module is imported when it runs; the list of commands needs no torch."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import keyword
from typing import Any

from typer.core import TyperCommand, TyperGroup

# In the order of use; each is a module of this folder.
COMMANDS = (
    "train",
    "evaluate",
    "calibrate",
    "predict",
    "drift",
    "bench",
    "report",
    "plan",
    "info",
    "import",
    "export",
    "pretrain",
    "lengthen",
    "elue",
    "demo",
)


class Listed(TyperCommand):
    """A command that is not imported yet: its name and the first paragraph of its help."""

    def __init__(self, name: str):
        super().__init__(name=name, help=_docstring(name))

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        return command(str(self.name)).make_context(info_name, args, parent, **extra)


class Commands(TyperGroup):
    def __init__(self, *, commands: dict[str, Any], **settings: Any):
        super().__init__(commands={name: commands.get(name) or Listed(name) for name in COMMANDS}, **settings)


def command(name: str) -> Any:
    """A command with its parameters; imports its module, which adds it to the app."""
    from typer.main import get_command

    from paredown.cli._app import app

    importlib.import_module(_module(name))
    return get_command(app).commands[name]  # type: ignore[attr-defined]


def _module(name: str) -> str:
    return f"paredown.cli.{name}" + "_" * keyword.iskeyword(name)  # `import` lives in import_.py


def _docstring(name: str) -> str | None:
    """The docstring of the function that `@app.command` makes a command, read from its source."""
    loader: Any = importlib.util.find_spec(_module(name)).loader  # type: ignore[union-attr]
    for node in ast.parse(loader.get_source(_module(name))).body:
        if isinstance(node, ast.FunctionDef) and any("app.command" in ast.unparse(way) for way in node.decorator_list):
            return ast.get_docstring(node)
    return None
