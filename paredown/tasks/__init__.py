"""Data readers, labels and metrics by name; importing this package registers them all."""

from paredown.answers import Choices, Question
from paredown.tasks._task import Problem, Split, Task
from paredown.tasks.ag_news import AgNews
from paredown.tasks.corpus import Corpus
from paredown.tasks.elue import Elue
from paredown.tasks.fastbert import FastBert
from paredown.tasks.glue import Glue
from paredown.tasks.hotpotqa import HotpotQA
from paredown.tasks.hyperpartisan import Hyperpartisan
from paredown.tasks.mrqa import Mrqa
from paredown.tasks.race import Race, RaceOptions
from paredown.tasks.squad import Squad
from paredown.tasks.text import Text, read_rows
from paredown.tasks.trbert import TrBert
from paredown.tasks.triviaqa import TriviaQA
from paredown.tasks.wikihop import WikiHop

__all__ = [
    "AgNews",
    "Choices",
    "Corpus",
    "Elue",
    "FastBert",
    "Glue",
    "HotpotQA",
    "Hyperpartisan",
    "Mrqa",
    "Problem",
    "Question",
    "Race",
    "RaceOptions",
    "Split",
    "Squad",
    "Task",
    "Text",
    "TrBert",
    "TriviaQA",
    "WikiHop",
    "read_rows",
]
