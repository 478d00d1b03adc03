"""Settings to test each reducer with, and tiny models that can choose. One that is not listed has its defaults."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from paredown import AdaptiveModel
from paredown.registry import reducers
from tests.families import adaptive

SETTINGS: dict[str, list[str]] = {
    "attention": ["attention:1.0", "attention:0.97,layers=(1,2,3)"],
    "fixed_share": ["fixed_share:0.6", "fixed_share:0.4,layers=(2,)", "fixed_share:0.6,score=attention"],
    "selector": ["selector:0.5"],
}


def all_reducers() -> list[Any]:
    return [reducers.parse(text) for name in reducers.names() for text in SETTINGS.get(name, [name])]


@cache
def choosing(family: str = "bert", kind: str = "single_label", head: str | None = "pooler", **changes: Any) -> Any:
    """A tiny model whose random selectors disagree about tokens. It is shared: leave it as it is."""
    return with_selectors(adaptive(family, kind, head, **changes))


def with_selectors(model: AdaptiveModel) -> AdaptiveModel:
    """Grown where the plan has them by default, and made bold."""
    model.grow_selectors()
    generator = torch.Generator().manual_seed(8)
    with torch.no_grad():
        for parameter in model.selectors.parameters():
            size = parameter.shape[-1] if parameter.dim() else 1
            parameter.copy_(2 * torch.randn(parameter.shape, generator=generator) * size**-0.5)
    return model.eval()
