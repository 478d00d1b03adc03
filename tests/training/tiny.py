"""A tiny BERT, rows it can learn, and stages that leave nothing to chance."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from transformers import BertConfig, BertForSequenceClassification, BertForTokenClassification, BertTokenizer

from paredown import AdaptiveModel, Plan, Stage
from paredown.methods._stage import everything
from paredown.registry import answers

WORDS = "the a movie film plot cast was is good bad fine dull great awful very not and but really quite".split()
VOCABULARY = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]", *WORDS]


def tiny(kind: str = "single_label", layers: int = 3, dropout: float = 0.1, heads: bool = False) -> AdaptiveModel:
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(VOCABULARY),
        hidden_size=32,
        num_hidden_layers=layers,
        num_attention_heads=4,
        intermediate_size=40,
        max_position_embeddings=64,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        num_labels=1 if kind == "regression" else 2,
        problem_type=answers.make(kind).problem_type,
    )
    stock = (BertForTokenClassification if kind == "token_label" else BertForSequenceClassification)(config)
    tokenizer = BertTokenizer(vocab={token: index for index, token in enumerate(VOCABULARY)}, model_max_length=64)
    model = AdaptiveModel(stock.eval(), tokenizer, answers.make(kind))
    if heads:
        model.grow_heads("pooler")
    return model.eval()


def rows(number: int, kind: str = "single_label") -> list[dict[str, Any]]:
    """Texts of 3 to 14 words; the label says whether `good` is among them."""
    random = torch.Generator().manual_seed(number)
    found: list[dict[str, Any]] = []
    for _ in range(number):
        length = int(torch.randint(3, 15, (), generator=random))
        words = [WORDS[index] for index in torch.randint(len(WORDS), (length,), generator=random)]
        good = [int(word in ("good", "great")) for word in words]
        if kind == "token_label":
            found.append(
                {"tokens": words, "label": [-100 if word == "the" else mark for word, mark in zip(words, good)]}
            )
        else:
            label: Any = {"single_label": max(good), "multi_label": [max(good)], "regression": sum(good) / 2}[kind]
            found.append({"text": " ".join(words), "label": label})
    return found


def final_loss(model: AdaptiveModel, batch: dict[str, Tensor], progress: Any) -> Tensor:
    return model.kind.loss(model.trace(batch).final, batch["labels"])


def stage(name: str = "learn", loss: Callable = final_loss, trains: Callable = everything, **settings: Any) -> Stage:
    return Stage(name, loss, trains, **{"epochs": 2, "lr": 1e-3, "batch_size": 8, **settings})


@dataclass
class Steps:
    """A method made of given stages."""

    wanted: list[Stage]
    heads: bool = False
    described: str = field(default="test")
    max_drop: float | None = None

    def check(self, model: AdaptiveModel) -> None:
        pass

    def plan(self, model: AdaptiveModel) -> Plan:
        return model.plan

    def grow(self, model: AdaptiveModel) -> None:
        if self.heads:
            model.grow_heads("pooler")

    def stages(self, model: AdaptiveModel) -> list[Stage]:
        return self.wanted


def bits(model: AdaptiveModel) -> dict[str, bytes]:
    """Every parameter that stays when training ends."""
    own = {name: value for name, value in model.named_parameters() if not name.startswith("companions.")}
    return {name: value.detach().numpy().tobytes() for name, value in own.items()}
