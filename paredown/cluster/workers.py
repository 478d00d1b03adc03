"""Workers: how many, on which device, and what each loads once to answer like all the others."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from paredown.bundle import FACTS
from paredown.errors import BadBundle, BadSetting
from paredown.model import AdaptiveModel
from paredown.plan import Plan
from paredown.runtime.predictor import Predictor
from paredown.system.saving import sha256

DEVICES = ("auto", "cpu", "cuda")


@dataclass(frozen=True)
class Workers:
    number: int
    device: str  # cpu or cuda
    threads: int = 1  # CPUs of each

    @classmethod
    def on(cls, nodes: Sequence[dict[str, float]], number: int | None = None, device: str = "auto") -> Workers:
        """Workers for machines with such resources: one for each GPU, or as many as asked on the CPUs (default: one a
        machine), which then share all but one; that one reads the rows."""
        if device not in DEVICES:
            raise BadSetting(f"device is {', '.join(DEVICES)}, not {device!r}")
        if number is not None and number < 1:
            raise BadSetting(f"workers must be at least 1, not {number}")
        gpus = sum(int(node.get("GPU", 0)) for node in nodes)
        if device == "cuda" or (device == "auto" and gpus):
            if (number or 1) > gpus:
                raise BadSetting(f"{number or 1} workers need a GPU each, and the cluster has {gpus}")
            return cls(number or gpus, "cuda")
        cpus = sorted((int(node.get("CPU", 0)) for node in nodes), reverse=True)
        free = [cpus[0] - 1, *cpus[1:]]
        number = number or max(sum(one > 0 for one in free), 1)
        threads = next((each for each in range(max(free), 0, -1) if sum(one // each for one in free) >= number), 0)
        if not threads:
            raise BadSetting(f"{number} workers need {number + 1} CPUs, one to read the rows; there are {sum(cpus)}")
        return cls(number, "cpu", threads)

    def mapped(self, dataset: Any, worker: type, settings: tuple[Any, ...], **batches: Any) -> Any:
        """A dataset as workers make it out of another. A worker that dies is started again and gets its batch again,
        as is usual for Ray Data."""
        from ray.data import ActorPoolStrategy

        return dataset.map_batches(
            worker,
            fn_constructor_args=settings,
            compute=ActorPoolStrategy(size=self.number),
            num_cpus=self.threads,
            num_gpus=1 if self.device == "cuda" else None,
            **batches,
        )


def nodes_of(ray: Any) -> list[dict[str, float]]:
    """The resources of every machine of the cluster."""
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


@dataclass(frozen=True)
class PredictorSettings:
    """All that a worker needs to make the predictor that the others have."""

    bundle: str  # a folder, at the same path on every machine
    sha256: str  # of its description, which names those of its files
    plan: dict[str, Any]
    batch_size: int | None = None
    max_length: int | None = None
    settings: dict[str, Any] = field(default_factory=dict)  # of the kind of answer
    named: bool = False  # rows are questions that have an id
    columns: tuple[str, ...] = ()  # of the input, that come along
    dtype: str | None = None
    runtime: str = "auto"

    @classmethod
    def of(cls, predictor: Predictor, bundle: str, dtype: str | None, runtime: str) -> PredictorSettings:
        """Those of a predictor that was made here."""
        folder = Path(bundle).resolve()
        if not (folder / FACTS).is_file():
            raise BadBundle(f"{bundle} is not a bundle: it has no {FACTS}; workers load bundles alone")
        return cls(
            bundle=str(folder),
            sha256=sha256(folder / FACTS),
            plan=predictor.plan.to_json(),
            batch_size=predictor.batch_size,
            max_length=predictor.max_length,
            settings=predictor.settings,
            named=predictor.named,
            columns=predictor.columns,
            dtype=dtype,
            runtime=runtime,
        )

    def load(self, workers: Workers) -> Predictor:
        """The predictor, on the machine of a worker."""
        facts, here = Path(self.bundle) / FACTS, socket.gethostname()
        if not facts.is_file():
            raise BadBundle(f"{self.bundle} is missing on {here}; every machine needs the bundle, at the same path")
        if sha256(facts) != self.sha256:
            raise BadBundle(f"{self.bundle} on {here} is another bundle than where the run was started")
        torch.set_num_threads(workers.threads)
        model = AdaptiveModel.from_pretrained(self.bundle, dtype=self.dtype, runtime=self.runtime).to(workers.device)
        plan = Plan.from_json(self.plan)
        return Predictor(model, plan, self.batch_size, self.max_length, self.settings, self.named, self.columns)
