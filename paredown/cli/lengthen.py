"""`paredown lengthen`: more positions for an encoder that learned a table of them."""

from __future__ import annotations

from typing import Annotated

import typer

from paredown.cli import _options as options
from paredown.cli._app import app, print_forecast, print_json, results
from paredown.cli._loading import check_source, first_line
from paredown.encoders.longer import lengthened
from paredown.errors import BadBundle, BadSetting

Option = typer.Option


@app.command()
def lengthen(
    model: Annotated[str, typer.Argument(help="A Hugging Face folder or hub id, or a bundle.")],
    output: options.NewFolder,
    to: Annotated[int, Option(min=2, help="Tokens that shall be read.")] = 1024,
    interpolate: Annotated[
        bool, Option("--interpolate", help="Stretch the positions instead of repeating them; all texts change.")
    ] = False,
    dry_run: options.DryRun = False,
    as_json: options.AsJson = False,
    config: options.Config = None,
) -> None:
    """Write a model that reads longer texts; what it could read before it answers as before."""
    if output.exists():
        raise BadSetting(f"{output} exists already; choose another folder")
    check_source(model)
    try:
        made = lengthened(model, to, interpolate)
    except BadBundle as error:
        raise BadBundle(first_line(error)) from None
    facts = {"folder": str(output), "positions": made.positions.name, "before": made.before, "after": to}
    if dry_run:
        return print_forecast(facts, as_json)
    made.save(output)
    if as_json:
        return print_json(facts)
    message = f"written: {output} (reads {to:,} tokens; it was {made.before:,})"
    results.print(message, highlight=False, soft_wrap=True)
