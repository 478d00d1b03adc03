"""The linear maps of a bert-base layer on one CPU thread: 32 bits against every int8 kernel that can be used here.

    python -m benchmarks.cpu_kernels

Process time, kernels take turns, the least of some rounds; GOP/s, so larger is faster. `warm`: the same number of
tokens again and again; `new`: a number of tokens that was never seen before. `static`: inputs have one scale, known
before; `token`: one for every token; `bare`: static, without parts and without rounding numbers of tokens up.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor, nn

from benchmarks.commands import repeatable_command
from paredown.runtime import int8_choice
from paredown.runtime.int8_kernels import KERNELS, UNIT, Kernel, Weights, by_token, in_parts
from paredown.system.machine import machine

Map = Callable[[Tensor], Tensor]
SHAPES = {"qkv": (768, 2304), "output": (768, 768), "feed-forward": (768, 3072, 768)}
TOKENS = (16, 32, 128, 256, 1024, 4096)
SPREAD = 16  # new numbers of tokens lie within so many of the usual one
OUT = Path(__file__).with_name("cpu_kernels.json")


def dense(widths: tuple[int, ...]) -> tuple[nn.Linear, ...]:
    torch.manual_seed(0)
    return tuple(nn.Linear(inputs, outputs) for inputs, outputs in pairwise(widths))


def in_floats(linears: tuple[nn.Linear, ...]) -> Map:
    if len(linears) == 1:
        return linears[0]
    up, down = linears
    return lambda hidden: down(nn.functional.gelu(up(hidden)))


def in_bytes(kernel: Kernel, linears: tuple[nn.Linear, ...]) -> dict[str, Map]:
    weights = [Weights.of(linear.weight, linear.bias) for linear in linears]
    tokens = [by_token(kernel, one) for one in weights]
    if len(weights) == 1:
        static, scaled = kernel.linear(weights[0], UNIT), tokens[0]
    else:
        static = int8_choice.feed_forward(kernel, *weights)
        scaled = lambda hidden: tokens[1](nn.functional.gelu(tokens[0](hidden)))  # noqa: E731
    return {"static": in_parts(static, kernel.grid), "token": in_parts(scaled, kernel.grid), "bare": static}


def contenders(widths: tuple[int, ...]) -> dict[str, Map]:
    linears = dense(widths)
    found: dict[str, Map] = {"fp32": in_floats(linears)}
    for name, kernel in KERNELS.items():
        if kernel.objection() is None:
            found |= {f"{name} {sort}": function for sort, function in in_bytes(kernel, linears).items()}
    return found


def measure(maps: dict[str, Map], widths: tuple[int, ...], tokens: int, new: bool, rounds: int) -> dict[str, float]:
    """GOP/s of each."""
    work = 2 * sum(inputs * outputs for inputs, outputs in pairwise(widths))
    least = dict.fromkeys(maps, float("inf"))
    sizes = [tokens - SPREAD // 2 + one for one in range(SPREAD + 1) if one != SPREAD // 2]  # never the warm one
    random.shuffle(sizes)
    for turn in range(rounds):
        size = sizes[turn] if new else tokens
        hidden = torch.randn(size, widths[0])
        repeats = 1 if new else max(1, 512 // tokens)
        for name in random.sample(list(maps), len(maps)):
            begin = time.process_time()
            for _ in range(repeats):
                maps[name](hidden)
            least[name] = min(least[name], (time.process_time() - begin) / repeats / size)
    return {name: round(work / seconds / 1e9, 1) for name, seconds in least.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=Path, default=OUT)
    settings = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    random.seed(0)
    rows = []
    for part, widths in SHAPES.items():
        maps = contenders(widths)
        for tokens in TOKENS:
            for shapes in ("new", "warm"):  # new first: nobody has seen them
                speeds = measure(maps, widths, tokens, shapes == "new", settings.rounds)
                rows.append({"part": part, "tokens": tokens, "shapes": shapes, "gops": speeds})
                print(part, tokens, shapes, speeds, flush=True)
    result = {
        "command": repeatable_command("-m benchmarks.cpu_kernels"),
        "machine": machine(torch.device("cpu")),
        "rows": rows,
    }
    settings.output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
