"""When a row may leave. One file per idea; importing this package registers them all."""

from paredown.exits.entropy import Entropy

__all__ = ["Entropy"]
