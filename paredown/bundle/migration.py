"""From earlier formats of a bundle to the present one: pure functions of its description and of its tensors' names.

A change of format adds a step here, and a tiny bundle of the format before to tests/bundles.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Migration:
    """From one format to the next."""

    description: Callable[[dict[str, Any]], dict[str, Any]]
    tensor_name: Callable[[str], str | None]  # None: the tensor is no longer part of a bundle


def migrated(facts: dict[str, Any]) -> dict[str, Any]:
    """A description in the present format."""
    while step := MIGRATIONS.get(facts["format"]):
        facts = step.description(facts)
    return facts


def present_names(names: list[str], written: int) -> dict[str, str]:
    """How tensors of a bundle written in some format are called now; those that are left out are no longer needed."""
    found: dict[str, str | None] = {name: name for name in names}
    while step := MIGRATIONS.get(written):
        found = {old: new and step.tensor_name(new) for old, new in found.items()}
        written += 1
    return {old: new for old, new in found.items() if new is not None}


def _sections_of_1(facts: dict[str, Any]) -> dict[str, Any]:
    """Format 1 had flat keys and called the error probability doubt."""
    rest = dict(facts)
    sections: dict[str, Any] = {"format": 2, "answer": {"kind": rest.pop("kind")}}
    if like := rest.pop("grown_like", []):
        sections["grown_layers"] = {"like": like}
    spec, after = rest.pop("head", None), rest.pop("head_layers", [])
    if spec is not None:
        sections["heads"] = {"spec": spec, "after": after}
    if (doubt := rest.pop("doubt", False)) is not False:
        sections["error_probability"] = doubt
    selectors = rest.pop("selectors", {"layers": [], "size": 0})
    sections["selectors"] = {"before": selectors["layers"], "size": selectors["size"]}
    return rest | sections


def _tensor_name_of_1(name: str) -> str | None:
    """The price of a token, which selectors had, only served training."""
    if name.startswith("selectors.") and name.endswith(".price"):
        return None
    return name.replace("doubt.", "error_probability.", 1) if name.startswith("doubt.") else name


MIGRATIONS = {1: Migration(_sections_of_1, _tensor_name_of_1)}
