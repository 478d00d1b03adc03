"""Data readers, labels and metrics by name; importing this package registers them all."""

from paredown.tasks._reading import Bad, Read
from paredown.tasks.ag_news import AgNews
from paredown.tasks.corpus import Corpus
from paredown.tasks.elue import Elue
from paredown.tasks.fastbert import FastBert
from paredown.tasks.glue import Glue
from paredown.tasks.hyperpartisan import Hyperpartisan
from paredown.tasks.text import Text, read_rows
from paredown.tasks.trbert import TrBert

__all__ = [
    "AgNews",
    "Bad",
    "Corpus",
    "Elue",
    "FastBert",
    "Glue",
    "Hyperpartisan",
    "Read",
    "Text",
    "TrBert",
    "read_rows",
]
