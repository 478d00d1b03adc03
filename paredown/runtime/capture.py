"""Work on fixed memory that is recorded once and then replayed: one launch instead of dozens."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor

REPLAYS = 3  # that are timed


class Captured(Protocol):
    seconds: float  # that it takes
    latency: float  # seconds more until the host, which launched it, knows that it is done

    def __call__(self) -> None: ...


class Device(Protocol):
    """Where captured work runs. Inside such work lanes run side by side; lane 0 is the main one."""

    def capture(self, work: Callable[[], Any], kept: Sequence[Tensor] = ()) -> Captured:
        """`kept` are tensors that the work changes, and that must be as they were when it has been captured."""

    def lane(self, number: int, after: int = 0) -> Any:
        """A context: what is launched inside begins after all that another lane has been given."""

    def join(self, number: int) -> None:
        """What the main lane is given from now on begins after all that another one has been given."""

    def wait(self) -> None:
        """Until all is done."""


class Cuda:
    def __init__(self) -> None:
        self.lanes: dict[int, torch.cuda.Stream] = {}
        self.memory = torch.cuda.graph_pool_handle()

    def capture(self, work: Callable[[], Any], kept: Sequence[Tensor] = ()) -> Captured:
        before = [one.clone() for one in kept]
        warming = torch.cuda.Stream()
        warming.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(warming):
            for _ in range(2):  # kernels are chosen and compiled, and notes have their place, before they are captured
                work()
        torch.cuda.current_stream().wait_stream(warming)
        graph = _Graph(work, self.memory)
        for one, value in zip(kept, before, strict=True):
            one.copy_(value)
        return graph

    @contextmanager
    def lane(self, number: int, after: int = 0) -> Iterator[None]:
        if number not in self.lanes:
            self.lanes[number] = torch.cuda.Stream()
        stream = self.lanes[number]
        stream.wait_stream(self.lanes[after] if after else torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            yield

    def join(self, number: int) -> None:
        torch.cuda.current_stream().wait_stream(self.lanes[number])

    def wait(self) -> None:
        torch.cuda.current_stream().synchronize()


class _Graph:
    def __init__(self, work: Callable[[], Any], memory: Any):
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, pool=memory, capture_error_mode="thread_local"):
            work()
        timed = [self._timed() for _ in range(REPLAYS)]
        self.seconds, self.latency = (min(values) for values in zip(*timed, strict=True))

    def __call__(self) -> None:
        self.graph.replay()

    def _timed(self) -> tuple[float, float]:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        start = time.perf_counter()
        begin.record()
        self.graph.replay()
        end.record()
        end.synchronize()
        seconds = begin.elapsed_time(end) / 1000
        return seconds, time.perf_counter() - start - seconds
