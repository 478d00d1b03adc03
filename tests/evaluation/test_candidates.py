"""Choosing among candidates: whatever the windows, the neighbours, the exit rule and the reducer; and training it."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from paredown import AdaptiveModel, Plan
from paredown.answers import Choices, MarkedPrediction, Question, collate
from paredown.answers._marked_windows import marked_windows
from paredown.engine import run_steps
from paredown.errors import BadInput, BadSetting
from paredown.evaluation import (
    evaluate,
    score_choices,
    write_candidates,
)
from paredown.registry import answers, heads
from paredown.training import train
from tests.contracts.exit_settings import all_rules
from tests.contracts.reducer_settings import all_reducers, with_selectors
from tests.contracts.test_exits import accepts
from tests.families import adaptive
from tests.grids import halved
from tests.placement import agree
from tests.tasks.asking import word_pieces
from tests.tasks.choosing import made_choices

LENGTH = 48
QUESTIONS = made_choices(4, 1, seed=1) + made_choices(4, 9, seed=2)  # some fit one window, others take several


def marked_model(**changes: Any) -> AdaptiveModel:
    settings = {"vocab_size": 200, "max_position_embeddings": 128, **changes}
    return adaptive("bert", "marked", tokenizer=word_pieces(), **settings)


@cache
def asked_model(head: str = "pooler") -> AdaptiveModel:
    return with_selectors(marked_model(head=head))


def ask(questions: Any, *given: Any, head: str = "pooler", **settings: Any) -> list[Any]:
    return asked_model(head).predict(questions, *given, **{"max_length": LENGTH, **settings})


def accuracy(questions: list[Choices], predictions: list[Any]) -> float:
    return float(score_choices(questions, [one.label for one in predictions])["accuracy"])


def exact_fields(choice: MarkedPrediction) -> tuple[Any, ...]:
    return choice.id, choice.label, choice.candidate, choice.windows, choice.layers, choice.tokens


def check_invariance(plan: Plan, **settings: Any) -> list[Any]:
    """The same answers in batches of 1, of 5 and all at once, in any order."""
    together = ask(QUESTIONS, plan, **settings)
    backwards = ask(QUESTIONS[::-1], plan, 5, **settings)[::-1]
    for asked, *choices in zip(QUESTIONS, together, backwards, strict=True):
        (alone,) = ask([asked], plan, 1, **settings)
        for choice in choices:
            assert exact_fields(choice) == exact_fields(alone)
            assert choice.scores == pytest.approx(alone.scores, abs=1e-4)
    return together


@pytest.mark.parametrize("rule", [rule for rule in all_rules() if accepts(rule, answers.make("marked"))], ids=str)
def test_every_exit_rule_answers_without_neighbours(rule: Any) -> None:
    check_invariance(Plan(exit=rule))


@pytest.mark.parametrize("protect", [True, False], ids=["protected", "free"])
@pytest.mark.parametrize("reducer", all_reducers(), ids=str)
def test_every_reducer_answers_without_neighbours(reducer: Any, protect: bool) -> None:
    found, full = check_invariance(Plan(reduce=reducer), protect=protect), ask(QUESTIONS)
    assert sum(choice.tokens for choice in found) < sum(choice.tokens for choice in full)
    check_invariance(Plan(exit="entropy:0.9", reduce=reducer), protect=protect)


@pytest.mark.parametrize("head", heads.names())
def test_every_head_answers_without_neighbours(head: str) -> None:
    check_invariance(Plan(exit="margin:0.2", reduce="selector:0.5"), head=head)


def test_protection_is_a_choice() -> None:
    """Candidates' markers stay where they are protected, and go where they are not."""
    for protect in (True, False):
        model = asked_model()
        shown = model.kind.but(protect=protect).rows(model, QUESTIONS, LENGTH)
        inputs = collate([replace(window, label=None) for window in shown], 0)
        steps = model.route(Plan(reduce="fixed_share:0.5")).steps
        state = run_steps(model.walk, steps, model.embed(inputs, joinable=True))
        stays = torch.zeros_like(inputs["answer_mask"])
        for row, positions in enumerate(state.position):
            stays[row, positions[state.mask[row]]] = True
        assert bool((stays | ~inputs["answer_mask"]).all()) == protect


def test_a_score_is_the_mean_over_the_windows() -> None:
    model, plan = asked_model(), Plan(exit="patience:1", reduce="selector:0.5")
    asked = QUESTIONS[-1]
    shown = marked_windows(model.tokenizer, [asked], LENGTH)
    each = [model.answer(collate([replace(one, label=None)], 0), plan) for one in shown]
    scores = torch.stack([one.logits[0, list(shown[0].first or ()), 0] for one in each]).mean(0).softmax(0)
    (found,) = ask([asked], plan)
    assert [*found.scores.values()] == pytest.approx(scores.tolist(), abs=1e-5)
    assert found.candidate == scores.argmax() and found.label == asked.options[found.candidate]
    assert found.windows == len(shown) > 2
    assert found.layers == sum(int(one.layers) for one in each)
    assert found.tokens == sum(int(one.tokens) for one in each)
    few = ask([asked], plan, max_windows=1)[0]
    assert few.windows == 1 and len(few.scores) == len(asked.options)


def test_one_candidate_is_certain() -> None:
    asked = Choices("q", "the river\nof the town built", "what town", ("river",))
    (found,) = ask([asked], Plan(exit="entropy:0.1"))
    assert (found.label, found.score, found.layers) == ("river", 1.0, 1)


def test_only_candidates_count() -> None:
    """Logits of other tokens reach neither the answer nor the exit rule."""
    model = marked_model()
    inputs = collate([marked_windows(model.tokenizer, QUESTIONS, LENGTH)[0]], 0)
    logits = model.answer(inputs, Plan(exit="entropy:0.5")).logits
    assert bool((logits[~inputs["answer_mask"]] <= -1e4).all())
    assert inputs["answer_mask"][0, model.kind.predicted(logits)[0, 0]]
    steps = model.route(Plan((0, 1))).steps[:1]
    evidence = model.evidence(run_steps(model.walk, steps, model.embed(inputs)), steps[0])
    assert evidence.classes.tolist() == [[len(QUESTIONS[0].options)]]  # type: ignore[union-attr]


METHODS = [
    "finetune:epochs=1",
    "joint:epochs=1",
    "two_stage:epochs=1,exit_epochs=1",
    "self_distill:epochs=1,exit_epochs=1,head=linear",
    "alternating:epochs=1",
    "token_policy:epochs=1,policy_epochs=1,joint_epochs=1,samples=2",
    "token_gate:epochs=1,gate_epochs=1",
]


@pytest.mark.parametrize("method", halved(METHODS))
def test_every_method_trains_it_and_a_bundle_keeps_it(method: str, tmp_path: Path) -> None:
    model, rows = marked_model(head=None), made_choices(24, 4, seed=5)
    train(model, method, rows, rows[:6], output=tmp_path, batch_size=8, max_length=LENGTH, progress=False)
    again = AdaptiveModel.from_pretrained(tmp_path / "model")
    assert again.kind.name == "marked" and again.config.num_labels == 1 and again.plan == model.plan
    ours, theirs = (one.predict(rows[:3], max_length=LENGTH) for one in (again, model))
    assert agree(ours, theirs)


def test_train_then_evaluate(tmp_path: Path) -> None:
    model, dev = marked_model(head=None, num_hidden_layers=2), made_choices(40, 1, seed=1)
    before = accuracy(dev, model.predict(dev))
    joint = "joint:epochs=10,lr=5e-3,head=linear"
    train(model, joint, made_choices(240, 1), dev, output=tmp_path, batch_size=8, progress=False)
    model = AdaptiveModel.from_pretrained(tmp_path / "model")
    after = accuracy(dev, model.predict(dev, Plan()))
    assert after > 0.9 > 0.7 > before
    found = evaluate(model, dev, ["entropy"], plan=Plan(), timed_batches=(), resamples=20)
    assert found.metric == "accuracy" and found.rows == 40  # one window each
    assert found.full["score"] == pytest.approx(after)
    assert accuracy(dev, model.predict(dev, Plan(exit=found.chosen[-1]["rule"]))) > 0.8


def test_a_question_that_cannot_be_won_counts_as_lost(tmp_path: Path) -> None:
    many = replace(QUESTIONS[0], id="many", options=tuple("abcdefghij"), label=9)
    assert accuracy([many], ask([many], max_candidates=3)) == 0
    beyond = replace(many, options=tuple(f"{a}{b}" for a in "abcdefghij" for b in "abcdefghij"), label=99)
    model = marked_model(max_position_embeddings=512, head=None)
    rows = model.encode([QUESTIONS[0], beyond])
    assert [row.teaches for row in rows] == [True, False] and rows[1].label is None
    found = evaluate(model, [beyond], plan=Plan(), timed_batches=(), resamples=5)
    assert (found.rows, found.full["score"]) == (1, 0.0)


def test_windows_are_judged_as_one_question() -> None:
    model = marked_model()
    found = evaluate(model, QUESTIONS, [], plan=Plan(), max_length=LENGTH, timed_batches=(), resamples=5)
    windows = model.encode(QUESTIONS, LENGTH)
    assert found.rows == len(QUESTIONS) < len(windows)
    assert found.full["score"] == accuracy(QUESTIONS, model.predict(QUESTIONS, Plan(), max_length=LENGTH))


def test_the_example_of_the_documents_runs(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    page = Path(__file__).parents[2] / "docs" / "data_formats.md"
    (example,) = (block for block in page.read_text().split("```") if "max_windows=None)  #" in block)
    model = marked_model(head=None, hidden_size=16)
    model.stock.save_pretrained(tmp_path / "encoder")
    model.tokenizer.save_pretrained(tmp_path / "encoder")
    monkeypatch.chdir(tmp_path)
    exec(example.removeprefix("python\n").replace("google-bert/bert-base-uncased", "encoder"), {})
    assert capsys.readouterr().out.strip()


def test_predictions_go_by_id(tmp_path: Path) -> None:
    found = ask(QUESTIONS)
    (path,) = write_candidates(tmp_path / "new", found)
    assert json.loads(path.read_text()) == {choice.id: choice.label for choice in found}


@pytest.mark.parametrize(
    ("asked", "wrong"),
    [
        ("what?", "question 0: expected Choices"),
        (Choices("a", " ", "q", ("x", "y")), r"question 0 \('a'\): the context is empty"),
        (Choices("a", "c", "", ("x", "y")), "the question is empty"),
        (Choices("a", "c", "q", ("x", " ")), "the option 1 is empty"),
        (Choices("a", "c", "q", ()), "no options to choose among"),
    ],
)
def test_bad_questions_are_named(asked: Any, wrong: str) -> None:
    with pytest.raises(BadInput, match=wrong):
        ask([asked])


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    spans = adaptive("bert", "span", tokenizer=word_pieces(), vocab_size=200)
    with pytest.raises(BadSetting, match="a Choices is for models of choice or marked; this one answers span"):
        spans.predict(QUESTIONS)
    with pytest.raises(BadSetting, match="a Choices is for models of choice or marked; this one answers span"):
        train(spans, "finetune", QUESTIONS, output=tmp_path, progress=False)
    with pytest.raises(BadSetting, match="a Question is for models of span or supported_span; this one answers marked"):
        evaluate(asked_model(), [Question("a", "who?", "me")])
    with pytest.raises(BadInput, match="question 0: expected Choices"):
        evaluate(asked_model(), [{"text": "a", "label": 1}])
    with pytest.raises(BadSetting, match="more than this encoder can read: 128"):
        ask(QUESTIONS, max_length=129)
    with pytest.raises(BadInput, match="no label"):
        unlabelled = [replace(QUESTIONS[0], label=None)]
        train(marked_model(head=None), "finetune", unlabelled, output=tmp_path, progress=False)
    with pytest.raises(BadInput, match="no right answer is known for question 'c0'"):
        score_choices([replace(QUESTIONS[0], label=None)], [])


def test_what_is_right_must_be_an_option() -> None:
    asked = Choices("q7", "a text", "what?", ("this", "that"), 2)
    with pytest.raises(BadInput, match="'q7': option 2 is labelled right, of 2"):
        score_choices([asked], ["this"])
