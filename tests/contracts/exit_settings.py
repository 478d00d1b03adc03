"""Settings to test each exit rule with. A rule that is not listed is tested with its defaults."""

from __future__ import annotations

from typing import Any

from paredown.registry import exits

SETTINGS: dict[str, list[str]] = {
    "at_layer": ["at_layer:3"],
    "confidence": ["confidence:0.7"],
    "confirmed": ["confirmed:0.7"],
    "ensemble": ["ensemble:0.6"],
    "entropy": ["entropy:0.6", "entropy:(0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8,0.9,0.9,0.9)"],
    "entropy_nats": ["entropy_nats:0.5"],
    "learned": ["learned:0.2"],
    "margin": ["margin:0.5"],
    "patience": ["patience:2", "patience:2,tolerance=1.5", "patience:(3,3,3,2,2,2,2,1,1,1,1)"],
    "top_entropy": ["top_entropy:0.6", "top_entropy:0.6,top=3"],
    "vote": ["vote:3"],
}


def all_rules() -> list[Any]:
    return [exits.parse(text) for name in exits.names() for text in SETTINGS.get(name, [name])]
