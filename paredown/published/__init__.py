"""Checkpoints others have published, in the layouts of their authors, as adaptive models."""

from paredown.encoders.tensors import read_tensors
from paredown.published.deebert import load_deebert
from paredown.published.elasticbert import load_elasticbert, save_elasticbert
from paredown.published.fastbert import load_fastbert
from paredown.published.layouts import LAYOUTS, load_published
from paredown.published.theseus import load_theseus
from paredown.published.uer import start_from_file

__all__ = [
    "LAYOUTS",
    "load_deebert",
    "load_elasticbert",
    "load_fastbert",
    "load_published",
    "load_theseus",
    "read_tensors",
    "save_elasticbert",
    "start_from_file",
]
