"""Which tokens stay. One file per idea; importing this package registers them all."""

from paredown.reducers.attention import AttentionThreshold
from paredown.reducers.fixed_share import FixedShare
from paredown.reducers.selector import SelectorThreshold

__all__ = ["AttentionThreshold", "FixedShare", "SelectorThreshold"]
