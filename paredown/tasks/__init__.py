"""Data readers, labels and metrics by name; importing this package registers them all."""

from paredown.tasks.glue import Glue

__all__ = ["Glue"]
