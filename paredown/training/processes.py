"""The processes that train together, over accelerate: who writes, what all agree on, whose gradients are summed."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from paredown.errors import BadSetting


class Processes:
    """Gradients are summed after the backward pass, not inside it as DistributedDataParallel does: so processes can
    first agree whether all of them succeeded, and one that runs out of memory does not leave the others waiting."""

    def __init__(self, output: Path, trackers: Iterable[Any] = (), cpu: bool = False):
        from accelerate import Accelerator
        from accelerate.utils import ProjectConfiguration

        folders = ProjectConfiguration(project_dir=str(output), logging_dir=str(output / "logs"))
        self.accelerator = Accelerator(cpu=cpu, log_with=list(trackers) or None, project_config=folders)
        self.device: torch.device = self.accelerator.device
        self.rank: int = self.accelerator.process_index
        self.count: int = self.accelerator.num_processes
        self.writes: bool = self.accelerator.is_main_process

    def sums(self, *values: Any) -> list[Any]:
        """Each value, a number or a tensor of one, summed over all processes; of a single process as it is, so that
        nobody waits for the device."""
        if self.count == 1:
            return list(values)
        total = torch.tensor(values, dtype=torch.float64 if self.device.type != "mps" else None, device=self.device)
        dist.all_reduce(total)
        return total.tolist()

    def sum_gradients(self, parameters: list[nn.Parameter]) -> None:
        if self.count == 1:
            return
        used = self.sums(*[parameter.grad is not None for parameter in parameters])
        touched = [parameter for parameter, times in zip(parameters, used, strict=True) if times]
        for parameter in touched:  # one that no process touched keeps no gradient, so that no decay moves it
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        for work in [dist.all_reduce(parameter.grad, async_op=True) for parameter in touched]:
            work.wait()

    def same_start(self, model: nn.Module) -> None:
        """The first process's weights everywhere."""
        if self.count > 1:
            for value in [*model.parameters(), *model.buffers()]:
                dist.broadcast(value.data, 0)

    def broadcast(self, value: Any) -> Any:
        """The first process's value everywhere."""
        if self.count == 1:
            return value
        from accelerate.utils import broadcast_object_list

        return broadcast_object_list([value])[0]

    def wait(self) -> None:
        self.accelerator.wait_for_everyone()

    def start_trackers(self, facts: dict[str, Any]) -> None:
        self.accelerator.init_trackers("training", {name: str(value) for name, value in facts.items()})

    def log(self, values: dict[str, float], step: int) -> None:
        self.accelerator.log(values, step=step)

    def end_trackers(self) -> None:
        for tracker in self.accelerator.trackers:  # end_training() would end the process group too
            tracker.finish()


def check_trackers(trackers: Iterable[Any]) -> None:
    """Raise where a tracker is unknown, or known but not installed: accelerate would leave it out without a word."""
    from accelerate.tracking import LOGGER_TYPE_TO_CLASS, get_available_trackers

    installed = {str(name) for name in get_available_trackers()}
    for name in (str(tracker) for tracker in trackers if isinstance(tracker, str)):
        if name == "all" or name in installed:
            continue
        known = sorted(map(str, LOGGER_TYPE_TO_CLASS))
        if name in known:
            raise BadSetting(f"the tracker {name} is not installed here; pip install {name}")
        raise BadSetting(f"no tracker is called {name!r}; accelerate knows: {', '.join(known)}")
