"""How many tokens shall stay, as a share or as a speed-up, and the price of a token that leads there."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from paredown.errors import BadSetting
from paredown.methods._stage import Progress
from paredown.model import AdaptiveModel

STIFF = 10.0  # how much the price answers to a share that is off at this moment
REACH = 20.0  # how far the learned part of the price could move in one stage, at the selectors' full learning rate
PRICE = "companions.token_price.value"  # name of the parameter
FAINT = 1e-3  # the learned price must not be what gradients are clipped for; Adam does not mind how small they are


class TokenPrice(nn.Module):
    """The learned part of what a kept token costs."""

    def __init__(self) -> None:
        super().__init__()
        self.value = nn.Parameter(torch.zeros(()))


def grow_price(model: AdaptiveModel) -> None:
    if "token_price" not in model.companions:
        model.companions["token_price"] = TokenPrice().to(model.device)


def selecting_layers(model: AdaptiveModel) -> list[int]:
    """Layers on the way before which tokens are chosen."""
    return [layer for layer in model.depth if str(layer) in model.selectors]


def spans(model: AdaptiveModel) -> list[float]:
    """The share of the layers from the first choice on that runs on each choice's tokens."""
    chosen = set(selecting_layers(model))
    starts = [index for index, layer in enumerate(model.depth) if layer in chosen]
    ends = [*starts[1:], len(model.depth)]
    return [(end - start) / (ends[-1] - starts[0]) for start, end in zip(starts, ends, strict=True)]


def keep_for(speedup: float, model: AdaptiveModel) -> float:
    """The share of tokens that makes so many times fewer token-layers; layers before the first choice see all."""
    layers = len(model.depth)
    full = next(index for index, layer in enumerate(model.depth) if str(layer) in model.selectors)
    keep = (layers / speedup - full) / (layers - full)
    if not 0 < keep < 1:
        limit = f"below {layers / full:.3g}" if full else "above 1"
        raise BadSetting(
            f"a speed-up of {speedup:g} is out of reach: with {full} of {layers} layers full, it is {limit}"
        )
    return keep


def price_of(model: AdaptiveModel, share: Tensor, keep: float, progress: Progress, lr: float) -> tuple[Tensor, Tensor]:
    """What a kept token costs now, so that `share` comes to `keep`; and a loss by which the price learns.

    An augmented Lagrangian. Its multiplier is a parameter, so that a resumed run has it too, and climbs where all
    others descend; it moves by about the learning rate a step, hence the scale.
    """
    off = share.detach() - keep
    learned = model.get_parameter(PRICE)
    scale = REACH / (lr * max(progress.steps, 1))
    price = scale * learned.detach() + STIFF * off
    return price, -FAINT * off * (learned - learned.detach())
