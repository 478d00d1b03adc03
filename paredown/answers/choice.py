"""One of the options that a question has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from paredown.answers._kind import RULED_OUT, Kind
from paredown.answers._prediction import Prediction
from paredown.answers._questions import Choices
from paredown.answers._rows import Encoded, flat
from paredown.answers.label import SingleLabel
from paredown.encoders.frame import Frame
from paredown.errors import BadInput, BadSetting
from paredown.registry import answers

MOST_ASKED = 128  # tokens of a question and one of its options, as TR-BERT has it for RACE
TOGETHER = 256  # questions given to the tokenizer at once


@answers.register("choice")
@dataclass(frozen=True)
class Choice(SingleLabel):
    """One of a question's options. Each is a row, scored on its own; the scores of a question are its logits."""

    problem_type: ClassVar[str | None] = None
    architecture = "MultipleChoice"
    grouped = True
    own_scores = True
    asks = Choices
    columns = ("question", "context")
    named_fields = ("id", "letter")
    outputs: ClassVar[tuple[str, ...]] = ("score",)

    def unit(self, item: Any, index: int) -> Choices:
        if isinstance(item, Mapping):
            facts = {"id": index, "context": "", "question": None, "options": (), "label": None, **item}
            item = Choices(str(facts["id"]), *(facts[name] for name in ("context", "question", "options", "label")))
        if not isinstance(item, Choices):
            wanted = "Choices, or a dict with a question, its options and, if there is one, a context"
            raise BadInput(f"row {index}: expected {wanted}, got {item!r:.80}")
        where, options = f"row {index} ({item.id!r:.40})", item.options
        if not isinstance(item.context, str) or not isinstance(item.question, str) or not item.question.strip():
            raise BadInput(f"{where}: question and context must be texts, and the question not empty")
        if not isinstance(options, (list, tuple)) or not all(isinstance(one, str) and one.strip() for one in options):
            raise BadInput(f"{where}: options must be a list of texts that are not empty, got {options!r:.80}")
        if len(options) < 2:
            raise BadInput(f"{where}: there must be at least two options to choose from, not {len(options)}")
        return replace(item, options=tuple(options), label=self.label_number(item.label, options, index))

    def encode(
        self, tokenizer: Any, units: Sequence[Any], labels: Sequence[str], max_length: int | None = None
    ) -> list[Encoded]:
        """`[CLS] context [SEP] question option [SEP]` for every option; the context is cut, only it may be dropped."""
        frame, limit = Frame.of(tokenizer), max_length or self.usual_length(tokenizer)
        room = limit - len(frame)
        if room < 2:
            raise BadSetting(
                f"max_length={limit} leaves no room for a text and a question; {len(frame) + 2} is the least"
            )

        def tokens(texts: list[str]) -> list[list[int]]:
            return tokenizer(texts, add_special_tokens=False, return_attention_mask=False, verbose=False)["input_ids"]

        encoded = []
        for start in range(0, len(units), TOGETHER):
            some = units[start : start + TOGETHER]
            contexts = list(dict.fromkeys(row.context for row in some))  # questions often share one
            read = dict(zip(contexts, tokens(contexts), strict=True))
            asked = iter(tokens([f"{row.question} {option}" for row in some for option in row.options]))
            for row in some:
                options = [_option(frame, read[row.context], next(asked), room) for _ in row.options]
                encoded.append(Encoded(label=row.label, options=tuple(options), asked=row))
        return encoded

    def encoder_rows(self, rows: Sequence[Encoded]) -> Sequence[Encoded]:
        return flat(rows)

    def width(self, rows: Sequence[Encoded]) -> int | None:
        return max(len(row.options) for row in rows)

    def decode(self, rows: Sequence[Any], logits: Sequence[Tensor], labels: Sequence[str]) -> Prediction:
        options = rows[0].asked.options
        return super().decode(rows, [logits[0][: len(options)]], options)

    decode_rows = Kind.decode_rows  # each question has its own options

    def submitted(self, logits: Tensor, labels: Sequence[str]) -> list[Any]:
        return Kind.submitted(self, logits, labels)

    def answer_mask(self, batch: Mapping[str, Tensor]) -> Tensor:
        if "group" not in batch:
            raise BadInput("a choice is among several rows: batch['group'] must number the question of each, from 0 on")
        options = torch.bincount(batch["group"])
        return torch.arange(int(options.max()), device=options.device) < options.unsqueeze(1)

    def ruled_out(self, logits: Tensor, mask: Tensor) -> Tensor:
        return _by_question(logits.squeeze(-1), mask, RULED_OUT)

    def averaged(self, values: Tensor, mask: Tensor) -> Tensor:
        options = mask.sum(1).view(-1, *[1] * (values.dim() - 1))
        return _by_question(values, mask, 0.0).sum(1) / options

    def loss(self, logits: Tensor, labels: Tensor, smoothing: float = 0.0) -> Tensor:
        if not smoothing:
            return super().loss(logits, labels)
        others = (logits > RULED_OUT / 2).scatter(1, labels.unsqueeze(1), False)
        target = (smoothing * others / others.sum(1, keepdim=True)).scatter(1, labels.unsqueeze(1), 1 - smoothing)
        return F.cross_entropy(logits.float(), target)


def _by_question(values: Tensor, mask: Tensor, fill: float) -> Tensor:
    """[questions, options, …]: the values of rows [rows, …] where `mask` has an option; the order is the same."""
    there = mask.view(*mask.shape, *[1] * (values.dim() - 1)).expand(*mask.shape, *values.shape[1:])
    return values.new_full(there.shape, fill).masked_scatter(there, values)


def _option(frame: Frame, context: list[int], asked: list[int], room: int) -> Encoded:
    asked = asked[-min(MOST_ASKED, room - 1) :]  # the end, where the option stands
    context = context[: room - len(asked)]
    ids = frame.around(context, asked)
    start = len(frame.special[0])
    after = range(start + len(context), len(ids["input_ids"]))
    return Encoded(ids, protected=(*range(start), *after))
