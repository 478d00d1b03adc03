"""AG News (Zhang et al., 2015) in its original csv: label 1 to 4, title, description, no header line."""

from __future__ import annotations

from dataclasses import dataclass

from paredown.registry import tasks
from paredown.tasks._files import SPLITS, Files


@tasks.register("ag_news")
@dataclass(frozen=True)
class AgNews(Files):
    folder: str = "ag_news_csv|AG_News|ag_news"
    text: tuple[str, ...] = ("title", "description")
    labels: tuple[str, ...] = ("World", "Sports", "Business", "Sci/Tech")
    spelled: tuple[str, ...] = ("1", "2", "3", "4")
    columns: tuple[str, ...] = ("label", "title", "description")
    headless: tuple[str, ...] = SPLITS
