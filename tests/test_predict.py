"""predict(): what goes in, what comes out, in which order, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from datasets import Dataset

from paredown import AdaptiveModel, Plan
from paredown.errors import BadInput, BadSetting, NonFiniteAnswer
from tests.families import adaptive
from tests.placement import agree

TEXTS = ["awful", "the movie was great", "a very dull plot but the cast is fine", "bad", "not good and not bad really"]
PAIRS = [(text, "the plot is dull") for text in TEXTS]


@pytest.fixture
def made(tokenizer: Any) -> Any:
    return lambda kind, **settings: adaptive("bert", kind, tokenizer=tokenizer, plan="learned:0.5", **settings)


def test_texts_in_their_order(model: AdaptiveModel) -> None:
    predicted = model.predict(TEXTS, batch_size=2)
    assert [one.label for one in predicted] == [model.predict(text)[0].label for text in TEXTS]
    for one in predicted:
        assert set(one.scores) == set(model.labels) and sum(one.scores.values()) == pytest.approx(1, abs=1e-5)
        assert one.score == max(one.scores.values()) == one.scores[one.label]
        assert 1 <= one.layers <= model.layers
    lengths = [len(model.tokenizer(text)["input_ids"]) for text in TEXTS]
    assert [one.tokens for one in predicted] == [
        one.layers * length for one, length in zip(predicted, lengths, strict=True)
    ]
    assert model.predict([]) == []


def test_the_order_of_the_rows_does_not_matter(model: AdaptiveModel) -> None:
    there, back = model.predict(TEXTS), model.predict(TEXTS[::-1])[::-1]
    assert [(one.label, one.layers) for one in there] == [(one.label, one.layers) for one in back]
    assert [one.score for one in there] == pytest.approx([one.score for one in back], abs=1e-5)


@pytest.mark.parametrize(
    "inputs",
    [
        TEXTS,
        tuple(TEXTS),
        (text for text in TEXTS),
        [{"text": text} for text in TEXTS],
        [{"sentence": text, "label": 99} for text in TEXTS],  # labels are not looked at
        Dataset.from_dict({"text": TEXTS, "idx": list(range(len(TEXTS)))}),
    ],
    ids=["list", "tuple", "generator", "dicts", "labelled", "dataset"],
)
def test_every_form_of_texts(model: AdaptiveModel, inputs: Any) -> None:
    assert model.predict(inputs) == model.predict(TEXTS)


@pytest.mark.parametrize(
    "inputs",
    [
        [list(pair) for pair in PAIRS],
        [{"premise": text, "hypothesis": pair} for text, pair in PAIRS],
        Dataset.from_dict({"sentence1": TEXTS, "sentence2": [pair for _, pair in PAIRS]}),
    ],
    ids=["lists", "dicts", "dataset"],
)
def test_every_form_of_pairs(model: AdaptiveModel, inputs: Any) -> None:
    predicted = model.predict(PAIRS)
    assert model.predict(inputs) == predicted
    assert [one.scores for one in predicted] != [one.scores for one in model.predict(TEXTS)]


def test_several_labels(made: Any) -> None:
    model = made("multi_label")
    for one in model.predict(TEXTS):
        assert one.label == [name for name in model.labels if one.scores[name] > 0.5]
        assert one.score == pytest.approx(min(max(p, 1 - p) for p in one.scores.values()), abs=1e-6)


def test_numbers(made: Any) -> None:
    for one in made("regression").predict(TEXTS):
        assert isinstance(one.label, float) and one.label == one.score == one.scores["LABEL_0"]
    two = made("regression", num_labels=2).predict(TEXTS[:1])[0]
    assert two.label == [two.scores["LABEL_0"], two.scores["LABEL_1"]]


def test_one_label_for_every_word(made: Any) -> None:
    model = made("token_label")
    words = ["the", "movies", "was", "greatly", "dullish"]  # three of them are two tokens
    (predicted,) = model.predict([{"words": words}])
    assert len(predicted.label) == len(predicted.scores) == len(words) and set(predicted.label) <= set(model.labels)
    assert predicted == model.predict(" ".join(words))[0]
    assert predicted.score == min(
        scores[label] for label, scores in zip(predicted.label, predicted.scores, strict=True)
    )
    assert predicted.tokens == predicted.layers * 10
    assert [len(one.label) for one in model.predict(TEXTS)] == [len(text.split()) for text in TEXTS]


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (7, "expected texts"),
        ([7], "row 0: expected a text"),
        (["fine", None], "row 1"),
        ([("a", "b", "c")], "row 0"),
        ([{"title": "x", "note": "y"}], "row 0: which column holds the text. It has title, note"),
        ([{"text": 5}], "row 0"),
        ([{"text": "a", "pair": 3}], "the pair must be a string"),
        ([("a", "b"), "c"], "row 1 has no second text"),
        ([{"words": ["a", "b"]}], "list of words is for token_label"),
    ],
    ids=str,
)
def test_bad_input_is_named(model: AdaptiveModel, inputs: Any, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        model.predict(inputs)


def test_nan_is_an_error_that_names_its_rows(model: AdaptiveModel) -> None:
    alone = model.predict(TEXTS[:1], plan=Plan(exit="never"))
    great = model.tokenizer("great")["input_ids"][1]
    with torch.no_grad():
        model.stock.get_input_embeddings().weight[great] = float("nan")
    with pytest.raises(NonFiniteAnswer, match=r"rows \[1\]"):
        model.predict(TEXTS, plan=Plan(exit="never"))
    assert model.predict(TEXTS[:1], plan=Plan(exit="never")) == alone


def test_nan_in_a_head_is_never_a_label(model: AdaptiveModel) -> None:
    with torch.no_grad():
        next(iter(model.heads.values())).out.weight.fill_(float("nan"))
    with pytest.raises(NonFiniteAnswer, match=r"rows \[0, 1, 2, 3, 4\]"):
        model.predict(TEXTS, plan=Plan(exit="at_layer:1"))
    assert all(one.layers > 1 for one in model.predict(TEXTS)), "nobody leaves at a head that answers NaN"


def test_same_call_same_bits(model: AdaptiveModel) -> None:
    assert model.predict(TEXTS) == model.predict(TEXTS) == model.predict(TEXTS)
    model.train()
    with pytest.raises(BadSetting, match=r"training mode.*model\.eval\(\)"):
        model.predict(TEXTS)


def test_forward_refuses_what_it_would_not_read(model: AdaptiveModel) -> None:
    ids = torch.tensor([[0, 5, 6, 2]])
    assert model(input_ids=ids, attention_mask=None, labels=None).logits.shape == (1, 3)
    with pytest.raises(BadInput, match="does not read labels; to train, use trace"):
        model(input_ids=ids, labels=torch.tensor([1]))
    with pytest.raises(BadInput, match="input_ids are needed"):
        model(attention_mask=torch.ones_like(ids))


def test_every_input_may_have_a_speed_or_a_plan_of_its_own(model: AdaptiveModel) -> None:
    model.scores = {"speeds": [{"rule": f"entropy:{0.5 + saved}", "saved": saved} for saved in (0.1, 0.3, 0.5)]}
    speeds = [0.0, 0.4, 1.0, 0.1, 0.9, 0.6][: len(TEXTS)]
    alone = [model.predict([text], speed=speed)[0] for text, speed in zip(TEXTS, speeds, strict=True)]
    assert agree(model.predict(TEXTS, speed=speeds), alone)
    plans = [Plan(), "confidence:0.4", Plan((0, 1)), "entropy:0.9", "entropy:2", "patience:1"][: len(TEXTS)]
    alone = [model.predict([text], plan=plan)[0] for text, plan in zip(TEXTS, plans, strict=True)]
    together = model.predict(TEXTS, plan=plans)
    assert agree(together, alone) and len({prediction.layers for prediction in together}) > 1
    with pytest.raises(BadInput, match=rf"one for each input; got 2 for {len(TEXTS)}"):
        model.predict(TEXTS, speed=[0.5, 0.5])
    with pytest.raises(BadSetting, match="give one"):
        model.predict(TEXTS, plan=Plan(), speed=0.5)
