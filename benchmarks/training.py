"""Seconds per training step: each measure that saves time on a GPU, switched on after the one before.

    python -m benchmarks.training --before /path/to/a/checkout/of/the/commit/before --output benchmarks/training.json
    OMP_NUM_THREADS=1 python -m benchmarks.training --device cpu …

Encoders of random weights and rows of random tokens, with the lengths of SST-2 or IMDb; real stages through
`Learner.step`. Every width of batch occurs once before the clock starts; what that takes is reported beside the steps.
What fails is reported as its error, what comes after `--seconds` is left out. On a CPU the time is that of the process.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import subprocess
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from transformers import BertConfig, BertForSequenceClassification

import paredown
import paredown.methods
from paredown import AdaptiveModel
from paredown.answers import Encoded
from paredown.methods._stage import Stage
from paredown.registry import answers, methods
from paredown.training import guard
from paredown.training.batches import Batches, lengths
from paredown.training.learner import Learner
from paredown.training.processes import Processes

ENCODERS = {
    "gte-small": {"hidden_size": 384, "num_attention_heads": 12, "intermediate_size": 1536},
    "bert-base": {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072},
    "tiny": {"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64, "num_hidden_layers": 3},
}
TEXTS = {"SST-2-like": (21.6, 0.53, 4, 66), "IMDb-like": (250.0, 0.55, 32, 512)}  # median, spread, least, most tokens
STAGES = {"finetune": "finetune", "self_distill": "self_distill:epochs=0", "joint": "joint"}
VARIANTS: dict[str, dict[str, Any]] = {
    "32 bits": {"precision": "no"},
    "32 bits, TF32": {"precision": "no", "tf32": True},
    "bf16": {"precision": "bf16"},
    "bf16, no attention by cuDNN": {"precision": "bf16", "cudnn": False},
    "bf16, no waiting": {"precision": "bf16", "cudnn": False, "read_every": 16},
    "bf16, no waiting, graphs": {
        "precision": "bf16", "cudnn": False, "read_every": 16, "graphs": True, "width_multiple": 16,
    },
    "bf16, compiled": {"precision": "bf16", "cudnn": False, "compile": True, "width_multiple": 16},
    "bf16, no waiting, graphs, compiled": {
        "precision": "bf16", "cudnn": False, "read_every": 16, "graphs": True, "compile": True, "width_multiple": 16,
    },
}  # fmt: skip
OURS = ("tf32", "cudnn")  # switches that are not the learner's
SWITCHES = inspect.signature(Learner.__init__).parameters
POOL = 50  # batches of rows, as many as are sorted together
TIMED, PROFILED = 1.0, 2  # seconds at least; steps
MOST_WIDTHS = 12  # before the clock starts, where a new one costs no more than a step


@dataclass(frozen=True)
class Job:
    encoder: str
    texts: str
    rows: int
    stage: str
    variant: str

    @property
    def name(self) -> str:
        return f"{self.encoder}, {self.texts}, batch {self.rows}, {self.stage}: {self.variant}"

    @property
    def settings(self) -> dict[str, Any]:
        return VARIANTS[self.variant]

    @property
    def known(self) -> bool:
        """Whether the tree at work has all switches of the variant."""
        return self.settings.keys() <= {*SWITCHES, *OURS, *["compile"] * hasattr(guard, "compiled")}


def jobs_of_a_cpu() -> Iterator[Job]:
    shapes = [*(("SST-2-like", 32, stage) for stage in STAGES), ("IMDb-like", 16, "finetune")]
    for shape, variant in product(shapes, ("32 bits", "bf16")):
        yield Job("gte-small", *shape, variant)


def jobs() -> Iterator[Job]:
    """The most telling first: the time may not suffice for all, and compiling takes long."""
    main = ("gte-small", "SST-2-like", 64)
    others = [("gte-small", "IMDb-like", 64), ("bert-base", "SST-2-like", 64), ("gte-small", "SST-2-like", 256)]
    others += [("bert-base", "IMDb-like", 64), ("bert-base", "SST-2-like", 256), ("gte-small", "IMDb-like", 256)]
    others += [("bert-base", "IMDb-like", 256)]
    eager = [variant for variant, settings in VARIANTS.items() if not settings.get("compile")]
    fused = [variant for variant in VARIANTS if variant not in eager]
    few = ["bf16", "bf16, no waiting, graphs"]
    yield from (Job(*main, "finetune", variant) for variant in eager)
    yield from (Job(*main, stage, variant) for stage in ("joint", "self_distill") for variant in ["32 bits", *few])
    yield from (Job(*shape, "finetune", variant) for shape in others for variant in few)
    yield from (Job(*main, "finetune", variant) for variant in fused)
    yield from (Job(*shape, stage, few[-1]) for shape in others for stage in ("joint", "self_distill"))
    yield from (Job(*shape, "joint", variant) for shape in (main, others[0], others[3]) for variant in fused)
    yield from (Job(*shape, stage, few[0]) for shape in others for stage in ("joint", "self_distill"))


@cache
def rows_of(texts: str, number: int) -> list[Encoded]:
    random = np.random.default_rng(0)
    middle, spread, least, most = TEXTS[texts]
    long = np.clip(middle * np.exp(spread * random.standard_normal(number)), least, most).astype(int)
    found = []
    for tokens in long.tolist():
        ids = {"input_ids": random.integers(1000, 30000, tokens).tolist(), "token_type_ids": [0] * tokens}
        found.append(Encoded(ids, int(random.integers(2))))
    return found


def made(job: Job, device: torch.device) -> tuple[AdaptiveModel, Stage]:
    torch.manual_seed(0)
    with device:
        stock = BertForSequenceClassification(BertConfig(**ENCODERS[job.encoder])).eval()
    model = AdaptiveModel(stock, SimpleNamespace(pad_token_id=0), answers.make("single_label")).to(device)
    method = methods.of(STAGES[job.stage])
    method.grow(model)
    model.align()
    return model, method.stages(model)[-1]


def alone(device: torch.device) -> Processes:
    """One process, without what accelerate would set up."""
    processes = Processes.__new__(Processes)
    processes.device, processes.rank, processes.count, processes.writes = device, 0, 1, True
    return processes


class Measurement:
    """One job at work."""

    def __init__(self, job: Job, device: torch.device):
        self.job, self.device = job, device
        self.model, stage = made(job, device)
        rows = rows_of(job.texts, POOL * job.rows)
        batches = Batches(lengths(rows), job.rows, (0, 0))
        switches = {name: value for name, value in job.settings.items() if name in SWITCHES}
        self.learner = Learner(self.model, stage, rows, batches, alone(device), **switches)
        self.steps = 0

    def found(self) -> dict[str, Any]:
        torch.set_float32_matmul_precision("high" if self.job.settings.get("tf32") else "highest")
        torch.backends.cuda.enable_cudnn_sdp(self.job.settings.get("cudnn", True))
        around = self.job.settings.get("compile") and "compile" not in SWITCHES  # as it was before
        with guard.compiled(self.model.walk.layers) if around else nullcontext():
            warm = self._seconds(self._one_of_each_width())
            step, rows = self._timed()
            found = {"seconds per step": step, "rows/s": rows / step, "seconds of warm-up": warm}
            if (graphs := getattr(self.learner, "graphs", None)) is not None:
                found |= {"graphs": len(graphs.graphs), "graphs failed": graphs.failed}
            if self.device.type == "cuda":
                found |= self._profiled(step)
                found["waits per step"] = self._waits()
                found["GiB"] = torch.cuda.max_memory_allocated() / 2**30
        return {name: round(value, 5) if isinstance(value, float) else value for name, value in found.items()}

    def _one_of_each_width(self) -> list[int]:
        """Steps after which no shape is new, where that matters."""
        batches, grid = self.learner.batches, self.job.settings.get("width_multiple", 1)
        width = {}
        for step in range(batches.per_epoch):
            longest = max(int(batches.lengths[row]) for row in batches.at(step))
            width.setdefault(-(-longest // grid), step)
        found = list(width.values())
        return [*(found if grid > 1 else found[:MOST_WIDTHS]), *range(3)]

    def _seconds(self, steps: list[int]) -> float:
        clock = time.perf_counter if self.device.type == "cuda" else time.process_time
        began = clock()
        for step in steps:
            self.learner.step(step)
        self._settle()
        return clock() - began

    def _timed(self) -> tuple[float, float]:
        """Seconds and rows of a step, over whole epochs of batches or as many as the time allows."""
        total, steps = 0.0, 0
        while total < TIMED and steps < POOL:
            total += self._seconds(list(range(steps, steps + 10)))
            steps += 10
        return total / steps, float(self.job.rows)

    def _settle(self) -> None:
        if hasattr(self.learner, "losses"):
            self.learner.losses()
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def _profiled(self, step: float) -> dict[str, Any]:
        """Launches, kernels, and the share of the time of an unobserved step that kernels run."""
        from torch.autograd import DeviceType
        from torch.profiler import ProfilerActivity, profile

        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], acc_events=True) as seen:
            self._seconds(list(range(PROFILED)))
        launches, kernels, busy = Counter[str](), 0, 0.0
        for entry in seen.key_averages():
            if entry.is_user_annotation:  # it spans kernels that are counted themselves
                continue
            if entry.device_type == DeviceType.CUDA:
                kernels += entry.count
                busy += entry.self_device_time_total / 1e6
            elif "Launch" in entry.key and entry.key.startswith("cu"):
                launches["graphs" if "Graph" in entry.key else "kernels"] += entry.count
        return {
            "launches per step": {name: count / PROFILED for name, count in launches.items()},
            "kernels per step": kernels / PROFILED,
            "share of time the GPU is busy": busy / PROFILED / step,
        }

    def _waits(self) -> dict[str, int]:
        """Where a step waits for the device, and how often."""
        torch.cuda.set_sync_debug_mode("warn")
        try:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                self.learner.step(0)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        self._settle()
        waits = [one for one in caught if "synchroniz" in str(one.message)]
        return dict(Counter(f"{Path(one.filename).name}:{one.lineno}" for one in waits))


def judged(encoder: str, texts: str, device: torch.device) -> dict[str, Any]:
    """Seconds to judge dev rows as before, 64 at once as the encoder's own layers run them, and packed."""
    from paredown.evaluation.metrics import metric_named
    from paredown.training.judging import DevRows

    model, stage = made(Job(encoder, texts, 64, "joint", "32 bits"), device)
    rows, found = rows_of(texts, 2000), {}
    ways = {"own layers, 64 at once": (model.walk, 64), "as train judges": (None, 512 if device.type == "cuda" else 64)}
    for name, (backend, size) in ways.items():
        dev = DevRows(model.eval(), rows, metric_named("accuracy"), size)
        dev.backend = backend or dev.backend
        for _ in range(2):  # the first finds kernels
            began = time.perf_counter()
            scores, _ = dev.scores(stage)
            found[name] = {"seconds": time.perf_counter() - began, "scores": list(scores.values())}
    return found


def tried(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        return work()
    except Exception as error:  # one that fails must not take the others with it
        return {"error": f"{type(error).__name__}: {error!s:.500}"}


def of_this_tree(given: argparse.Namespace) -> Iterator[tuple[str, dict[str, Any]]]:
    device = torch.device(given.device)
    ends = time.monotonic() + given.seconds
    wanted = [Job("tiny", "SST-2-like", 8, stage, variant) for stage in STAGES for variant in VARIANTS]
    if not given.lines and "dev" in given.only + "dev" * (not given.only):
        for shape in [("tiny", "SST-2-like")] if given.tiny else product(("gte-small", "bert-base"), TEXTS):
            yield f"{', '.join(shape)}: dev rows", tried(lambda shape=shape: judged(*shape, device))
    usual = jobs() if device.type == "cuda" else jobs_of_a_cpu()
    for job in wanted if given.tiny else usual:
        if given.only not in job.name or not job.known:
            continue
        late = time.monotonic() > ends
        yield (
            job.name,
            {"left out": "the time was up"} if late else tried(lambda job=job: Measurement(job, device).found()),
        )


def of_tree(path: Path, given: argparse.Namespace) -> Iterator[tuple[str, dict[str, Any]]]:
    """The same by another checkout."""
    command = [sys.executable, str(Path(__file__).absolute()), "--lines", "--seconds", str(given.before_seconds)]
    command += ["--only", given.only, *["--tiny"] * given.tiny]
    command += ["--device", given.device]
    paths = [str(path.absolute()), str(Path(__file__).absolute().parents[1])]  # its package, these benchmarks
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("{"):
                yield from json.loads(line).items()


def commit(path: Path) -> str:
    run = subprocess.run(["git", "-C", str(path), "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    return run.stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--before", type=Path, help="another checkout, measured first")
    parser.add_argument("--before-seconds", type=float, default=60)
    parser.add_argument("--seconds", type=float, default=150, help="after which no job begins")
    parser.add_argument("--only", default="", help="jobs whose name has this")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--tiny", action="store_true", help="to try the script where there is no GPU")
    parser.add_argument("--lines", action="store_true", help="print a JSON object for each job and no more")
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    if given.lines:
        for name, value in of_this_tree(given):
            print(json.dumps({name: value}), flush=True)
        return
    from benchmarks.commands import repeatable_command  # another checkout may not have what these need
    from paredown.system.machine import machine

    here = Path(paredown.__file__).parents[1]
    found: dict[str, Any] = {
        "command": repeatable_command("-m benchmarks.training"),
        **machine(torch.device(given.device)),
        "commit": commit(here),
    }
    trees = {"this tree": of_this_tree(given)}
    if given.before:
        found["commit before"] = commit(given.before)
        trees = {"before": of_tree(given.before, given), **trees}
    for tree, results in trees.items():
        found[tree] = {}
        for name, value in results:
            found[tree][name] = value
            print(tree, "|", name, json.dumps(value), flush=True)
            if given.output:
                given.output.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
