"""`paredown export`: a bundle as a folder that other tools read."""

from __future__ import annotations

from typing import Annotated

import typer

from paredown.cli import _options as options
from paredown.cli._app import app, print_forecast, print_json, results
from paredown.cli._loading import load_bundle
from paredown.encoders.prune import export_hf, pruned
from paredown.errors import BadSetting

Option = typer.Option
FORMATS = {"hf": "an ordinary Hugging Face folder of the layers that the plan runs, tokenizer included"}


@app.command()
def export(
    bundle: options.Bundle,
    output: options.NewFolder,
    format: Annotated[
        str, Option(help="; ".join(f"{name}: {meaning}" for name, meaning in FORMATS.items()) + ".")
    ] = "hf",
    own_classifier: Annotated[
        bool, Option("--own-classifier", help="Where a head answers last, let the model's own classifier do it.")
    ] = False,
    dry_run: options.DryRun = False,
    as_json: options.AsJson = False,
    config: options.Config = None,
) -> None:
    """Write what a bundle's plan comes to at full depth as a plain model: no exits, the same answers."""
    if format not in FORMATS:
        raise BadSetting(f"--format is one of {', '.join(FORMATS)}, not {format!r}")
    if output.exists():
        raise BadSetting(f"{output} exists already; choose another folder")
    model = load_bundle(bundle)
    stock = pruned(model, own_classifier=own_classifier)
    facts = {
        "folder": str(output),
        "class": type(stock).__name__,
        "layers": stock.config.num_hidden_layers,
        "parameters": stock.num_parameters(),
    }
    if dry_run:
        return print_forecast(facts, as_json)
    export_hf(model, output, own_classifier=own_classifier)
    if as_json:
        return print_json(facts)
    summary = f"{facts['class']}, {facts['layers']} layers, {facts['parameters']:,} parameters"
    results.print(f"written: {output} ({summary})", highlight=False, soft_wrap=True)
    if model.plan.exit is not None:
        results.print(f"A plain model has no exits: {model.plan.exit} was left out.", highlight=False, soft_wrap=True)
