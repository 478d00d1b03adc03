"""Where a run stands: a bar on a terminal, a log line now and then elsewhere."""

from __future__ import annotations

import logging
import time
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

log = logging.getLogger("paredown.training")
LINES = 10  # per stage, where there is no terminal


class Display:
    def __init__(self, shown: bool):
        console = Console(stderr=True)
        self.shown = shown
        self._bar: Progress | None = None
        if shown and console.is_terminal:
            columns = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()]
            self._bar = Progress(*columns, TextColumn("{task.fields[facts]}"), console=console)

    def __enter__(self) -> Display:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *unused: Any) -> None:
        if self._bar is not None:
            self._bar.stop()

    def stage(self, name: str, steps: int, done: int) -> None:
        self._name, self._steps, self._score = name, steps, ""
        self._rows, self._since = 0, time.monotonic()
        if self._bar is not None:
            self._task = self._bar.add_task(name, total=steps, completed=done, facts="")

    def step(self, done: int, loss: float, rows: int) -> None:
        if not self.shown:
            return
        self._rows += rows
        speed = self._rows / max(time.monotonic() - self._since, 1e-9)
        facts = f"loss {loss:.4f}{self._score}  {speed:.0f} rows/s"
        if self._bar is not None:
            self._bar.update(self._task, completed=done, facts=facts)
        elif done == self._steps or done % max(round(self._steps / LINES), 1) == 0:
            log.info("%s %d/%d  %s", self._name, done, self._steps, facts)

    def evaluated(self, value: float) -> None:
        self._score = f"  dev {100 * value:.2f} %"
