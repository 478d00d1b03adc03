"""AdaptiveModel: a Hugging Face encoder with heads after its layers. trace() to train, answer() to infer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from paredown.encoders.walk import evaluating
from paredown.errors import BadInput, BadPlan, BadSetting, NonFiniteAnswer
from paredown.network import Network
from paredown.plan import Plan
from paredown.state import Answer, Evidence, Ledger, State, keep_rows, not_a_number

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from paredown.answers import Encoded, Kind, Prediction
    from paredown.encoders.pipelines import AdaptiveOutput

# (hidden, layers run, layers in all) -> (what the head after this layer sees, what the next layer sees)
Between = Callable[[Tensor, int, int], tuple[Tensor, Tensor]]
Reduce = Callable[[State, int], State]  # (state, number of the layer that comes) -> what that layer gets


@dataclass
class Trace:
    """Everything every head says, with gradients."""

    logits: dict[int, Tensor]  # by layer number, in the order the layers ran
    doubt: dict[int, Tensor]  # likewise, where the model has learned to doubt
    stock: Tensor  # what the model's own classifier says at the end
    counts: Tensor  # [rows, tokens, …] tokens whose answer counts; of a choice [questions, options]
    last: int  # number of the last layer run

    @property
    def final(self) -> Tensor:
        """The answer at full depth: the last layer's head if it has one, else the model's own classifier."""
        return self.logits.get(self.last, self.stock)

    @property
    def exits(self) -> dict[int, Tensor]:
        """Logits of every head a row could leave at, before the end."""
        return {layer: logits for layer, logits in self.logits.items() if layer != self.last}


@dataclass(frozen=True)
class Reading:
    """How rows were read in training: what a bundle remembers, so that others are read alike. None: nobody said."""

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
        """What is said here, and of the rest what the other says. The columns of the texts belong together."""
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


class AdaptiveModel(Network):
    """An encoder that spends compute where it is needed. `plan` says how; it can be changed at every call."""

    def __new__(cls, stock: PreTrainedModel | None = None, *args: Any, **kwargs: Any) -> AdaptiveModel:
        # Named like the model inside, because transformers' pipelines look at the class name.
        if stock is not None and cls is AdaptiveModel:
            cls = type(type(stock).__name__, (AdaptiveModel,), {"__module__": cls.__module__})
        return super().__new__(cls)

    def __init__(self, stock: PreTrainedModel, tokenizer: Any, kind: Kind, plan: Plan | None = None):
        super().__init__(stock, kind, plan or Plan())
        self.tokenizer = tokenizer
        self.scores: dict[str, Any] | None = None  # the dev metric after each layer, as training last saw it
        self.reading = Reading()  # how training read its rows
        self.other_sections: dict[str, Any] = {}  # what else its bundle said; saved again as it was

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
        return [self.config.id2label[place] for place in range(self.config.num_labels)]

    @property
    def body(self) -> frozenset[str]:
        """Names of the encoder's parameters (not of its classifier, the heads or the doubt)."""
        ours = set(self.walk.body())
        return frozenset(name for name, parameter in self.named_parameters() if parameter in ours)

    def idle(self, depth: Sequence[int]) -> frozenset[str]:
        """Names of the parameters that this depth does not run: of layers, their heads and selectors; the teacher's."""
        off = set(range(self.layers)) - set(depth)
        running = {value for layer in depth for value in self._parts(layer).parameters()}
        resting = {value for layer in off for value in self._parts(layer).parameters()} - running
        rests = (name for name, value in self.named_parameters() if value in resting or name.startswith("teacher."))
        return frozenset(rests)

    def _parts(self, layer: int) -> nn.ModuleList:
        """A layer with the head after it and the selector before it."""
        beside = [parts[str(layer)] for parts in (self.heads, self.selectors) if str(layer) in parts]
        return nn.ModuleList([self.walk.layers[layer], *beside])

    def can_generate(self) -> bool:
        return False  # asked by transformers' pipelines

    # Plans

    def check(self, plan: Plan) -> None:
        """Raise BadPlan where a plan does not fit this model."""
        depth = self.depth_of(plan)
        if unknown := [layer for layer in depth if layer >= self.layers]:
            raise BadPlan(f"the plan runs layer {unknown[0]}, but this model has layers 0 to {self.layers - 1}")
        if plan.reduce is not None:
            plan.reduce.check(self, depth)
        if plan.exit is None:
            return
        asked = tuple(run for run, layer in enumerate(depth[:-1], 1) if str(layer) in self.heads)
        if not asked:
            raise BadPlan("the plan has an exit rule, but no layer on its way has a head; train exits first")
        plan.exit.check(self.kind, asked, self.doubt is not None)

    # Training

    def trace(
        self,
        batch: dict[str, Tensor],
        depth: Sequence[int] | None = None,
        between: Between | None = None,
        reduce: Reduce | None = None,
    ) -> Trace:
        """Run layers (default: the plan's) and heads. A frozen encoder runs without gradients; heads keep theirs.

        `between` acts on the states after every layer, `reduce` on the state before it (default: as the plan does).
        """
        way = self.depth if depth is None else tuple(depth)
        plan = Plan(way, reduce=self.plan.reduce if reduce is None else None)
        parts = [*self.walk.body(), *(self.selectors.parameters() if reduce is not None else ())]
        learning = torch.is_grad_enabled() and any(parameter.requires_grad for parameter in parts)
        seen: dict[int, tuple[Tensor, Tensor]] = {}
        with torch.set_grad_enabled(learning):
            state = self.walk.start(batch, may_drop=reduce is not None or plan.reduce is not None)
            for run, layer in enumerate(way, 1):
                state = state if reduce is None else reduce(state, layer)
                state = self.step(state, plan, run)
                here = state
                if between is not None:
                    shown, onward = between(state.hidden, run, len(way))
                    here, state = state.advance(shown), state.advance(onward)
                if str(layer) in self.heads or run == len(way):
                    seen[layer] = self._answered(here)
        counts = self.kind.answer_mask(batch)
        stock = self.kind.ruled_out(self.walk.stock_logits(*seen[way[-1]]), counts)
        trace = Trace({}, {}, stock, counts, way[-1])
        for layer in way:
            if str(layer) in self.heads:
                trace.logits[layer], doubt = self._ask(layer, *seen[layer], counts)
                if doubt is not None:
                    trace.doubt[layer] = doubt
        return trace

    def _answered(self, state: State) -> tuple[Tensor, Tensor]:
        """States and mask of the tokens that answers are read from: where every token has one, dropped ones too."""
        if self.kind.per_token:
            return state.rejoined(), state.mask if state.all_mask is None else state.all_mask
        return state.hidden, state.mask

    def keep_logits(self, state: State, layer: int) -> Tensor:
        """[rows, tokens] what the selector before a layer says of every token."""
        return self.selectors[str(layer)](self.walk.finish(state.hidden)).float()

    def _ask(self, layer: int, hidden: Tensor, mask: Tensor, counts: Tensor) -> tuple[Tensor, Tensor | None]:
        """Logits and doubt of the head after a layer; without one, the model's own classifier speaks."""
        if str(layer) not in self.heads:
            return self.kind.ruled_out(self.walk.stock_logits(hidden, mask), counts), None
        head: Any = self.heads[str(layer)]
        feature, doubt = head.feature(self.walk.finish(hidden), mask), None
        if self.doubt is not None:
            read = feature[:, :1] if self.kind.windowed else feature  # one doubt of the window
            doubt = self.kind.averaged(self.doubt(read).float().sigmoid().flatten(1), counts)
        return self.kind.ruled_out(head.score(feature), counts), doubt

    # Inference

    @torch.inference_mode()
    def answer(self, batch: dict[str, Tensor], plan: Plan | None = None) -> Answer:
        """Answer a padded batch as the plan says. Rows leave the batch when their exit rule lets them."""
        plan = self.plan if plan is None else Plan.of(plan)
        self.check(plan)
        depth, rule = self.depth_of(plan), plan.exit
        with evaluating(self):
            state = self.walk.start(batch, may_drop=plan.reduce is not None)
            memory = {} if rule is None else rule.start(len(state.asked), state.row.device)
            ledger = Ledger(len(state.asked), state.row.device)
            for run, layer in enumerate(depth, 1):
                state = self.step(state, plan, run)
                ledger.ran(state)
                last = run == len(depth)
                if not last and (rule is None or str(layer) not in self.heads):
                    continue
                evidence = self._evidence(state, layer, run, batch)
                said = evidence.logits if rule is None else rule.answer(evidence, memory)
                if last:
                    ledger.left(state.asked, said)
                    break
                certainty, memory = rule.certainty(evidence, memory)
                leave = certainty > rule.bounds((run,))[0]
                if bool(leave.any()):
                    ledger.left(state.asked[leave], said[leave])
                    state, memory = state.keep_asked(~leave), keep_rows(memory, ~leave)
                    if not len(state):
                        break
        return ledger.answer()

    def step(self, state: State, plan: Plan, run: int) -> State:
        """The plan's layer number `run`, counted from 1, once its reducer has dropped tokens."""
        depth, reducer = self.depth_of(plan), plan.reduce
        layer, onward = depth[run - 1], depth[run : run + 1]
        if reducer is None:
            return self.walk.step(state, layer)
        places = reducer.places(self, depth)
        if layer in places:
            state = state.keep_tokens(reducer.keep(state, layer, self))
        watch = reducer.reads_attention and any(following in places for following in onward)
        return self.walk.step(state, layer, watch)

    def _evidence(self, state: State, layer: int, run: int, batch: dict[str, Tensor]) -> Evidence:
        """What an exit rule sees after this layer."""
        counts = self.kind.answer_mask(batch)[state.asked]
        logits, doubt = self._ask(layer, *self._answered(state), counts)
        return Evidence(self.kind, logits, run, counts if self.kind.per_token or self.kind.grouped else None, doubt)

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
        from paredown.encoders.pipelines import AdaptiveOutput

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
        plan: Plan | None = None,
        batch_size: int = 32,
        max_length: int | None = None,
        speed: float | None = None,
        **settings: Any,
    ) -> list[Prediction]:
        """Predictions for texts, pairs, questions or a dataset, in the order they came, as a plan says (default: the
        model's own), or the model's own at a speed. `settings` are those of the model's kind of answer."""
        if speed is not None:
            if plan is not None:
                raise BadSetting("plan and speed both say when rows leave; give one")
            plan = self.at_speed(speed)
        kind = self.kind.but(**settings)
        units = kind.unlabelled(kind.units(inputs))
        rows = kind.encode(self.tokenizer, units, self.labels, kind.row_length(self, max_length))
        answers = self._answers(rows, plan, batch_size)
        predictions = []
        for indexes in kind.by_unit(rows):
            logits, layers, tokens = zip(*[answers[index] for index in indexes], strict=True)
            prediction = kind.decode([rows[index] for index in indexes], logits, self.labels)
            work = {"layers": sum(layers), "tokens": sum(tokens), "windows": len(indexes)}
            predictions.append(replace(prediction, **work))
        return predictions

    def _answers(
        self, rows: Sequence[Encoded], plan: Plan | None, batch_size: int
    ) -> dict[int, tuple[Tensor, int, int]]:
        """Logits without padding, layers and tokens of every row, by its index."""
        found: dict[int, tuple[Tensor, int, int]] = {}
        order = sorted(range(len(rows)), key=lambda index: len(rows[index]))
        for start in range(0, len(order), batch_size):
            chosen = order[start : start + batch_size]
            batch = self.kind.collate([rows[index] for index in chosen], self.tokenizer.pad_token_id, self.device)
            answer = self.answer(batch, plan)
            if bool((bad := not_a_number(answer.logits)).any()):
                rotten = sorted(chosen[at] for at in bad.nonzero().flatten().tolist())
                raise NonFiniteAnswer(f"the model answered NaN or infinity for rows {rotten[:10]}")
            work = zip(answer.logits.float().cpu(), answer.layers.tolist(), answer.tokens.tolist(), strict=True)
            for index, (logits, layers, tokens) in zip(chosen, work, strict=True):
                found[index] = (logits[: len(rows[index])] if self.kind.per_token else logits, layers, tokens)
        return found
