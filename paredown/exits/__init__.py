"""When a row may leave. One file per idea; importing this package registers them all."""

from paredown.exits.confidence import Confidence
from paredown.exits.entropy import Entropy, EntropyNats, TopEntropy
from paredown.exits.fixed import AtLayer, Never
from paredown.exits.learned import Learned
from paredown.exits.margin import Margin
from paredown.exits.patience import Patience
from paredown.exits.vote import Confirmed, Ensemble, Vote

__all__ = [
    "AtLayer",
    "Confidence",
    "Confirmed",
    "Ensemble",
    "Entropy",
    "EntropyNats",
    "Learned",
    "Margin",
    "Never",
    "Patience",
    "TopEntropy",
    "Vote",
]
