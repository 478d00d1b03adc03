"""The same routes, as fast as the machine allows. Importing this package registers what can run a model's layers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from paredown.errors import BadSetting
from paredown.registry import runtimes
from paredown.runtime.executor import Executor
from paredown.runtime.packed import Packed
from paredown.runtime.watching import learn_ranges

if TYPE_CHECKING:
    from paredown.model import AdaptiveModel

__all__ = [
    "AutoRuntime",
    "ExactRuntime",
    "Executor",
    "Fp8Runtime",
    "Int8Runtime",
    "PackedRuntime",
    "ReferenceRuntime",
    "learn_ranges",
]


@runtimes.register("reference")
@dataclass(frozen=True)
class ReferenceRuntime:
    """The encoder's own layers on padded batches: the oracle that the others must agree with."""

    def start(self, model: AdaptiveModel) -> Executor:
        model.backend = model.walk
        return Executor(model, self.name)  # type: ignore[attr-defined]


@runtimes.register("packed")
@dataclass(frozen=True)
class PackedRuntime:
    """Fast layers on tokens without padding; units of many batches share deep layers."""

    def start(self, model: AdaptiveModel) -> Executor:
        model.backend = Packed(model.walk)
        return Executor(model, self.name, packed=True)  # type: ignore[attr-defined]


@runtimes.register("int8")
@dataclass(frozen=True)
class Int8Runtime:
    """The packed runtime on a CPU, with linear maps in eight bits: faster, and near."""

    kernel: str | None = None  # fbgemm, onednn or onnxruntime; None: the fastest on this machine

    def start(self, model: AdaptiveModel) -> Executor:
        from paredown.runtime.int8 import Int8

        model.backend = Int8(model.walk, model.ranges, self.kernel)
        return Executor(model, self.name, packed=True, exact=False)  # type: ignore[attr-defined]


@runtimes.register("fp8")
@dataclass(frozen=True)
class Fp8Runtime:
    """The packed runtime on a GPU in bfloat16, with linear maps in floats of eight bits: near."""

    def start(self, model: AdaptiveModel) -> Executor:
        from paredown.runtime.fp8 import Fp8

        model.backend = Fp8(model.walk)
        return Executor(model, self.name, packed=True, exact=False)  # type: ignore[attr-defined]


@runtimes.register("exact")
@dataclass(frozen=True)
class ExactRuntime:
    """Packed where the family is known, else the reference."""

    def start(self, model: AdaptiveModel) -> Executor:
        try:
            return PackedRuntime().start(model)
        except BadSetting as error:
            executor = ReferenceRuntime().start(model)
            executor.reason = str(error)
            return executor


@runtimes.register("auto")
@dataclass(frozen=True)
class AutoRuntime:
    """The one that the model's certificate is of, where it runs here; else an exact one."""

    def start(self, model: AdaptiveModel) -> Executor:
        name = model.certified_runtime
        if name is None:
            return ExactRuntime().start(model)
        try:
            executor: Executor = runtimes.make(name).start(model)
            executor.reason = "its plan was certified with it"
        except BadSetting as error:
            executor = ExactRuntime().start(model)
            executor.reason = str(error)
        return executor
