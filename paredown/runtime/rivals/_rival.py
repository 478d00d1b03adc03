"""Rival: another runtime of the whole model, how it is made ready, and why it may not be there."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

from paredown.answers import Encoded
from paredown.encoders.walk import logits_of
from paredown.model import AdaptiveModel

Inputs = Mapping[str, Tensor]  # what the encoder reads of a padded batch
Run = Callable[[Inputs], Any]  # logits, as a tensor or an array
BATCH = 8  # rows that a rival is calibrated by at once


@dataclass(frozen=True)
class Rival:
    name: str
    start: Callable[[AdaptiveModel, Sequence[Inputs]], Run]  # from the model and some batches, to calibrate by
    packages: tuple[str, ...] = ()  # that it needs, beside torch and transformers
    extra: str = ""  # of paredown, that installs them
    cpu_only: bool = True
    own_weights: bool = True  # False: it shares those of the model
    on_request: bool = False  # making it ready takes minutes

    def why_not(self, device: torch.device) -> str | None:
        """Why it cannot run here; None where it can be tried."""
        if self.cpu_only and device.type != "cpu":
            return f"it is measured on a CPU alone, not on {device.type}"
        if missing := [name for name in self.packages if find_spec(name) is None]:
            return f"{' and '.join(missing)} not installed: pip install 'paredown[{self.extra}]'"
        return None

    def answering(self, model: AdaptiveModel, rows: Sequence[Encoded]) -> Callable[[Sequence[Encoded]], Tensor]:
        """Answers rows as the model's own classifier would; `rows` are some to calibrate by."""
        batches = [padded(model, rows[at : at + BATCH]) for at in range(0, len(rows), BATCH)]
        with _silence():
            run = self.start(model, [model.walk.inputs_of(batch) for batch in batches])

        def answer(some: Sequence[Encoded]) -> Tensor:
            batch = padded(model, some)
            logits = torch.as_tensor(run(model.walk.inputs_of(batch)))
            return model.kind.ruled_out(logits, model.kind.answer_mask(batch)).cpu()

        return answer


@contextmanager
def _silence() -> Iterator[None]:
    """Converters report their progress, and tracers warn of every shape; what goes wrong is raised all the same."""
    before = logging.root.manager.disable
    with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        try:
            yield
        finally:
            logging.disable(before)


def padded(model: AdaptiveModel, rows: Sequence[Encoded]) -> dict[str, Tensor]:
    return model.kind.collate(rows, model.tokenizer.pad_token_id, model.device)


class Logits(nn.Module):
    """A model of transformers as tracers want it: named tensors in their order, logits out."""

    def __init__(self, stock: Any, names: Sequence[str]):
        super().__init__()
        self.stock, self.names = stock, list(names)
        self.eval()  # exporters restore the mode they found, and that of a new module is training

    def forward(self, *inputs: Tensor) -> Tensor:
        return logits_of(self.stock(**dict(zip(self.names, inputs, strict=True))))
