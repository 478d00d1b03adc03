"""One label for every word."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from paredown.answers._kind import Kind, cross_entropy
from paredown.answers._prediction import Prediction
from paredown.answers._rows import IGNORED, Encoded, Row, number_of, pairs_of, row_of, token_ids
from paredown.errors import BadInput
from paredown.registry import answers


@answers.register("token_label")
@dataclass(frozen=True)
class TokenLabel(Kind):
    auto_class = "AutoModelForTokenClassification"
    architecture = "TokenClassification"
    per_token = True
    per_word = True
    label_type = "texts"
    own_scores = True

    def loss_weight(self, rows: Sequence[Encoded], indexes: Sequence[int]) -> int:
        chosen = (rows[index] for index in indexes)
        return sum(len(row.first or ()) if row.label is None else sum(one >= 0 for one in row.label) for row in chosen)

    def item_width(self, rows: Sequence[Encoded]) -> int | None:
        return self.width(rows)

    def answer_mask(self, batch: Mapping[str, Tensor]) -> Tensor:
        return batch["labels"] >= 0 if "labels" in batch else super().answer_mask(batch)

    def judged(self, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        asked = labels != IGNORED
        row = torch.arange(len(logits)).unsqueeze(1).expand_as(asked)
        return self.predicted(logits)[asked], labels[asked], row[asked]

    def log_probs(self, logits: Tensor) -> Tensor:
        return logits.float().log_softmax(-1)

    def loss(self, logits: Tensor, labels: Tensor, smoothing: float = 0.0) -> Tensor:
        labelled = (labels != IGNORED).sum().clamp(min=1)  # with none in this batch: no loss, but still a graph
        return cross_entropy(logits.float().flatten(0, 1), labels.flatten(), smoothing, reduction="sum") / labelled

    def wrong(self, logits: Tensor, labels: Tensor) -> Tensor:
        return ((logits.argmax(-1) != labels) & (labels != IGNORED)).float()

    def unit(self, item: Any, index: int) -> Row:
        return row_of(item, index, per_word=True)

    def label_number(self, label: Any, labels: Sequence[str], index: int) -> Any:
        if label is None:
            return None
        return [IGNORED if one == IGNORED else number_of(one, labels, index) for one in label]

    def encode(
        self, tokenizer: Any, units: Sequence[Any], labels: Sequence[str], max_length: int | None = None
    ) -> list[Encoded]:
        if not units:
            return []
        texts, limit = [_words(row) for row in units], max_length or self.usual_length(tokenizer)
        tokens = tokenizer(texts, pairs_of(units), truncation=True, max_length=limit, is_split_into_words=True)
        encoded = []
        for index, row in enumerate(units):
            word_of = tokens.word_ids(index)
            first = tuple(at for at, word in enumerate(word_of) if word is not None and word != word_of[at - 1])
            numbers = self.label_number(row.label, labels, index)
            if numbers is not None and len(numbers) != len(texts[index]):
                raise BadInput(f"row {index}: {len(numbers)} labels for {len(texts[index])} words")
            label = None
            if numbers is not None:
                label = [IGNORED] * len(word_of)
                for at in first:
                    label[at] = numbers[word_of[at]]
            begun = tuple(word_of[at] for at in first)
            encoded.append(Encoded(token_ids(tokens, index), label, first, words=begun, asked=row))
        return encoded

    def decode(self, rows: Sequence[Any], logits: Sequence[Tensor], labels: Sequence[str]) -> Prediction:
        (row,), (outputs,) = rows, logits
        probs = self.log_probs(outputs[list(row.first)].unsqueeze(0))[0].exp()  # [words, classes]
        best = [labels[number] for number in probs.argmax(-1).tolist()]
        each = [dict(zip(labels, its, strict=True)) for its in probs.tolist()]
        read, words = row.words, range(len(_words(row.asked)))
        names, scores = (dict(zip(read, found, strict=True)) for found in (best, each))
        sure = probs.amax(-1).min().item() if each else 1.0
        return Prediction([names.get(word) for word in words], sure, [scores.get(word) for word in words])


def _words(row: Row) -> list[str]:
    return row.text.split() if isinstance(row.text, str) else list(row.text)
