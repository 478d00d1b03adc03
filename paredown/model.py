"""AdaptiveModel: a network with its tokenizer and its plan. trace() to train, answer() and predict() to infer."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from paredown.certificate import Certificate
from paredown.encoders.pipelines import ForPipelines
from paredown.engine import Observer, Trace, trace
from paredown.errors import BadInput, BadPlan, BadSetting
from paredown.network import Network
from paredown.plan import Plan
from paredown.registry import answers, heads, runtimes
from paredown.route import Route, row_bounds
from paredown.state import Answer

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from paredown.answers import Encoded, Kind, Prediction
    from paredown.encoders.output import AdaptiveOutput
    from paredown.ranges import Ranges


@dataclass(frozen=True)
class Reading:
    """How rows were read in training: what a bundle remembers, so that others are read alike. None: not given."""

    max_length: int | None = None  # tokens of a row, or of a window of a long text; longer rows are cut
    text_column: str | None = None
    pair_column: str | None = None
    label_column: str | None = None
    header: bool | None = None  # whether the first line of csv and tsv names the columns
    label_separator: str | None = None  # between the labels of a row

    def __post_init__(self) -> None:
        if self.max_length is not None and self.max_length < 1:
            raise BadSetting(f"max_length must be at least 1, not {self.max_length}")

    def over(self, other: Reading) -> Reading:
        """These values, and of the rest the other's. The columns of the texts belong together."""
        own = {name: value for name, value in asdict(self).items() if value is not None}
        rest = asdict(other)
        if self.text_column is not None or self.pair_column is not None:
            rest |= {"text_column": None, "pair_column": None}
        return Reading(**rest | own)

    def to_json(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value is not None}

    @classmethod
    def from_json(cls, data: Any) -> Reading:
        types = {"max_length": int, "header": bool}
        known = {field.name: types.get(field.name, str) for field in fields(cls)}
        if not isinstance(data, dict) or any(type(value) is not known.get(name) for name, value in data.items()):
            raise BadSetting(f"how rows are read is an object of {', '.join(known)}, not {data!r:.80}")
        return cls(**data)


class AdaptiveModel(ForPipelines, Network):
    """An encoder that spends compute where it is needed. `plan` says how; it can be changed at every call."""

    def __init__(self, stock: PreTrainedModel, tokenizer: Any, kind: Kind, plan: Plan | None = None):
        super().__init__(stock, kind)
        self.tokenizer, self.plan = tokenizer, plan or Plan()
        self._runtime: Any = None
        self._executor: Any = None
        self.scores: dict[str, Any] | None = None  # the dev metric after each layer, as training last saw it
        self.reading = Reading()  # how training read its rows
        self.ranges: Ranges | None = None  # of what its linear maps meet, as training rows showed them; for eight bits
        self._certificate: Certificate | None = None
        self._changed: str | None = None  # why the certificate is not of these weights
        self.other_sections: dict[str, Any] = {}  # unknown sections of its bundle; saved again as they were

    # Where it comes from and goes to

    @classmethod
    def from_pretrained(cls, source: str | Path, **settings: Any) -> AdaptiveModel:
        """A model from a bundle, a Hugging Face folder or a hub id; see `paredown.bundle.load` for the settings."""
        from paredown.bundle import load

        return load(source, **settings)

    def save_pretrained(self, folder: str | Path, dtype: str | torch.dtype | None = None) -> None:
        """A bundle: plain transformers still loads it at full depth. `dtype`: of the weights on disk; None: float32."""
        from paredown.bundle import save

        save(self, folder, dtype)

    # Facts

    @property
    def config(self) -> Any:
        return self.stock.config

    @property
    def device(self) -> torch.device:
        return self.stock.device

    @property
    def dtype(self) -> torch.dtype:
        return self.stock.dtype

    @property
    def labels(self) -> list[str]:
        return [self.config.id2label[index] for index in range(self.config.num_labels)]

    @property
    def body(self) -> frozenset[str]:
        """Names of the encoder's parameters (not of its classifier, the heads or the error probability)."""
        ours = set(self.walk.body())
        return frozenset(name for name, parameter in self.named_parameters() if parameter in ours)

    def idle(self, depth: Sequence[int]) -> frozenset[str]:
        """Names of the parameters that this depth does not run: of layers, their heads and selectors."""
        off = set(range(self.layers)) - set(depth)
        running = {value for layer in depth for value in self._parts(layer).parameters()}
        resting = {value for layer in off for value in self._parts(layer).parameters()} - running
        return frozenset(name for name, value in self.named_parameters() if value in resting)

    def _parts(self, layer: int) -> nn.ModuleList:
        """A layer with the head after it and the selector before it."""
        beside = [parts[str(layer)] for parts in (self.heads, self.selectors) if str(layer) in parts]
        return nn.ModuleList([self.walk.layers[layer], *beside])

    def fingerprint(self) -> str:
        """The sha256 of all weights, and of what gives them their meaning, in eight bits too."""
        head = None if self.head is None else heads.to_json(self.head)
        meaning = [self.walk.family, answers.to_json(self.kind), head]
        if self.ranges is not None:
            meaning.append(self.ranges.to_json())
        digest = hashlib.sha256(json.dumps(meaning, sort_keys=True).encode())
        for name, value in self.named_parameters():
            if name.startswith("companions."):  # they only serve training
                continue
            digest.update(f"{name} {value.dtype} {list(value.shape)}\n".encode())
            digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
        return digest.hexdigest()

    # What is promised

    @property
    def certificate(self) -> Certificate | None:
        """What is promised of the plan; None where nothing is, or no longer is: `void` says why."""
        return self._certificate if self.void is None else None

    @certificate.setter
    def certificate(self, certificate: Certificate | None) -> None:
        """The model as it is now must be the one that was certified."""
        self._certificate, self._changed = certificate, None
        if certificate is not None and certificate.model != self.fingerprint():
            self._changed = "its weights are not those that were certified"

    @property
    def certified_runtime(self) -> str | None:
        """The runtime that the plan is certified with, where that answers otherwise than the encoder; else None."""
        known = self._certificate
        if known is None or known.exact or known.plan != self.plan or self._changed is not None:
            return None
        return known.runtime

    @property
    def void(self) -> str | None:
        """Why its certificate no longer holds; None where it does, or there is none."""
        known = self._certificate
        if known is None or self._changed is not None:
            return self._changed
        if known.plan != self.plan:
            return f"its plan is not the one that was certified, {known.plan}"
        if known.runtime != self.executor.name and not (self.executor.exact and known.exact):
            return f"it was certified with the runtime {known.runtime}, and {self.executor.name} answers otherwise"
        return None

    # Training

    @property
    def depth(self) -> tuple[int, ...]:
        """Numbers of the layers that the plan runs: what methods train and judge."""
        return self.depth_of(self.plan)

    def trace(
        self, batch: dict[str, Tensor], depth: Sequence[int] | None = None, observer: Observer | None = None
    ) -> Trace:
        """Run layers (default: the plan's) and heads. A frozen encoder runs without gradients; heads keep theirs.

        An observer may change the states between layers, and drop tokens in the place of the plan's reducer.
        """
        plan = self.plan if depth is None else self.plan.but(depth=tuple(depth))
        return trace(self, plan, batch, observer)

    # Inference

    def answer(self, batch: dict[str, Tensor], plan: Plan | Sequence[Plan] | None = None) -> Answer:
        """Answer a padded batch as the plan says. Rows leave the batch when their exit rule lets them.

        Several plans, one for each row (or question with options), may differ in the threshold of their exit rule.
        """
        if plan is None or isinstance(plan, (Plan, dict, str)):
            return self._answer(batch, [self.route(self.plan if plan is None else Plan.of(plan))])
        routes = [self.route(Plan.of(one)) for one in plan]
        if other := next((route for route in routes if route.key != routes[0].key), None):
            raise BadPlan(f"rows of one batch differ in thresholds alone; these do not: {plan[0]} and {other.plan}")
        return self._answer(batch, routes)

    @torch.inference_mode()
    def _answer(self, batch: dict[str, Tensor], routes: Sequence[Route]) -> Answer:
        """By one route, or by one for each unit."""
        self.check_mode()
        same = all(route is routes[0] for route in routes)
        return self.executor.answer(routes[0], batch, None if same else row_bounds(routes, self.device))

    @property
    def executor(self) -> Any:
        """What runs the layers; see `use`."""
        if self._executor is None:
            backend = self.backend  # one that was put there by hand stays
            self.use("reference").backend = backend
        return self._executor

    def use(self, runtime: Any = "auto") -> AdaptiveModel:
        """Choose what runs the layers in inference: reference (the encoder's own, as transformers runs them), packed
        (faster, the same to some 1e-5), int8, …; auto: the one that the certificate is of, else the fastest that
        answers the same. BadSetting where it cannot."""
        self._runtime = runtimes.of(runtime)
        self._executor = self._runtime.start(self)
        return self

    @contextmanager
    def keeping_runtime(self) -> Iterator[None]:
        """What runs the layers may change meanwhile."""
        before = self._runtime, self.executor, self.backend
        try:
            yield
        finally:
            self._runtime, self._executor, self.backend = before

    def _apply(self, *args: Any, **kwargs: Any) -> Any:
        """Moves or casts the weights. A runtime that only some devices and types have is started there again."""
        before = self.device, self.dtype
        super()._apply(*args, **kwargs)
        if self._executor is not None and not self._executor.exact and before != (self.device, self.dtype):
            self.use(self._runtime)
        return self

    def check_mode(self) -> None:
        """Raise where dropout would make answers random."""
        if self.training:
            raise BadSetting("the model is in training mode, where dropout makes answers random; call model.eval()")

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        plan: Plan | None = None,
        **others: Any,
    ) -> AdaptiveOutput:
        """`answer()` with the calling convention of transformers; of a choice, [questions, options, tokens]."""
        if given := [name for name, value in others.items() if value is not None]:
            raise BadInput(f"forward answers token ids and does not read {', '.join(given)}; to train, use trace()")
        if input_ids is None:
            raise BadInput("input_ids are needed")
        from paredown.encoders.output import AdaptiveOutput

        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        batch = {"input_ids": input_ids, "attention_mask": mask}
        more = {"token_type_ids": token_type_ids, "position_ids": position_ids}
        batch |= {name: value for name, value in more.items() if value is not None}
        if self.kind.grouped and input_ids.dim() == 3:
            questions, options = input_ids.shape[:2]
            batch = {name: value.flatten(0, 1) for name, value in batch.items()}
            batch["group"] = torch.arange(questions, device=input_ids.device).repeat_interleave(options)
        answer = self.answer(batch, plan)
        return AdaptiveOutput(answer.logits, answer.layers, answer.tokens)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """With text, as in the `fastbert` package: `label, layers = model("some text", speed=0.5)`."""
        if args and isinstance(args[0], str):
            return self._say(*args, **kwargs)
        return super().__call__(*args, **kwargs)

    def _say(self, text: str, pair: str | None = None, speed: float | None = None) -> tuple[Any, int]:
        plan = self.plan
        if speed is not None:
            if plan.exit is None:
                raise BadPlan("the plan of this model has no exit rule, so there is no speed to set")
            plan = plan.but(exit=plan.exit.at_speed(speed))
        (prediction,) = self.predict([text if pair is None else (text, pair)], plan=plan)
        return prediction.label, prediction.layers

    def encode(self, inputs: Any, max_length: int | None = None) -> list[Encoded]:
        """Token ids for every row, cut at `max_length` (default: as in training, else what the tokenizer allows);
        questions about a long text become its windows."""
        return self.kind.rows(self, inputs, max_length)

    def at_speed(self, speed: float) -> Plan:
        """The plan at a speed from 0, every layer, to 1, the first exit; 0.5 saves half of the FLOPs that 1 saves on
        the dev rows of training."""
        if not 0 <= speed <= 1:
            raise BadSetting(f"speed must lie between 0 (every layer) and 1 (the first exit), not {speed!r}")
        known = (self.scores or {}).get("speeds")
        if not known:
            raise BadPlan(
                "what a speed saves is measured on dev rows in training, and this model has no record of that"
            )
        wanted = speed * known[-1]["saved"]
        return self.plan.but(exit=next(one["rule"] for one in known if one["saved"] >= wanted) if speed else None)

    def predict(
        self,
        inputs: Any,
        plan: Plan | Sequence[Plan] | None = None,
        batch_size: int | None = None,
        max_length: int | None = None,
        speed: float | Sequence[float] | None = None,
        **settings: Any,
    ) -> list[Prediction]:
        """Predictions for texts, pairs, questions or a dataset, in the order they came, as a plan says (default: the
        model's own), or the model's own at a speed; a list has one plan or speed for each of them. `settings` are
        those of the model's kind of answer. No more runs at once than `batch_size` of the longest rows; None: as much
        as suits the device."""
        job = self.prepare(inputs, plan, max_length, speed, **settings)
        return self.executor.predict(job, batch_size)

    def prepare(
        self,
        inputs: Any,
        plan: Plan | Sequence[Plan] | None = None,
        max_length: int | None = None,
        speed: float | Sequence[float] | None = None,
        **settings: Any,
    ) -> Any:
        """The part of `predict` that no device is needed for; another thread may do it ahead."""
        kind = self.kind.but(**settings)
        units = kind.unlabelled(kind.units(inputs))
        return self.executor.job(kind, units, self.plans_of(plan, speed, len(units)), max_length)

    def plans_of(self, plan: Any, speed: Any, units: int) -> list[Plan]:
        """The plan of each unit."""
        if plan is not None and speed is not None:
            raise BadSetting("plan and speed both say when rows leave; give one")
        given = speed if plan is None else plan
        if given is None:
            return [self.plan] * units
        several = isinstance(given, Sequence) and not isinstance(given, str)
        if several and len(given) != units:
            raise BadInput(f"a list of plans or speeds has one for each input; got {len(given)} for {units}")
        each = given if several else [given]
        plans = [Plan.of(one) if speed is None else self.at_speed(one) for one in each]
        return plans if several else plans * units
