"""`paredown info`: whether a model can be walked and what it would get; what a bundle holds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from safetensors import safe_open

from paredown.bundle import WEIGHTS
from paredown.certificate import Certificate
from paredown.cli import _options as options
from paredown.cli._app import app, print_json, results
from paredown.cli._loading import check_source, first_line, is_bundle, load_any
from paredown.cli.train import score_table
from paredown.encoders.pretrained import config_facts, kind_in
from paredown.errors import BadBundle, CannotWalk
from paredown.evaluation import Worth
from paredown.model import AdaptiveModel
from paredown.registry import heads

SIZES = ("hidden_size", "d_model", "dim", "emb_dim")  # how configs call the width


@app.command()
def info(
    model: Annotated[str, typer.Argument(help="A bundle, a Hugging Face folder or a hub id.")],
    as_json: options.AsJson = False,
    config: options.Config = None,
) -> None:
    """Say whether a model can be walked and what it would get; of a bundle: its plan, heads and scores."""
    check_source(model)
    found = of_bundle(model) if is_bundle(model) else of_stock(model)
    if as_json:
        print_json(found)
    else:
        _show(found)


def of_bundle(source: str) -> dict[str, Any]:
    model = load_any(source)
    return {
        "bundle": source,
        **_body(model),
        "kind": model.kind.name,
        "labels": model.labels,
        "head": None if model.head is None else heads.to_json(model.head),
        "head_layers": list(model.head_layers),
        "head_parameters": _added(model),
        "doubt": model.error_probability is not None,
        "selector_layers": list(model.selector_layers),
        "selector_size": model.selector_size,
        "plan": model.plan.to_json(),
        "plan_text": str(model.plan),
        "ranges": model.ranges is not None,
        "reading": model.reading.to_json(),
        "stored_as": _stored_as(Path(source)),
        "scores": model.scores,
        "certificate": None if model.certificate is None else model.certificate.to_json(),
        "certificate_void": model.void,
    }


def _stored_as(folder: Path) -> list[str]:
    """The types of the encoder's numbers in its files, which need not be those it is loaded in."""
    found: set[str] = set()
    for path in folder.glob("*.safetensors"):
        if path.name != WEIGHTS:
            with safe_open(path, "pt") as file:
                found |= {file.get_slice(name).get_dtype() for name in file.keys()}  # noqa: SIM118 (it is no dict)
    return sorted(found)


def of_stock(source: str) -> dict[str, Any]:
    task = kind_in(config_facts(source, {}))
    try:
        model = load_any(source, task=task)
    except CannotWalk as error:
        config = _config(source)
        width = next((getattr(config, name) for name in SIZES if hasattr(config, name)), None)
        layers = getattr(config, "num_hidden_layers", None)
        known = {"family": config.model_type, "layers": layers, "width": width}
        return {"model": source, "walked": False, "reason": str(error).removeprefix(f"{config.model_type}: "), **known}
    return {"model": source, "walked": True, **_body(model), "kind": task, "heads": _catalogue(model)}


def _config(source: str) -> Any:
    from transformers import AutoConfig

    try:
        return AutoConfig.from_pretrained(source, trust_remote_code=False)
    except (OSError, ValueError) as error:
        raise BadBundle(f"{source} is not a model that transformers can read: {first_line(error)}") from None


def _body(model: AdaptiveModel) -> dict[str, Any]:
    norm = model.walk.norm
    return {
        "family": model.walk.family,
        "layers": model.walk.num_base_layers,
        "grown_layers": len(model.grown),
        "width": model.walk.width,
        "parameters": sum(parameter.numel() for parameter in model.walk.body()),
        "final_norm": None if norm is None else type(norm).__name__,
        "drops_tokens": model.walk.drops_tokens,
        "runtime": model.executor.name,
        "runtime_reason": model.executor.reason or None,
    }


def _catalogue(model: AdaptiveModel) -> dict[str, dict[str, Any]]:
    """What every head would add after all layers but the last."""
    if model.walk.num_base_layers < 2:  # no layer before the last
        return {}
    model.drop_heads()  # a published checkpoint may come with some
    body = sum(parameter.numel() for parameter in model.walk.body())
    found = {}
    for name in heads.names():
        model.grow_heads(name)
        added = _added(model)
        found[name] = {"parameters_per_layer": added // len(model.head_layers), "share_of_encoder": added / body}
        model.drop_heads()
    return found


def _added(model: AdaptiveModel) -> int:
    """Parameters of the heads that the stock model does not have (heads may share its pooler)."""
    stock = set(model.stock.parameters())
    return sum(parameter.numel() for parameter in model.heads.parameters() if parameter not in stock)


def _show(found: dict[str, Any]) -> None:
    lines = {"bundle": found["bundle"]} if "bundle" in found else {"model": found["model"]}
    if "walked" in found:
        lines["walked"] = "yes, layer by layer" if found["walked"] else f"no: {found['reason']}"
    lines |= {name: _number(found.get(name)) for name in ("family", "layers", "width", "parameters")}
    if "drops_tokens" in found:
        lines["final norm"] = found["final_norm"] or "none"
        lines["drops tokens"] = "yes" if found["drops_tokens"] else "no: its layers tie tokens to their positions"
        why = f": {found['runtime_reason']}" if found["runtime_reason"] else ""
        lines["runtime"] = f"{found['runtime']}{why}"
        lines["kind"] = found["kind"]
    if "bundle" in found:
        lines |= _bundle_lines(found)
    for name, text in lines.items():
        results.print(f"{name:<18}{text}", markup=False, highlight=False, soft_wrap=True)
    if found.get("heads"):
        results.print(_head_table(found["heads"]))
    if found.get("scores"):
        results.print(score_table(found["scores"]))
    if (worth := (found.get("scores") or {}).get("worth")) is not None:
        results.print(Worth.from_json(worth).table())


def _bundle_lines(found: dict[str, Any]) -> dict[str, str]:
    labels, layers = found["labels"], found["head_layers"]
    settings = {name: value for name, value in (found["head"] or {}).items() if name != "name"}
    shown = ", ".join(f"{name}={value}" for name, value in settings.items())
    after = f"after layers {', '.join(map(str, layers))} (the first is 0)"
    grown = f"{found['head_parameters']:,} parameters"
    choose = ", ".join(map(str, found["selector_layers"]))
    return {
        "labels": ", ".join(labels[:20]) + (f", … ({len(labels)})" if len(labels) > 20 else ""),
        "heads": f"{found['head']['name']} ({shown}) {after}, {grown}" if found["head"] else "none",
        "error probability": "learned" if found["doubt"] else "none",
        "selectors": f"of size {found['selector_size']} before layers {choose}" if choose else "none",
        "plan": found["plan_text"],
        **_certified(found),
        "int8 scales": "fixed by training rows" if found["ranges"] else "one for each token",
        "read with": ", ".join(f"{name}={value}" for name, value in found["reading"].items()) or "defaults",
        "stored as": ", ".join(found["stored_as"]),
        "scores": f"dev {found['scores']['metric']}, below" if found["scores"] else "none",
    }


def _certified(found: dict[str, Any]) -> dict[str, str]:
    if found["certificate_void"] is not None:
        return {"certificate": f"void: {found['certificate_void']}"}
    return {} if found["certificate"] is None else {"certificate": str(Certificate.from_json(found["certificate"]))}


def _head_table(catalogue: dict[str, dict[str, Any]]) -> Table:
    table = Table("head", "parameters per layer", "share of the encoder")
    for name, facts in catalogue.items():
        table.add_row(name, f"{facts['parameters_per_layer']:,}", f"{facts['share_of_encoder']:.2%}")
    return table


def _number(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else "unknown" if value is None else str(value)
