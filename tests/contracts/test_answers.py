"""What every kind of answer promises, tried on every kind in the catalogue, from inputs to predictions."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from paredown import AdaptiveModel, Plan
from paredown.answers import Choices, Question
from paredown.errors import BadInput, BadPlan, BadSetting
from paredown.evaluation import metric_for, record
from paredown.registry import answers
from paredown.training import train
from tests.families import adaptive
from tests.placement import agree
from tests.tasks.asking import hotpot_questions, word_pieces
from tests.tasks.choosing import made_choices

LENGTH = 48
WORDS = ("river", "bridge", "of the town", "built and what", "who", "the town and the river")
each_kind = pytest.mark.parametrize("name", answers.names())


def model_of(name: str, **settings: Any) -> AdaptiveModel:
    sizes = {"vocab_size": 200, "max_position_embeddings": LENGTH, **settings}
    return adaptive("bert", name, tokenizer=word_pieces(), **sizes)


def asked(model: AdaptiveModel) -> list[Any]:
    """Labelled inputs such as the kind reads; some texts are long."""
    kind, labels = model.kind, model.labels
    if kind.asks is Question:
        return hotpot_questions(6)
    if kind.asks is Choices:
        return made_choices(6, 4)
    texts = [*WORDS, " ".join(WORDS * 9)]
    if kind.per_word:
        return [{"tokens": text.split(), "tags": [labels[0]] * len(text.split())} for text in texts]
    label = {"number": 0.5, "texts": labels[:1]}.get(kind.label_type, labels[0])
    return [{"text": text, "label": label} for text in texts]


def batch_of(model: AdaptiveModel) -> dict[str, Tensor]:
    return model.kind.collate([row for row in model.encode(asked(model)) if row.teaches], 0)


def logits_of(model: AdaptiveModel, batch: dict[str, Tensor], scale: float = 1.0) -> tuple[Tensor, Tensor]:
    """Random logits of a head, with what cannot be the answer ruled out, and the answer mask."""
    mask = model.kind.answer_mask(batch)
    shape = batch["input_ids"].shape if model.kind.per_token else batch["input_ids"].shape[:1]
    noise = torch.randn(*shape, len(model.labels), generator=torch.Generator().manual_seed(3))
    return model.kind.ruled_out(scale * noise, mask), mask


@each_kind
def test_it_is_a_value_with_a_short_text(name: str) -> None:
    kind = answers.make(name)
    assert kind == answers.make(name) == answers.parse(name) == answers.from_json(answers.to_json(kind))
    assert hash(kind) == hash(answers.make(name)) and kind.but() is kind and kind.name == name
    assert json.loads(json.dumps(answers.to_json(kind)))["name"] == name
    with pytest.raises(BadSetting, match=f"{name} has no setting 'nonsense'"):
        kind.but(nonsense=1)


@each_kind
def test_inputs_become_rows_that_fit(name: str) -> None:
    model = model_of(name)
    inputs = asked(model)
    rows = model.encode(inputs)
    assert max(map(len, rows)) <= LENGTH and all(row.label is not None for row in rows)
    groups = model.kind.by_unit(rows)
    assert len(groups) == len(inputs) and sorted(at for group in groups for at in group) == list(range(len(rows)))
    assert model.encode(rows) == rows
    bare = model.kind.unlabelled(model.kind.units(inputs))
    assert all(row.label is None for row in model.encode(bare))
    assert [row.ids for row in model.encode(bare)] == [row.ids for row in rows]
    with pytest.raises(BadInput, match=" 0"):
        model.encode([42])


@each_kind
def test_the_loss_is_finite_and_teaches(name: str) -> None:
    model = model_of(name)
    batch = batch_of(model)
    for scale in (1.0, 1e3):
        logits, _ = logits_of(model, batch, scale)
        loss = model.kind.loss(logits.requires_grad_(), batch["labels"])
        (gradient,) = torch.autograd.grad(loss, logits)
        assert loss.dim() == 0 and bool(loss.isfinite()) and bool(gradient.isfinite().all()) and bool(gradient.any())
    errors = model.kind.wrong(logits.detach(), batch["labels"])
    assert errors.dim() == 2 and bool(((errors >= 0) & (errors <= 1)).all())


@each_kind
def test_it_imitates_a_teacher(name: str) -> None:
    model = model_of(name)
    batch = batch_of(model)
    (ours, mask), (theirs, _) = logits_of(model, batch), logits_of(model, batch, 3.0)
    assert model.kind.distill(ours, ours, mask).item() == pytest.approx(0, abs=1e-6)
    for direction in ("forward", "reverse"):
        assert model.kind.distill(ours, theirs, mask, 2.0, direction) > 0  # type: ignore[arg-type]


@each_kind
def test_probabilities_are_such_or_are_refused(name: str) -> None:
    model = model_of(name)
    logits, mask = logits_of(model, batch_of(model))
    if model.kind.numeric:
        with pytest.raises(BadPlan, match="numbers"):
            model.kind.log_probs(logits)
        return
    log_probs = model.kind.log_probs(logits)
    assert log_probs.dim() == 3 and torch.allclose(log_probs.exp().sum(-1), torch.ones(log_probs.shape[:2]))
    predicted = model.kind.predicted(logits)
    assert predicted.shape == log_probs.shape[:2] and len(logits) == len(log_probs)
    assert bool((torch.as_tensor(model.kind.classes(log_probs, mask)) > 0).all())


@each_kind
def test_a_prediction_has_what_files_hold(name: str) -> None:
    model = model_of(name)
    inputs = asked(model)
    found = model.predict(inputs, "patience:1" if not model.kind.numeric else "patience:1,tolerance=0.1")
    assert len(found) == len(inputs) and model.predict([]) == []
    for one in found:
        fields = {field: getattr(one, "label" if field == "answer" else field) for field in model.kind.fields}
        assert json.loads(json.dumps(fields)).keys() == set(model.kind.fields)
        types = {"text": str, "number": float, "texts": list}
        assert isinstance(one.label, types[model.kind.label_type]) and one.layers >= one.windows >= 1
    alone = [model.predict([item], Plan(), batch_size=1)[0] for item in inputs]
    together = model.predict(inputs, Plan())
    assert [one.label for one in alone] == [one.label for one in together] or model.kind.numeric
    assert [one.score for one in alone] == pytest.approx([one.score for one in together], abs=1e-4)


@each_kind
def test_units_are_judged_as_they_are_predicted(name: str) -> None:
    model = model_of(name)
    inputs = asked(model)
    seen, metric = record(model, model.encode(inputs)), metric_for(model.kind)
    assert seen.labelled and len(seen.units) == len(inputs)
    assert all(-1 <= score <= 1 for score in seen.scores(metric).values())
    bare = model.encode(model.kind.unlabelled(model.kind.units(inputs)))
    with pytest.raises(BadInput, match="without labels"):
        record(model, bare).scores(metric)


@each_kind
def test_a_bundle_keeps_it(name: str, tmp_path: Path) -> None:
    model = model_of(name, head=None)
    inputs = asked(model)
    train(model, "finetune:epochs=1", inputs * 2, inputs, output=tmp_path, batch_size=4, progress=False)
    again = AdaptiveModel.from_pretrained(tmp_path / "model")
    assert again.kind == model.kind and again.scores["metric"] == model.kind.metric  # type: ignore[index]
    assert agree(again.predict(inputs), model.predict(inputs))


def test_questions_for_others_are_refused() -> None:
    for name in answers.names():
        kind = answers.make(name)
        for item in (hotpot_questions(1)[0], made_choices(1, 1)[0]):
            if not isinstance(item, kind.asks):
                with pytest.raises(BadSetting, match=f"a {type(item).__name__} is for models of .* answers {name}"):
                    kind.units([replace(item, id="q")])
