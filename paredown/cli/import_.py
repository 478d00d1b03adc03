"""`paredown import`: a checkpoint of one of the original systems as a bundle."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from paredown.cli import _options as options
from paredown.cli._app import app, print_forecast, print_json, results
from paredown.cli._loading import check_source
from paredown.errors import BadSetting
from paredown.model import AdaptiveModel

Option = typer.Option
FORMATS = "fastbert, deebert, elasticbert, theseus or plain; default: recognised from the names of the tensors."


@app.command(name="import")
def import_(
    source: Annotated[str, typer.Argument(help="A folder, weights file or hub id.")],
    bundle: Annotated[Path, typer.Argument(help="The bundle to write; it must not exist.")],
    format: Annotated[str | None, Option(help=FORMATS)] = None,
    labels: Annotated[str | None, Option(help="Names of the labels in the order of training: bad,good")] = None,
    tokenizer: options.Tokenizer = None,
    dry_run: options.DryRun = False,
    as_json: options.AsJson = False,
    config: options.Config = None,
) -> None:
    """Make a bundle of a checkpoint that FastBERT, DeeBERT, ElasticBERT or BERT-of-Theseus saved."""
    from paredown.published.layouts import load_published  # imports transformers

    if bundle.exists():
        raise BadSetting(f"{bundle} exists already; choose another folder")
    check_source(source)
    names = None if labels is None else [label.strip() for label in labels.split(",")]
    layout, model = load_published(source, format, names, tokenizer)
    facts = {"layout": layout, **_facts(model), "bundle": str(bundle)}
    if dry_run:
        return print_forecast(facts, as_json)
    model.save_pretrained(bundle)
    if as_json:
        return print_json(facts)
    for name, value in facts.items():
        text = ", ".join(value) if isinstance(value, list) else value
        results.print(f"{name:<12} {text}", markup=False, highlight=False, soft_wrap=True)


def _facts(model: AdaptiveModel) -> dict[str, Any]:
    """What was recognised."""
    after = ", ".join(map(str, model.head_layers))
    successors = {"successors": len(model.grown)} if model.grown else {}
    return {
        "family": model.walk.family,
        "layers": model.walk.num_base_layers,
        **successors,
        "heads": f"{model.head.name} after layers {after}" if model.head is not None else "none",
        "kind": model.kind.name,
        "labels": model.labels,
        "plan": str(model.plan),
    }
