"""`paredown plan`: the plan of a bundle, shown or changed; its weights stay as they are."""

from __future__ import annotations

from typing import Annotated

import typer

from paredown.bundle import save_plan
from paredown.cli import _options as options
from paredown.cli._app import app, print_json, results
from paredown.cli._loading import changed, depth_named, load_bundle
from paredown.errors import BadSetting
from paredown.plan import Plan

Option = typer.Option


@app.command()
def plan(
    bundle: options.Bundle,
    exit: options.LeavingRule = None,
    reduce: options.Reduce = None,
    depth: Annotated[
        str | None, Option(help="Which layers run: a number for the first so many, 0,2,4 for these, or all.")
    ] = None,
    whole: Annotated[str | None, Option("--plan", help="A whole plan as JSON.")] = None,
    dry_run: options.DryRun = False,
    as_json: options.AsJson = False,
    config: options.Config = None,
) -> None:
    """Show the plan of a bundle, or write another one into it; every later use of the bundle then follows it."""
    model = load_bundle(bundle)
    if whole is not None and (exit, reduce, depth) != (None, None, None):
        raise BadSetting("--plan says all that --exit, --reduce and --depth say; give either")
    before = model.plan
    after = changed(before, exit, reduce) if whole is None else Plan.from_json(whole)
    if depth is not None:
        after = after.but(depth=depth_named(model, depth))
    model.route(after)
    saved = after != before and not dry_run
    if saved:
        save_plan(bundle, after)
    if as_json:
        facts = {"bundle": bundle, "plan": after.to_json(), "plan_text": str(after), "before": before.to_json()}
        return print_json({**facts, "saved": saved})
    results.print(str(after), highlight=False, soft_wrap=True)
    if after != before:
        done = f"saved in {bundle}" if saved else "nothing was saved"
        results.print(f"before: {before}; {done}", highlight=False, soft_wrap=True)
    if saved and model.certificate is not None:
        results.print(f"void: its certificate, {model.certificate}", highlight=False, soft_wrap=True)
