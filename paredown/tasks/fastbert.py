"""FastBERT's own tsv (Liu et al., 2020): a header with label, text_a, perhaps text_b, and qid where rows are ranked."""

from __future__ import annotations

from dataclasses import dataclass

from paredown.answers._columns import Columns
from paredown.errors import BadInput
from paredown.registry import tasks
from paredown.tasks._files import Files
from paredown.tasks._table import Table

GROUP = "qid"


@tasks.register("fastbert")
@dataclass(frozen=True)
class FastBert(Files):
    folder: str = "."
    text: tuple[str, ...] = ("text_a",)
    pair: str | None = "text_b"  # read where the file has it
    labels: tuple[str, ...] = ()  # none: as found in the file
    ranked: bool = False  # the file must have a qid

    def _chosen(self, table: Table, split: str) -> Columns:
        known = table.columns or ()
        if self.ranked and GROUP not in known:
            raise BadInput(f"{table.source}, line 1: no column {GROUP!r}; it has {', '.join(known)}")
        label = None if split == "test" and self.label not in known else self._column(table, self.label)
        pair = self.pair if self.pair in known else None
        return Columns((self._column(table, self.text[0]),), pair, label, GROUP if GROUP in known else None)


_ZH = {"labels": ("0", "1"), "pair": None}
tasks.alias("book-review", "fastbert", folder="Book_review_douban|douban_book_review", **_ZH)
tasks.alias("chnsenticorp", "fastbert", folder="ChnSentiCorp|chnsenticorp", **_ZH)
tasks.alias("lcqmc", "fastbert", folder="LCQMC|lcqmc", labels=("0", "1"))
_MRR = ("mean_reciprocal_rank",)
tasks.alias("nlpcc-dbqa", "fastbert", folder="nlpcc-dbqa|NLPCC-DBQA", labels=("0", "1"), ranked=True, metrics=_MRR)
