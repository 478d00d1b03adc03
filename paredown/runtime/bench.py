"""How fast a plan is on this machine, beside full depth and beside what a user would run instead.

Ways take turns in random order on the same batches; no batch comes twice, so shapes do not repeat. The first round
warms up and is not counted.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from paredown.answers import Encoded, flat
from paredown.errors import BadInput, BadSetting
from paredown.model import AdaptiveModel
from paredown.plan import Plan
from paredown.runtime.rivals import onnx_int8

Way = Callable[[Sequence[Encoded]], Any]


@dataclass
class Timed:
    """What one way took."""

    seconds: list[float] = field(default_factory=list)  # of each batch

    def facts(self, rows: int, beside: Timed) -> dict[str, float]:
        """Texts per second, the time of a batch, and how many times faster than another way in the same rounds."""
        ordered = sorted(self.seconds)
        ratios = [other / own for own, other in zip(self.seconds, beside.seconds, strict=True)]
        return {
            "texts_per_second": rows / statistics.median(ordered),
            "p50_ms": 1000 * statistics.median(ordered),
            "p99_ms": 1000 * ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))],
            "times_transformers": statistics.median(ratios),
        }


def bench(
    model: AdaptiveModel, rows: Sequence[Encoded], plan: Plan, batch_size: int, rounds: int, cpu_time: bool
) -> dict[str, dict[str, float]]:
    """The facts of every way, by its name. `cpu_time`: of this process, for a machine that others use too."""
    if len(rows) < batch_size * (rounds + 1):
        raise BadInput(
            f"{rounds} rounds of {batch_size} rows, and one to warm up, need {batch_size * (rounds + 1):,} rows; "
            f"there are {len(rows):,}"
        )
    known = dict(ways(model, plan))
    timed = {name: Timed() for name in known}
    clock = time.process_time if cpu_time else time.perf_counter
    for number in range(rounds + 1):
        batch = rows[number * batch_size : (number + 1) * batch_size]
        order = list(known)
        random.Random(number).shuffle(order)
        for name in order:
            start = clock()
            known[name](batch)
            if model.device.type == "cuda":
                torch.cuda.synchronize()
            if number:
                timed[name].seconds.append(clock() - start)
    reference = timed[next(iter(known))]
    found = {name: one.facts(batch_size, reference) for name, one in timed.items()}
    return found | _efficiencies(model, rows[: batch_size * (rounds + 1)], plan, found)


def ways(model: AdaptiveModel, plan: Plan) -> Iterator[tuple[str, Way]]:
    """transformers first; then every runtime that the model can have, at full depth and by the plan; then others."""
    pad, kind = model.tokenizer.pad_token_id, model.kind

    def padded(rows: Sequence[Encoded]) -> dict[str, Tensor]:
        return model.walk.inputs_of(kind.collate(rows, pad, model.device))

    def stock(rows: Sequence[Encoded]) -> Any:
        with torch.inference_mode():
            return model.stock(**padded(rows))

    yield f"transformers {model.config._attn_implementation}", stock
    for runtime in ("reference", "packed", "int8"):
        try:
            model.use(runtime)
        except BadSetting:
            continue
        executor, backend = model.executor, model.backend
        for name, one in (("full depth", plan.but(exit=None, reduce=None)), ("plan", plan)):
            yield f"{runtime}, {name}", _answering(model, executor, backend, one)
    if model.device.type == "cpu" and (session := onnx_int8(model.stock)) is not None:
        yield "onnxruntime int8", lambda rows: session(padded(rows))


def _answering(model: AdaptiveModel, executor: Any, backend: Any, plan: Plan) -> Way:
    def answer(rows: Sequence[Encoded]) -> None:
        model.backend = backend
        stream = executor.stream(len(rows))
        stream.put(rows, [model.route(plan)] * len(rows))
        stream.finish()
        stream.take()

    return answer


def _efficiencies(
    model: AdaptiveModel, rows: Sequence[Encoded], plan: Plan, found: dict[str, dict[str, float]]
) -> dict[str, dict[str, float]]:
    """Of every runtime's plan: token-layers saved, and how much of that became time."""
    model.use("reference")
    job = model.executor.stream()
    job.put(rows, [model.route(plan)] * len(rows))
    job.finish()
    run = int(job.take().tokens.sum())
    all_of_them = sum(len(row) for row in flat(rows)) * len(model.depth_of(plan))
    fewer = all_of_them / run
    changed = {}
    for name, facts in found.items():
        runtime, _, what = name.partition(", ")
        if what == "plan":
            faster = facts["times_transformers"] / found[f"{runtime}, full depth"]["times_transformers"]
            changed[name] = facts | {"fewer_token_layers": fewer, "efficiency": faster / fewer}
    return changed
