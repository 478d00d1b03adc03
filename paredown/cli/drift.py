"""`paredown drift`: whether predictions are still like the rows that certified the plan."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from paredown.calibration.drift import Drift, DriftMonitor
from paredown.cli import _options as options
from paredown.cli._app import FAILED, app, print_json, results
from paredown.cli._loading import load_any
from paredown.errors import BadInput, CannotPromise
from paredown.model import AdaptiveModel

Option = typer.Option


@app.command()
def drift(
    bundle: Annotated[str, typer.Argument(help="A bundle with a certificate.")],
    log: Annotated[Path, typer.Argument(help="Predictions by its plan: jsonl, as `paredown predict` writes them.")],
    shadow: Annotated[
        Path | None,
        Option(help="Predictions of the same rows, or of some, at full depth: `paredown predict --exit none`."),
    ] = None,
    level: Annotated[float, Option(min=0, max=1, help="How often an alarm may be false.")] = 0.05,
    block: Annotated[int | None, Option(min=50, help="Rows that are compared at once; default: all.")] = None,
    as_json: options.AsJson = False,
    config: options.Config = None,
) -> None:
    """Check a log of predictions: do rows leave where they left when the plan was certified? Ends with 1 if not."""
    model = load_any(bundle)
    if (certificate := model.certificate) is None:
        raise CannotPromise(f"{bundle} has no certificate" + (f" that holds: {model.void}" if model.void else ""))
    predicted = dict(_predictions(log))
    if not predicted:
        raise BadInput(f"{log} holds no predictions")
    monitor = DriftMonitor(certificate, level, block or len(predicted))
    for one in predicted.values():
        monitor.add(one["layers"] / one.get("windows", 1))
    if shadow is not None:
        _follow(monitor, model, predicted, shadow)
    found = monitor.verdict()
    if as_json:
        print_json({"bundle": bundle, "log": str(log), **found.to_json()})
    else:
        _show(found)
    if found.reasons:
        raise typer.Exit(FAILED)


def _predictions(path: Path) -> Iterator[tuple[Any, dict[str, Any]]]:
    """By row; those that could not be read are left out."""
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            try:
                one = json.loads(line)
                if one.get("error") is None:
                    yield one["row"], one | {"layers": float(one["layers"])}
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise BadInput(f"{path}, line {number}: this is no prediction in JSON: {error!r:.80}") from None


def _follow(monitor: DriftMonitor, model: AdaptiveModel, ours: dict[Any, dict[str, Any]], shadow: Path) -> None:
    """Compare the rows that both files have."""
    shared = [(ours[row], full) for row, full in _predictions(shadow) if row in ours]
    if not shared:
        raise BadInput(f"{shadow} holds none of the rows of the log")
    for pair in shared:
        monitor.add_shadow(disagreement(model, monitor.certificate.scale, *map(_answer, pair)))


def _answer(prediction: dict[str, Any]) -> Any:
    return prediction["label"] if "label" in prediction else prediction.get("answer")


def disagreement(model: AdaptiveModel, scale: float | None, ours: Any, theirs: Any) -> float:
    """How much two answers in words differ, in 0..1: of several, the share that does; of numbers, by their distance."""
    if not isinstance(ours, list):
        ours, theirs = [ours], [theirs]
    elif not (model.kind.per_word or model.kind.numeric):  # some of the labels
        return len({*ours} ^ {*theirs}) / len(model.labels)
    if scale is not None:
        return sum(min(abs(one - other) / scale, 1.0) for one, other in zip(ours, theirs, strict=True)) / len(ours)
    pairs = [pair for pair in zip(ours, theirs, strict=True) if pair != (None, None)]  # words that were cut off
    return sum(one != other for one, other in pairs) / max(len(pairs), 1)


def _show(found: Drift) -> None:
    lines = [
        f"{found.units:,} rows left after {found.mean_layers:.2f} layers on average; certified: "
        f"{found.certified_layers:.2f} (p = {found.exit_p_value:.3g})"
    ]
    if found.disagreement is not None:
        lines.append(
            f"{100 * found.disagreement:.2f} % of {found.shadowed:,} answers differ from full depth, "
            f"{100 * found.low:.2f} to {100 * found.high:.2f} % in expectation; certified: {100 * found.promised:.2f} %"
        )
    lines += [f"drift: {reason}" for reason in found.reasons] or ["nothing speaks against the certificate"]
    for line in lines:
        results.print(line, highlight=False, soft_wrap=True, markup=False)
