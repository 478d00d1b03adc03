"""Texts per second on a GPU: exits against full depth and against transformers, for every batch size and offline.

    python -m benchmarks.gpu --output benchmarks/gpu.json

A bert-base of random weights in bfloat16; texts are random tokens of SST-2-like (mean 25) or IMDb-like (mean 275, at
most 512) lengths. Every row has bounds of its own that let it leave at a planned layer, 3.4 of 12 on average, so all
heads are asked. No shape repeats: every repetition draws other lengths. Streams get batches that are packed already, as
`predict` packs them in another thread.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import BertConfig, BertForSequenceClassification

from benchmarks.commands import repeatable_command
from paredown.model import AdaptiveModel
from paredown.plan import Plan
from paredown.registry import answers
from paredown.runtime.pools import Pools
from paredown.system.machine import machine

LAYERS, PLANNED = 12, 0.29  # chance of leaving after each layer: 3.4 layers on average
TEXTS = {"SST-2-like": (21.6, 0.6, 4, 66), "IMDb-like": (250.0, 0.55, 32, 512)}
BATCHES = (1, 8, 32, 128, 512, 2048)
OFFLINE = {"SST-2-like": 131072, "IMDb-like": 16384}
WARM = 12  # repetitions that are not timed: graphs are captured when a batch of their size first comes
WIDTH = 768
FLOPS = 24 * WIDTH**2  # of the linear maps of a layer, for a token; attention adds 4 * WIDTH for each it looks at


def lengths(texts: str, rows: int, seed: int) -> Tensor:
    middle, spread, least, most = TEXTS[texts]
    drawn = torch.randn(rows, generator=torch.Generator().manual_seed(seed))
    return (middle * torch.exp(spread * drawn)).long().clamp(int(least), int(most))


def padded(texts: str, rows: int, seed: int) -> dict[str, Tensor]:
    """Rows of random tokens, sorted by length."""
    long = lengths(texts, rows, seed).sort()[0]
    mask = torch.arange(int(long.max())) < long.unsqueeze(1)
    return {"input_ids": torch.randint(1000, 30000, mask.shape) * mask, "attention_mask": mask.long()}


def planned(rows: int, seed: int) -> Tensor:
    """[rows, steps] bounds that let each row leave at a layer drawn for it."""
    chance = torch.rand(rows, generator=torch.Generator().manual_seed(seed + 77))
    step = (torch.log1p(-chance) / math.log(1 - PLANNED)).floor().long().clamp(0, LAYERS - 1)
    bounds = torch.full((rows, LAYERS), math.inf)
    bounds[torch.arange(rows), step] = -1e9
    bounds[:, -1] = math.inf
    return bounds


def seconds(run: Callable[[int], Any], repeats: int, warm: int = WARM) -> float:
    """Median time of a repetition; each gets a number of its own, so that no shape comes twice."""
    taken = []
    for number in range(-warm, repeats):
        torch.cuda.synchronize()
        start = time.perf_counter()
        run(number + warm)
        torch.cuda.synchronize()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken[warm:])


class Bench:
    def __init__(self, head: str, runtime: str):
        torch.backends.cuda.enable_cudnn_sdp(False)  # it makes a plan for every new shape
        torch.manual_seed(0)
        model = AdaptiveModel(BertForSequenceClassification(BertConfig()).eval(), None, answers.make("single_label"))
        model.grow_heads(head)
        self.model = model.to("cuda", torch.bfloat16).eval().use(runtime)
        self.full = self.model.executor.runner(self.model.route(Plan()))
        self.exits = self.model.executor.runner(self.model.route(Plan(exit="entropy:0.5")))

    def batch(self, texts: str, rows: int) -> dict[str, float]:
        """Texts per second of one batch at a time; pooled: as they would come in a stream."""
        repeats = max(5, min(40, 4096 // rows))
        inputs = [padded(texts, rows, seed) for seed in range(repeats + WARM)]
        bounds = [planned(rows, seed).cuda() for seed in range(repeats + WARM)]
        ways: dict[str, Callable[[int], Any]] = {
            "transformers": lambda at: self.model.stock(**{name: value.cuda() for name, value in inputs[at].items()}),
            "full depth": lambda at: self.full.answer(inputs[at]),
            "exits": lambda at: self.exits.answer(inputs[at], bounds[at]),
        }
        found = {name: rows / seconds(way, repeats) for name, way in ways.items()}
        found["exits, pooled"] = self.stream(texts, max(4096, 4 * rows) if texts.startswith("S") else 2048, rows)
        return found

    def stream(self, texts: str, rows: int, batch: int, runner: Any = None) -> float:
        """Texts per second when batches come one after the other and rows may wait for those of others."""
        runner = runner or self.exits
        backend: Any = self.model.backend
        parts = [(backend.packed(padded(texts, batch, at)), planned(batch, at).cuda()) for at in range(rows // batch)]

        def run(number: int) -> None:
            pools = Pools(runner, 200_000)
            for inputs, bounds in parts:
                pools.submit(runner.embed(inputs, bounds if runner is self.exits else None))
                while pools.advance():
                    pass
            while pools.advance(hurry=True):
                pass
            pools.drain()

        return len(parts) * batch / seconds(run, 3, 1)

    def offline(self, texts: str) -> dict[str, float]:
        """All texts at once."""
        rows, batch = OFFLINE[texts], 8192 if texts.startswith("S") else 1024
        long = torch.cat([lengths(texts, batch, at) for at in range(rows // batch)]).double()
        work = LAYERS * float((FLOPS * long + 4 * WIDTH * long**2).mean())
        full, exits = (self.stream(texts, rows, batch, runner) for runner in (self.full, self.exits))
        layers = [self._left(at, batch) for at in range(rows // batch)]
        mean = sum(layers) / len(layers)
        return {
            "full depth": full,
            "full depth TFLOP/s": full * work / 1e12,
            "exits": exits,
            "mean layers": mean,
            "efficiency": exits / full / (LAYERS / mean),
        }

    def dropping(self) -> dict[str, float]:
        """Half of the tokens go before the second layer, half of the rest before the middle one."""
        self.model.grow_selectors((1, 6))
        routes = [self.model.route(Plan()), self.model.route(Plan(reduce="fixed_share:0.5"))]
        runners = [self.model.executor.runner(route) for route in routes]
        inputs = {"input_ids": torch.randint(1000, 30000, (2048, 512)), "attention_mask": torch.ones(2048, 512)}
        packed = self.model.backend.packed(inputs)  # type: ignore[attr-defined]
        full, dropped = (2048 / seconds(lambda at, one=one: one.answer(packed), 5) for one in runners)
        work = [runner.answer(packed).tokens.float().mean().item() for runner in runners]
        return {"full": full, "dropped": dropped, "faster": dropped / full, "fewer token-layers": work[0] / work[1]}

    def _left(self, seed: int, batch: int) -> float:
        leaves = planned(batch, seed) < 0
        return float(torch.where(leaves.any(1), leaves.float().argmax(1) + 1, LAYERS).float().mean())


def run(head: str, runtime: str) -> Iterator[tuple[str, Any]]:
    with torch.inference_mode():
        bench = Bench(head, runtime)
        for texts in TEXTS:
            for rows in BATCHES:
                yield f"{texts}, batch {rows}", bench.batch(texts, rows)
            yield f"{texts}, offline", bench.offline(texts)
        yield "IMDb-like at 512, tokens dropped", bench.dropping()
        torch.cuda.reset_peak_memory_stats()
        for rows in (8192, 32768, 131072, 524288):
            yield f"SST-2-like, {rows} texts", bench.stream("SST-2-like", rows, 8192)
            yield f"SST-2-like, {rows} texts, GiB", torch.cuda.max_memory_allocated() / 2**30


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--head", default="attention")
    parser.add_argument("--runtime", default="packed", help="packed or fp8")
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    found: dict[str, Any] = {"command": repeatable_command("-m benchmarks.gpu"), **machine(), "head": given.head}
    for name, value in run(given.head, given.runtime):
        found[name] = value
        print(name, json.dumps(value), flush=True)
        if given.output:
            given.output.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
