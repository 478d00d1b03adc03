"""CPU time of a bert-base beside transformers, ONNX Runtime and OpenVINO: 32 bits and int8, full depth and exits.

    python -m benchmarks.cpu

One thread, process time, ways take turns in random order, no batch comes twice; times of all rounds after those that
warm up, together, as ratios to transformers' eager attention. Random weights; every row has bounds of its own that let
it leave at a planned layer, 4 of 12 on average; pooled: rows that stay wait for those of other batches, as `predict`
lets them, and the last ones are answered on the clock. Efficiency: how many times faster exits are than full depth, as
a share of the layers saved. ONNX Runtime (its dynamic int8) and OpenVINO (int8 by NNCF's post-training quantisation),
whole models, batches of eight sorted by length, are measured where they are installed.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import BertConfig, BertForSequenceClassification

from benchmarks.commands import repeatable_command
from benchmarks.result_files import commit
from paredown.model import AdaptiveModel
from paredown.plan import Plan
from paredown.registry import answers
from paredown.runtime.executor import CPU_TOKENS
from paredown.runtime.int8 import Int8
from paredown.runtime.packed import Packed
from paredown.runtime.pools import Pools
from paredown.runtime.rivals import onnx, openvino
from paredown.runtime.rivals._rival import Run
from paredown.runtime.rivals.onnx import ONNX_INT8
from paredown.runtime.rivals.openvino import OPENVINO_INT8
from paredown.runtime.runner import Runner
from paredown.runtime.watching import ranges_in
from paredown.system.machine import machine

OUT = Path(__file__).with_name("cpu.json")
CPU = torch.device("cpu")
LAYERS, LEAVING = 12, 0.21
WARM_UP = 20  # rounds: a runtime that is long at work has met most numbers of tokens
ALONE = 5  # times as many rounds, where a round has one row
KERNELS = 3 * 1024  # that oneDNN keeps for the three runtimes here: as many for each as one alone has
GOLDEN = 0.618034  # its multiples are spread evenly
CASES = {"1 x 128": (1, 128), "8 x 128": (8, 128), "SST-2 lengths, 32 rows": (32, None)}  # rows, tokens
Batch = dict[str, Tensor]


def batch(rows: int, tokens: int | None, seed: int) -> Batch:
    """Rows of so many tokens, or of SST-2-like lengths in random order."""
    chance = torch.Generator().manual_seed(seed)
    long = (21.6 * torch.exp(0.6 * torch.randn(rows, generator=chance))).long().clamp(4, 66)
    if tokens is not None:
        long = torch.full((rows,), tokens + seed % 5)  # other shapes in every round
    mask = torch.arange(int(long.max())) < long.unsqueeze(1)
    return {"input_ids": torch.randint(1000, 30000, mask.shape, generator=chance) * mask, "attention_mask": mask.long()}


def planned(rows: int, seed: int) -> Tensor:
    """[rows, steps] bounds that let rows leave at 4 layers on average, as evenly spread as their number allows."""
    order = torch.randperm(rows, generator=torch.Generator().manual_seed(seed))
    share = ((torch.arange(rows) + 0.5) / rows)[order] if rows > 1 else torch.tensor([seed * GOLDEN % 1])
    step = (torch.log1p(-share * (1 - (1 - LEAVING) ** LAYERS)) / math.log(1 - LEAVING)).floor().long()
    bounds = torch.full((rows, LAYERS), math.inf)
    bounds[torch.arange(rows), step.clamp(0, LAYERS - 1)] = -1e9
    bounds[:, -1] = math.inf
    return bounds


def layers_run(bounds: Tensor) -> Tensor:
    """[rows] after how many layers rows with these bounds leave."""
    leaving = bounds < 0
    return torch.where(leaving.any(1), leaving.long().argmax(1) + 1, LAYERS)


class Ways:
    """What is compared: each answers a batch."""

    def __init__(self, kernel: str | None) -> None:
        torch.manual_seed(0)
        self.eager = BertForSequenceClassification(BertConfig(attn_implementation="eager")).eval()
        self.sdpa = BertForSequenceClassification(BertConfig(attn_implementation="sdpa")).eval()
        self.model = AdaptiveModel(self.sdpa, None, answers.make("single_label"))
        self.model.grow_heads("pooler")
        self.model.eval()
        int8 = Int8(self.model.walk, kernel=kernel)
        fixed = Int8(self.model.walk, ranges_in(self.model.walk, [batch(32, None, 99)]), kernel)
        self.kernel = str(int8.kernel and int8.kernel.name)
        self.backends: dict[str, Any] = {
            "packed fp32": Packed(self.model.walk),
            "packed int8": int8,
            "packed int8 with fixed scales": fixed,
        }
        self.pools = {
            name: Pools(self._runner(backend, exits=True), CPU_TOKENS) for name, backend in self.backends.items()
        }
        self.sorted: dict[str, Run] = {}
        if ONNX_INT8.why_not(CPU) is None:
            self.sorted["ONNX Runtime int8, sorted"] = onnx.session(self.eager, batch(2, 16, 0))
        if OPENVINO_INT8.why_not(CPU) is None:
            some = [batch(8, None, 100 + seed) for seed in range(30)]
            self.sorted["OpenVINO int8, sorted"] = openvino.int8(self.model, some)

    def of(self, inputs: Batch, bounds: Tensor) -> dict[str, Callable[[], Any]]:
        found: dict[str, Callable[[], Any]] = {
            "transformers eager": lambda: self.eager(**inputs),
            "transformers sdpa": lambda: self.sdpa(**inputs),
        }
        for name, backend in self.backends.items():
            for exits in (False, True):
                label = f"{name}, exits" if exits else f"{name}, full depth"
                found[label] = lambda backend=backend, exits=exits: self._answer(backend, inputs, bounds, exits)
            found[f"{name}, exits, pooled"] = partial(self._pool, self.pools[name], inputs, bounds)
        return found | {name: partial(self._sorted, run, inputs) for name, run in self.sorted.items()}

    def _answer(self, backend: Any, inputs: Batch, bounds: Tensor, exits: bool) -> Any:
        return self._runner(backend, exits).answer(inputs, bounds if exits else None)

    def _runner(self, backend: Any, exits: bool) -> Runner:
        self.model.backend = backend
        return Runner(self.model, self.model.route(Plan(exit="entropy:0.5") if exits else Plan()))

    def _pool(self, pools: Pools, inputs: Batch, bounds: Tensor) -> None:
        pools.submit(pools.runner.embed(inputs, bounds))
        while pools.advance():
            pass
        pools.drain()

    def finish(self) -> dict[str, float]:
        """Seconds that it takes to answer the rows that wait in pools."""
        taken = {}
        for name, pools in self.pools.items():
            start = time.process_time()
            while pools.advance(hurry=True):
                pass
            pools.drain()
            taken[f"{name}, exits, pooled"] = time.process_time() - start
        return taken

    def _sorted(self, run: Run, inputs: Batch) -> None:
        """Batches of eight, about equally long."""
        long = inputs["attention_mask"].sum(1)
        for rows in long.argsort().split(8):
            width = int(long[rows].max())
            run({name: value[rows, :width] for name, value in inputs.items()})


def measured(ways: Ways, rows: int, tokens: int | None, rounds: int) -> dict[str, float]:
    """How many times faster than transformers eager each way is, and the efficiency of exits."""
    taken: Counter[str] = Counter()
    whole = run = 0.0  # token-layers at full depth, and with exits
    for seed in range(WARM_UP + rounds):
        if seed == WARM_UP:
            ways.finish()
        inputs, bounds = batch(rows, tokens, seed), planned(rows, seed)
        jobs = list(ways.of(inputs, bounds).items())
        random.Random(seed).shuffle(jobs)
        for name, job in jobs:
            start = time.process_time()
            job()
            if seed >= WARM_UP:
                taken[name] += time.process_time() - start
        if seed >= WARM_UP:
            long, layers = inputs["attention_mask"].sum(1), layers_run(bounds)
            whole, run = whole + LAYERS * float(long.sum()), run + float((long * layers).sum())
    taken.update(ways.finish())
    found = {name: round(taken["transformers eager"] / seconds, 3) for name, seconds in sorted(taken.items())}
    for name in ways.backends:
        for exits in ("exits", "exits, pooled"):
            faster = taken[f"{name}, full depth"] / taken[f"{name}, {exits}"]
            found[f"{name}, {exits}, efficiency"] = round(faster * run / whole, 3)
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--kernel")
    parser.add_argument("--output", type=Path, default=OUT)
    given = parser.parse_args()
    torch.set_num_threads(1)
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", str(KERNELS))
    ways = Ways(given.kernel)
    found: dict[str, Any] = {
        "command": repeatable_command("-m benchmarks.cpu"),
        "commit": commit(),
        **machine(CPU, ("onnxruntime", "openvino", "nncf")),
        "int8 kernel": ways.kernel,
    }
    for name, (rows, tokens) in CASES.items():
        with torch.inference_mode():
            found[name] = measured(ways, rows, tokens, given.rounds * (ALONE if rows == 1 else 1))
        print(name, json.dumps(found[name]), flush=True)
        given.output.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
