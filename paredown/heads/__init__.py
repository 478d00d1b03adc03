"""What may answer after a layer. One file per idea; importing this package registers them all."""

from paredown.heads.pooler import Pooler, SharedPooler

__all__ = ["Pooler", "SharedPooler"]
