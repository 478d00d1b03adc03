"""How many tokens an encoder can read at once."""

from __future__ import annotations

import math
from typing import Any

from paredown.encoders.longer import can_read, learned_positions
from paredown.errors import BadSetting


def check_length(model: Any, wanted: int, setting: str = "max_length=") -> None:
    """Positions that are not learned may go on beyond what a config says."""
    if wanted > (most := longest_row(model)) and (learned_positions(model.stock) or not can_read(model.stock, wanted)):
        raise BadSetting(f"{setting}{wanted} is more than this encoder can read: {most}")


def longest_row(model: Any) -> float:
    """Tokens that the encoder was made to read at once."""
    known = learned_positions(model.stock)
    most = known.count if known else getattr(model.config, "max_position_embeddings", None) or math.inf
    return min(model.tokenizer.model_max_length, most)
