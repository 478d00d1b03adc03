"""A run that is asked to stop, and stops where nothing is lost."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any


class _Now(BaseException):
    """Raised by the signal handler inside work that can be dropped and done again."""


class Signals:
    """SIGTERM and SIGINT ask the run to stop after its step; the second one stops it at once."""

    def __init__(self) -> None:
        self.asked: int | None = None  # the first signal that came
        self._droppable = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Signals:
        if threading.current_thread() is threading.main_thread():  # Python allows handlers nowhere else
            for number in (signal.SIGTERM, signal.SIGINT):
                self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        self._restore()
        if self.asked is not None and kind is None:  # the run ended before it could obey: hand the signal on
            signal.raise_signal(self.asked)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.asked is not None:
            self._restore()
            signal.raise_signal(number)
            return
        self.asked = number
        if self._droppable:
            raise _Now

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def finish(self, work: Callable[[], None]) -> bool:
        """Do work that may be dropped when a signal comes; False: it was dropped and must be done again."""
        try:
            self._droppable = True
            work()
        except _Now:
            return False
        finally:
            self._droppable = False
        return True
