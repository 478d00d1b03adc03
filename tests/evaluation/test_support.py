"""Answers with support: a span, yes or no, and its sentences, from windows; trained, saved, asked and scored."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForTokenClassification

from paredown import AdaptiveModel, Plan
from paredown.answers import IGNORED, Question, SupportedSpan, collate
from paredown.answers._windows import Window, windows
from paredown.answers.supported_span import MAX_POSITIONS
from paredown.errors import BadSetting, NonFiniteAnswer
from paredown.evaluation import HotpotPredictions, evaluate, score_hotpot
from paredown.registry import answers
from paredown.training import train
from tests.contracts.reducer_settings import with_selectors
from tests.evaluation.test_questions import PLANS
from tests.families import adaptive
from tests.placement import agree, close
from tests.tasks.asking import decoded, hotpot_questions, made_questions, word_pieces

KIND = answers.make("supported_span")
assert isinstance(KIND, SupportedSpan)
TOKENIZER = word_pieces()


def model_of(**changes: Any) -> AdaptiveModel:
    settings = {"vocab_size": 200, "max_position_embeddings": 96, **changes}
    return adaptive("bert", "supported_span", tokenizer=TOKENIZER, **settings)


def cut(questions: list[Question], max_length: int = 24, **settings: Any) -> list[Window]:
    return [KIND.labelled(window) for window in windows(TOKENIZER, questions, max_length, stride=6, **settings)]


def truth(window: Window) -> torch.Tensor:
    """Logits that say the label."""
    positions, types, support = KIND.parts(torch.tensor([window.label]))
    logits = torch.full((len(window), 6), -9.0)
    logits[:, 5] = support[0] * 18.0 - 9.0
    logits[0, 2 + int(types[0])] = 9.0
    if positions[0, 0, 0] > 0:
        logits[positions[0, 0, 0], 0] = logits[positions[0, 0, 1], 1] = 9.0
    return logits


# Windows


def test_a_label_points_at_what_the_window_shows() -> None:
    questions = hotpot_questions(20)
    made = cut(questions)
    assert len(made) > 2 * len(questions)
    whole = {index: set() for index in range(len(questions))}
    for window in made:
        positions, types, support = KIND.parts(torch.tensor([window.label]))
        assert ("span", "yes", "no")[int(types[0])] == (window.asked.choice or "span")
        shown = [tuple(pair) for pair in positions[0].tolist() if pair[0] != IGNORED]
        assert shown == ([] if window.asked.choice else list(window.spans[:MAX_POSITIONS]) or [(0, 0)])
        assert [token for token, mark in enumerate(support[0].tolist()) if mark != IGNORED] == list(
            window.sentences or ()
        )
        for token, which in window.begins:
            sentence = window.asked.sentences[which]
            assert window.characters(token, token)[0] == sentence.start
            assert support[0, token] == sentence.support
            whole[window.unit].add(which)
    assert all(len(seen) == 6 for seen in whole.values())  # every sentence begins in some window


def test_all_positions_are_labels_where_any_may_be_meant() -> None:
    context = "the river " * 90
    spans = tuple((start, start + 5) for start in range(4, len(context), 10))
    question = Question("q", "what?", context, ("river",), spans)
    for any_span, most in ((False, 1), (True, 64)):
        (window,) = windows(TOKENIZER, [replace(question, any_span=any_span)], 200)
        assert window.label == window.spans[:most] and len(window.spans) == 90
    short, none = hotpot_questions(1)[0], replace(question, spans=(), any_span=True)
    rows = windows(TOKENIZER, [replace(question, any_span=True), none, short], 300)
    labels = collate(rows, 0)["labels"]
    assert labels.shape == (3, 64, 2) and labels[1].tolist() == [[0, 0], *[[IGNORED] * 2] * 63]


def test_questions_without_answers_have_no_label() -> None:
    question = replace(hotpot_questions(1)[0], answers=(), spans=(), choice=None)
    assert all(window.label is None and window.sentences for window in cut([question], 96))


# Decoding


def test_labels_are_decoded_to_answers() -> None:
    questions = hotpot_questions(30)
    made = cut(questions)
    predicted = decoded(KIND, made, [truth(window) for window in made])
    figures = score_hotpot(questions, HotpotPredictions.of(predicted))
    assert (figures["em"], figures["sp_em"], figures["joint_f1"]) == (1, 1, 1)
    for answer, question in zip(predicted, questions, strict=True):
        assert answer.choices is not None and answer.support is not None and len(answer.support) == 6
        assert answer.score == pytest.approx(1, abs=1e-3)
        shown = question.context[answer.start : answer.end]
        assert answer.label == (question.choice or shown) and bool(shown) == (question.choice is None)


def test_windows_agree_on_the_type_and_the_surest_on_a_sentence() -> None:
    (question,) = hotpot_questions(1)
    made = cut([question], 16)
    logits = [torch.zeros(len(window), 6) for window in made]
    for index, one in enumerate(logits):
        one[0, 2:5] = torch.tensor([0.0, 1.0, 0.0]) if index else torch.tensor([9.0, 0.0, 0.0])
        one[:, 5] = float(index) - 3.0
    (outputs,) = decoded(KIND, made, logits)
    types = torch.stack([one[0, 2:5].softmax(-1) for one in logits]).mean(0)
    assert outputs.choices is not None and outputs.support is not None
    assert list(outputs.choices.values()) == pytest.approx(types.tolist()) and outputs.label == "yes"
    seen: dict[Any, list[int]] = {}
    for index, window in enumerate(made):
        for _, which in window.begins:
            seen.setdefault((question.sentences[which].title, question.sentences[which].number), []).append(index)
    sure = {fact: torch.tensor(max(positions) - 3.0).sigmoid().item() for fact, positions in seen.items()}
    assert outputs.support == pytest.approx(sure)
    for threshold in (0.0, 0.3, 0.5, 1.0):
        (again,) = decoded(KIND, made, logits, support_threshold=threshold)
        assert again.facts == tuple(fact for fact in outputs.support if outputs.support[fact] >= threshold)


def test_what_cannot_be_decoded_is_named() -> None:
    made = cut(hotpot_questions(1))
    logits = [torch.zeros(len(window), 6) for window in made]
    with pytest.raises(BadSetting, match="0 to 1, not 2"):
        decoded(KIND, made, logits, support_threshold=2)
    with pytest.raises(BadSetting, match=r"logits \[tokens, 6\]"):
        decoded(KIND, made, [one[:, :2] for one in logits])
    logits[0][0, 3] = float("nan")
    with pytest.raises(NonFiniteAnswer, match="'h0-0'"):
        decoded(KIND, made, logits)


# Asking


@pytest.mark.parametrize("plan", [*PLANS, Plan(exit="entropy:0.8", reduce="selector:0.5")], ids=str)
def test_an_answer_has_no_neighbours(plan: Plan) -> None:
    model, given = with_selectors(model_of()), {"max_length": 24, "stride": 6}
    questions = [*hotpot_questions(8), Question("plain", "what?", "the town of the river")]
    together = model.predict(questions, plan, 7, **given)
    assert together[-1].facts == () and {one.windows for one in together} > {1}
    for question, reply in zip(questions, together, strict=True):
        (alone,) = model.predict([question], plan, 1, **given)
        same = ("label", "start", "end", "facts", "windows", "layers", "tokens")
        assert all(getattr(alone, name) == getattr(reply, name) for name in same)
        assert reply.support == pytest.approx(alone.support, abs=1e-4)
        assert reply.choices == pytest.approx(alone.choices, abs=1e-4)


def test_training_finds_answers_types_and_support(tmp_path: Path) -> None:
    model, dev = model_of(head=None), hotpot_questions(40, seed=1)
    before = score_hotpot(dev, HotpotPredictions.of(model.predict(dev)))
    method = "joint:epochs=8,lr=3e-3,head=linear"
    train(model, method, hotpot_questions(200), dev, output=tmp_path, batch_size=16, progress=False)
    model = AdaptiveModel.from_pretrained(tmp_path / "model")
    after = score_hotpot(dev, HotpotPredictions.of(model.predict(dev, Plan())))
    assert before["joint_f1"] < 0.3 < 0.8 < after["joint_f1"], (before, after)
    found = evaluate(model, dev, ["entropy"], plan=Plan(), timed_batches=(), resamples=20)
    assert found.metric == "answer_and_support_f1" and found.full["score"] > 0.8
    early = model.predict(dev, Plan(exit=found.chosen[-1]["rule"]))
    assert score_hotpot(dev, HotpotPredictions.of(early))["joint_f1"] > 0.6


def test_a_bundle_is_a_plain_token_classifier(tmp_path: Path) -> None:
    model, questions = model_of(), hotpot_questions(3)
    model.save_pretrained(tmp_path / "bundle")
    again, plain = (
        cls.from_pretrained(tmp_path / "bundle") for cls in (AdaptiveModel, AutoModelForTokenClassification)
    )
    assert again.kind == KIND
    assert agree(again.predict(questions), model.predict(questions))
    inputs = collate([replace(row, label=None) for row in model.encode(questions)], 0)
    stock = {name: inputs[name] for name in ("input_ids", "attention_mask", "token_type_ids")}
    full = model.answer(inputs, Plan()).logits
    asked = inputs["answer_mask"]
    assert close(plain(**stock).logits[asked], full[asked])
    plain.save_pretrained(tmp_path / "encoder")
    TOKENIZER.save_pretrained(tmp_path / "encoder")
    named = AdaptiveModel.from_pretrained(tmp_path / "encoder", task="hotpotqa")
    assert named.labels == ["start", "end", "span", "yes", "no", "support"]
    with pytest.raises(BadSetting, match="leave labels and num_labels out"):
        AdaptiveModel.from_pretrained(tmp_path / "encoder", task="hotpotqa", labels=["a", "b"])


def test_predictions_go_to_disk_in_the_official_shape(tmp_path: Path) -> None:
    questions = hotpot_questions(4)
    made = cut(questions)
    predicted = HotpotPredictions.of(decoded(KIND, made, [truth(window) for window in made]))
    predicted.write(tmp_path / "answered.json")
    whole = json.loads((tmp_path / "answered.json").read_text())
    right = {one.id: [[s.title, s.number] for s in one.sentences if s.support] for one in questions}
    assert whole == {"answer": {one.id: one.answers[0] for one in questions}, "sp": right}


def test_plain_spans_still_learn_from_these_questions() -> None:
    yes = next(question for question in hotpot_questions(20) if question.choice == "yes")
    (window,) = windows(TOKENIZER, [yes], 96)
    assert window.label == ((0, 0),) and window.sentences is None
    assert windows(TOKENIZER, made_questions(1, 8), 96)[0].begins == ()
