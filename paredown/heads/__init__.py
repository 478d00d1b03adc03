"""What may answer after a layer. One file per idea; importing this package registers them all."""

from paredown.heads.attention import Attention
from paredown.heads.linear import Linear
from paredown.heads.pooler import Pooler, SharedPooler
from paredown.heads.pretraining import Pretraining

__all__ = ["Attention", "Linear", "Pooler", "Pretraining", "SharedPooler"]
