"""The classification sets of TR-BERT (Ye et al., 2021): IMDb and 20 Newsgroups as json lines, Yelp as csv."""

from __future__ import annotations

from dataclasses import dataclass

from paredown.registry import tasks
from paredown.tasks._files import SPLITS, Files


@tasks.register("trbert")
@dataclass(frozen=True)
class TrBert(Files):
    pass


NEWSGROUPS = (
    "alt.atheism comp.graphics comp.os.ms-windows.misc comp.sys.ibm.pc.hardware comp.sys.mac.hardware comp.windows.x "
    "misc.forsale rec.autos rec.motorcycles rec.sport.baseball rec.sport.hockey sci.crypt sci.electronics sci.med "
    "sci.space soc.religion.christian talk.politics.guns talk.politics.mideast talk.politics.misc talk.religion.misc"
)
_YELP = {"columns": ("label", "text"), "headless": SPLITS}

tasks.alias("imdb", "trbert", folder="imdb|IMDb", text=("text|sentence",))
tasks.alias("20news", "trbert", folder="20news", labels=tuple(NEWSGROUPS.split()), spelled=tuple(map(str, range(20))))
tasks.alias("yelp_f", "trbert", folder="yelp_f|yelp_review_full_csv", labels=("1", "2", "3", "4", "5"), **_YELP)
tasks.alias("yelp_p", "trbert", folder="yelp_p|yelp_review_polarity_csv", labels=("1", "2"), **_YELP)
