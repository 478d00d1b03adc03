"""Asking questions: a text is answered whatever its length and its neighbours, and training understands questions."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paredown import AdaptiveModel, Plan
from paredown.answers import Question, Span, SpanPrediction, collate
from paredown.answers._windows import windows
from paredown.errors import BadInput, BadSetting
from paredown.evaluation import evaluate, score_spans
from paredown.training import train
from tests.families import adaptive
from tests.tasks.asking import decoded, made_questions, word_pieces

PLANS = [
    Plan(),
    Plan(depth=(0, 2)),
    Plan(exit="patience:1"),
    Plan(exit="entropy:0.6"),
    Plan(reduce="fixed_share:0.5,score=attention,layers=(2,)"),
    Plan(exit="margin:0.3", reduce="fixed_share:0.7,score=attention,layers=(1,3)"),
]


def span_model(**changes: Any) -> AdaptiveModel:
    settings = {"vocab_size": 200, "max_position_embeddings": 96, **changes}
    return adaptive("bert", "span", tokenizer=word_pieces(), **settings)


@pytest.fixture(scope="module")
def model() -> AdaptiveModel:
    return span_model()


SHORT = {"max_length": 64, "stride": 16}


@pytest.fixture(scope="module")
def questions() -> list[Question]:
    """Some texts fit one window, others take many."""
    asked = made_questions(5, 8, seed=3) + made_questions(4, 60, seed=4)
    return [replace(question, id=f"q{index}", question="what town?") for index, question in enumerate(asked)]


def without_scores(reply: Any) -> SpanPrediction:
    """All of a reply but the numbers that rounding moves."""
    return replace(reply, score=0, scores={}, candidates=(), null_odds=None)


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_an_answer_has_no_neighbours(model: AdaptiveModel, questions: list[Question], plan: Plan) -> None:
    together = model.predict(questions, plan, 7, **SHORT)
    backwards = model.predict(questions[::-1], plan, **SHORT)[::-1]
    assert [reply.id for reply in together] == [question.id for question in questions]
    assert {reply.windows for reply in together} > {1}
    for question, *replies in zip(questions, together, backwards, strict=True):
        (alone,) = model.predict([question], plan, 1, **SHORT)
        for reply in replies:
            assert without_scores(reply) == without_scores(alone)
            assert reply.score == pytest.approx(alone.score, abs=1e-3)


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_a_reply_is_what_its_windows_say(model: AdaptiveModel, questions: list[Question], plan: Plan) -> None:
    question = questions[-1]
    shown = windows(model.tokenizer, [question], 64, 16)
    each = [model.answer(collate([replace(one, label=None)], 0), plan) for one in shown]
    (wanted,) = decoded(Span(), shown, [one.logits[0] for one in each])
    (reply,) = model.predict([question], plan, **SHORT)
    assert (reply.label, reply.start, reply.end) == (wanted.label, wanted.start, wanted.end)
    assert reply.label == question.context[reply.start : reply.end] != ""
    assert reply.windows == len(shown) > 3
    assert reply.layers == sum(int(one.layers) for one in each)
    assert reply.tokens == sum(int(one.tokens) for one in each)


def test_the_example_of_the_documents_runs(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    page = Path(__file__).parents[2] / "docs" / "data_formats.md"
    (example,) = (block for block in page.read_text().split("```") if "score_spans" in block)
    model = span_model(head=None, hidden_size=16)
    model.stock.save_pretrained(tmp_path / "encoder")
    model.tokenizer.save_pretrained(tmp_path / "encoder")
    monkeypatch.chdir(tmp_path)
    source = example.removeprefix("python\n").replace("google-bert/bert-base-uncased", "encoder")
    exec(source, {})
    assert capsys.readouterr().out.strip()


def test_plans_differ_in_work(model: AdaptiveModel, questions: list[Question]) -> None:
    work = {str(plan): sum(reply.tokens for reply in model.predict(questions, plan, **SHORT)) for plan in PLANS}
    assert max(work.values()) == work[str(PLANS[0])] and len(set(work.values())) > 3


def test_one_question() -> None:
    model = span_model()
    (reply,) = model.predict([("who built it?", "The river bridge of the town.")], Plan(depth=(0,)))
    assert reply.label in "The river bridge of the town." and 0 < reply.score <= 1
    assert (reply.windows, reply.layers) == (1, 1)
    assert model.predict([]) == []


def test_silence_where_it_is_allowed(questions: list[Question]) -> None:
    model = span_model()
    asked = [model.predict(questions, **SHORT, null_threshold=limit) for limit in (None, -1e6, 1e6)]
    always, never, again = ([reply.label for reply in replies] for replies in asked)
    assert all(always) and not any(never) and again == always


def test_settings_of_the_kind_are_checked(model: AdaptiveModel) -> None:
    asked = [("who?", "the town")]
    with pytest.raises(BadSetting, match="span has no setting 'strid'; did you mean 'stride'"):
        model.predict(asked, strid=4)
    with pytest.raises(BadSetting, match=r"stride \(0\)"):
        model.predict(asked, stride=0)
    with pytest.raises(BadSetting, match="single_label has no setting 'null_threshold'"):
        adaptive("bert", tokenizer=word_pieces(), vocab_size=200).predict(["a text"], null_threshold=0.0)


@pytest.mark.parametrize(
    ("asked", "wrong"),
    [
        ([("who?", " ")], "question 0 .*context is empty"),
        ([("who?", "me"), ("", "me")], "question 1 .*question is empty"),
        (["who?"], "question 0: expected a Question"),
    ],
)
def test_bad_questions_are_named(model: AdaptiveModel, asked: Any, wrong: str) -> None:
    with pytest.raises(BadInput, match=wrong):
        model.predict(asked)


def test_what_does_not_fit_is_refused(tokenizer: Any, questions: list[Question], tmp_path: Path) -> None:
    labels = adaptive("bert", tokenizer=tokenizer)
    with pytest.raises(BadSetting, match="answers single_label"):
        labels.predict(questions)
    with pytest.raises(BadSetting, match="answers single_label"):
        train(labels, "finetune", questions, output=tmp_path, progress=False)
    with pytest.raises(BadSetting, match="more than this encoder can read: 96"):
        span_model().predict(questions, max_length=97)
    with pytest.raises(BadInput, match="question 0: expected a Question"):
        evaluate(span_model(), [{"text": "a", "label": 1}])
    with pytest.raises(BadInput, match="no label"):
        unlabelled = [Question("a", "who?", "me")]
        train(span_model(), "finetune", unlabelled, output=tmp_path, progress=False)


def test_windows_are_rows(questions: list[Question]) -> None:
    model = span_model()
    rows = model.encode([*questions, Question("none", "who?", "nobody", impossible=True)])
    assert len(rows) > len(questions) + 1
    assert rows[-1].label == ((0, 0),) and max(map(len, rows)) == 96
    assert model.encode(rows) == rows


def towns(number: int, seed: int) -> list[Question]:
    """The word after `the` is the answer."""
    draw = random.Random(seed)
    found = []
    for index in range(number):
        words = [draw.choice(["who", "and", "of", "what"]) for _ in range(draw.randint(4, 12))]
        at = draw.randrange(len(words))
        answer = draw.choice(["river", "bridge", "town", "built"])
        words[at:at] = ["the", answer]
        context = " ".join(words)
        start = len(" ".join(words[: at + 1])) + 1
        found.append(Question(f"t{index}", "what?", context, (answer,), ((start, start + len(answer)),)))
    return found


def test_train_then_evaluate(tmp_path: Path) -> None:
    model, dev = span_model(head=None), towns(40, 1)
    before = score_spans(dev, model.predict(dev))
    train(
        model, "joint:epochs=6,lr=3e-3,head=linear", towns(200, 0), dev, output=tmp_path, batch_size=16, progress=False
    )
    model = AdaptiveModel.from_pretrained(tmp_path / "model")
    after = score_spans(dev, model.predict(dev, Plan()))
    assert after["f1"] > 0.95 > 0.5 > before["f1"]
    found = evaluate(model, dev, ["entropy"], plan=Plan(), timed_batches=(), resamples=20)
    assert found.metric == "span_f1" and found.rows == 40
    assert found.full["score"] == pytest.approx(after["f1"])
    early = model.predict(dev, Plan(exit=found.chosen[-1]["rule"]))
    assert score_spans(dev, early)["f1"] > 0.9
