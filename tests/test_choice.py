"""A choice among options: how questions are read, scored by transformers' own weights, learnt and answered."""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from transformers import AutoModelForMultipleChoice, AutoModelForSequenceClassification
from transformers.models.auto.modeling_auto import MODEL_FOR_MULTIPLE_CHOICE_MAPPING_NAMES

from paredown import AdaptiveModel, Plan
from paredown.answers import RULED_OUT, Choices, Encoded, collate
from paredown.answers.choice import MOST_ASKED
from paredown.errors import BadBundle, BadInput, BadSetting
from paredown.evaluation import evaluate, record, replay
from paredown.registry import answers, exits
from paredown.state import Evidence
from paredown.training import train
from paredown.training.batches import Data
from tests.contracts.reducer_settings import with_selectors
from tests.families import adaptive, batch, tiny, walked
from tests.placement import agree, close
from tests.tasks.asking import raw_bytes, word_pieces

CHOICE = answers.make("choice")
ASKED = [
    Choices(
        "a", "the movie was dull and the cast was fine", "the cast was", ("bad", "fine", "quite awful", "great"), 1
    ),
    Choices("b", "a good film", "the film is", ("good", "bad"), 0),
    Choices("c", "", "is it a film", ("a very very good film", "not a film", "a movie"), 2),
]


@pytest.fixture
def model(tokenizer: Any) -> AdaptiveModel:
    return adaptive("bert", "choice", tokenizer=tokenizer, plan="patience:1")


def test_a_row_for_every_option(tokenizer: Any) -> None:
    first, *_, last = rows = CHOICE.encode(tokenizer, CHOICE.units(ASKED), [])
    predicted = tokenizer.convert_ids_to_tokens(first.options[2].ids["input_ids"])
    context, asked = "the movie was dull and the cast was fine".split(), "the cast was quite awful".split()
    assert predicted == ["[CLS]", *context, "[SEP]", *asked, "[SEP]"]
    assert first.options[2].ids["token_type_ids"] == [0] * 11 + [1] * 6
    assert first.options[2].protected == (0, *range(10, 17))  # all but the context
    assert last.options[1].protected == tuple(range(len(last.options[1])))
    assert [len(row.options) for row in rows] == [4, 2, 3] and len(first) == 17 and first.label == 1
    together = collate(rows, 1)
    assert together["group"].tolist() == [0] * 4 + [1] * 2 + [2] * 3 and together["labels"].tolist() == [1, 0, 2]
    assert together["input_ids"].shape == together["protected"].shape == (9, 17)
    assert CHOICE.answer_mask(together).sum(1).tolist() == [4, 2, 3]
    assert "labels" not in collate([dataclasses.replace(row, label=None) for row in rows], 1)


@pytest.mark.parametrize("tokenizer", [word_pieces(), raw_bytes()], ids=["word_pieces", "raw_bytes"])
def test_the_context_is_cut_and_the_option_stays(tokenizer: Any) -> None:
    long = Choices("a", "river " * 500, "what " * 200, ("bridge", "town " * 200))
    short, longest = CHOICE.encode(tokenizer, [long], [], 256)[0].options
    assert len(short) == len(longest) == 256
    frame = len(tokenizer("a", "b")["input_ids"]) - 2
    start = len(tokenizer("a")["input_ids"][:-1]) - 1
    for option, text in ((short, "bridge"), (longest, "town")):
        held = option.protected or ()
        assert len(held) == MOST_ASKED + frame and held[:start] == tuple(range(start))
        end = tokenizer.decode(option.ids["input_ids"], skip_special_tokens=True)
        assert end.strip().endswith(text)
    with pytest.raises(BadSetting, match="leaves no room"):
        CHOICE.encode(tokenizer, [long], [], frame + 1)


BROKEN: list[tuple[Any, str]] = [
    ({"question": "why?", "options": []}, "at least two options to choose from, not 0"),
    ({"question": "why?", "options": ["so"]}, "at least two options to choose from, not 1"),
    ({"question": "why?"}, "at least two options"),
    ({"question": "why?", "options": "so"}, "options must be a list of texts"),
    ({"question": "why?", "options": ["so", " "]}, "options must be a list of texts that are not empty"),
    ({"question": " ", "options": ["so", "no"]}, "question and context must be texts"),
    ({"options": ["so", "no"]}, "question and context must be texts"),
    ({"question": "why?", "context": None, "options": ["so", "no"]}, "question and context must be texts"),
    (Choices("7", "", "why?", ("so", "no"), 2), r"row 0: label 2 is not one of so, no \(or 0..1\)"),
    (Choices("7", "", "why?", ("so", "no"), -1), "label -1 is not one of"),
    (Choices("7", "", "why?", ("so",), 0), r"row 0 \('7'\): there must be at least two"),
    ("a text", "expected Choices, or a dict"),
]


@pytest.mark.parametrize(("bad", "message"), BROKEN, ids=[message for _, message in BROKEN])
def test_broken_questions_are_named(bad: Any, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        CHOICE.units([bad])


def test_dicts_are_questions_too(model: AdaptiveModel) -> None:
    plain = [{name: value for name, value in dataclasses.asdict(one).items() if name != "id"} for one in ASKED]
    assert CHOICE.units(plain) == [dataclasses.replace(one, id=str(at)) for at, one in enumerate(ASKED)]
    named = {"question": "why?", "options": ["so", "no"], "label": "no"}
    assert CHOICE.units(named)[0].label == 1
    assert model.predict(plain) == model.predict(ASKED)
    with pytest.raises(BadSetting, match="a Choices is for models of choice or marked; this one answers single_label"):
        adaptive("bert", tokenizer=model.tokenizer).predict(ASKED)
    with pytest.raises(BadInput, match="batch\\['group'\\]"):
        model.answer(batch(99, [5, 4]))


def test_predictions_are_options(model: AdaptiveModel) -> None:
    predicted = model.predict(ASKED, batch_size=2)
    for one, alone, its in zip(ASKED, (model.predict([one])[0] for one in ASKED), predicted, strict=True):
        assert its.label in one.options and tuple(its.scores) == one.options
        assert sum(its.scores.values()) == pytest.approx(1, abs=1e-5) and its.score == max(its.scores.values())
        assert (its.label, its.layers, its.tokens) == (alone.label, alone.layers, alone.tokens)
    rows = model.encode(ASKED)
    work = [its.layers * sum(map(len, row.options)) for its, row in zip(predicted, rows, strict=True)]
    assert [its.tokens for its in predicted] == work


MULTIPLE_CHOICE = sorted(set(walked()) & MODEL_FOR_MULTIPLE_CHOICE_MAPPING_NAMES.keys())


@pytest.mark.parametrize("family", MULTIPLE_CHOICE)
def test_checkpoints_for_multiple_choice(family: str, tokenizer: Any, tmp_path: Path) -> None:
    """The same weights give the same logits and gradients; a family that lays them out otherwise is refused."""
    stock = tiny(family, AutoModelForMultipleChoice)
    stock.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    if {name for name, _ in stock.named_parameters()} != {name for name, _ in tiny(family).named_parameters()}:
        with pytest.raises(BadBundle, match="lacks weights that"):
            AdaptiveModel.from_pretrained(tmp_path)
        return
    model = AdaptiveModel.from_pretrained(tmp_path)
    assert model.kind == CHOICE and model.config.num_labels == 1
    flat = batch(99, [9, 4, 12, 1, 7, 12])
    cubes = {name: value.view(2, 3, 12) for name, value in flat.items()}
    labels = torch.tensor([2, 0])
    theirs = stock(**cubes, labels=labels)
    assert close(model(**cubes).logits, theirs.logits)
    trace = model.trace({**flat, "group": torch.tensor([0, 0, 0, 1, 1, 1])})
    ours = CHOICE.loss(trace.final, labels)
    assert close(trace.final, theirs.logits) and close(ours, theirs.loss)
    ours.backward()
    theirs.loss.backward()
    mine = dict(model.stock.named_parameters())
    for name, parameter in stock.named_parameters():
        if parameter.grad is not None:
            assert torch.allclose(mine[name].grad, parameter.grad, atol=1e-6), name


def test_bert_and_distilbert_are_among_them() -> None:
    for family in ("bert", "distilbert"):
        choosing, labelling = tiny(family, AutoModelForMultipleChoice), tiny(family, num_labels=1)
        assert choosing.state_dict().keys() == labelling.state_dict().keys()


def test_a_bundle_comes_back_and_transformers_reads_it(model: AdaptiveModel, tmp_path: Path) -> None:
    with_selectors(model).plan = Plan(exit="entropy:0.6", reduce="selector:0.5")
    model.save_pretrained(tmp_path)
    again = AdaptiveModel.from_pretrained(tmp_path)
    assert again.kind == CHOICE and again.plan == model.plan
    assert agree(again.predict(ASKED), model.predict(ASKED))
    rows = collate(model.encode(ASKED), 1)
    read = {name: rows[name] for name in ("input_ids", "attention_mask", "token_type_ids")}
    full = model.answer(rows, Plan()).logits
    with torch.no_grad():
        scores = AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()(**read).logits
        four = {name: value[:4].unsqueeze(0) for name, value in read.items()}
        question = AutoModelForMultipleChoice.from_pretrained(tmp_path).eval()(**four).logits
    assert close(scores.squeeze(1), full[CHOICE.answer_mask(rows)]) and close(question, full[:1])


@pytest.mark.parametrize("wrong", [{"labels": ["a", "b"]}, {"num_labels": 4}])
def test_labels_are_refused(wrong: dict[str, Any], tokenizer: Any, tmp_path: Path) -> None:
    tiny("bert", num_labels=1).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    assert AdaptiveModel.from_pretrained(tmp_path, task="race", num_labels=1).config.num_labels == 1
    with pytest.raises(BadSetting, match="leave labels and num_labels out"):
        AdaptiveModel.from_pretrained(tmp_path, task="choice", **wrong)


def test_ragged_options_are_padded() -> None:
    counts, scores = torch.tensor([[True, True, True], [True, True, False]]), torch.arange(5.0, requires_grad=True)
    logits = CHOICE.ruled_out(scores.unsqueeze(1), counts)
    assert logits.tolist() == [[0, 1, 2], [3, 4, RULED_OUT]]
    assert CHOICE.averaged(scores, counts).tolist() == [1, 3.5]
    assert CHOICE.averaged(torch.stack([scores, 2 * scores], 1), counts).tolist() == [[1, 2], [3.5, 7]]
    labels = torch.tensor([2, 0])
    each = [F.cross_entropy(scores[:3], labels[0]), F.cross_entropy(scores[3:], labels[1])]
    torch.testing.assert_close(CHOICE.loss(logits, labels), torch.stack(each).mean())
    soft = -(0.9 * scores[:3].log_softmax(0)[2] + 0.05 * scores[:3].log_softmax(0)[:2].sum())
    soft = (soft - 0.9 * scores[3:].log_softmax(0)[0] - 0.1 * scores[3:].log_softmax(0)[1]) / 2
    torch.testing.assert_close(CHOICE.loss(logits, labels, 0.1), soft)
    (gradient,) = torch.autograd.grad(CHOICE.loss(logits, labels, 0.1), scores)
    assert gradient.isfinite().all() and bool((gradient != 0).all())
    assert CHOICE.distill(logits, logits, counts).item() == 0
    assert CHOICE.log_probs(logits).shape == (2, 1, 3) and CHOICE.wrong(logits, labels).tolist() == [[0], [1]]


@pytest.mark.parametrize("rule", ["entropy:0.5", "entropy_nats:0.5", "top_entropy:0.5,top=3", "margin:0.5"])
def test_a_rule_sees_only_the_options_there_are(rule: str) -> None:
    counts = torch.tensor([[True, True, False, False], [True] * 4])
    scores = torch.tensor([0.0, 0.9, 0.0, 0.5, 1.0, 1.5])
    beside = Evidence(CHOICE, CHOICE.ruled_out(scores.unsqueeze(1), counts), 1, counts)
    alone = Evidence(CHOICE, scores[:2].unsqueeze(0), 1, counts[:1, :2])
    assert beside.classes.tolist() == [[2], [4]]
    for speed in (step / 50 for step in range(51)):
        at = exits.parse(rule).at_speed(speed)
        ours, theirs = (at.certainty(seen, {})[0][0] > at.bounds((1,))[0] for seen in (beside, alone))
        assert ours == theirs, at


def learnable(number: int, seed: int = 0) -> list[Choices]:
    """Two to four options; the right one is praise."""
    draw = random.Random(seed)
    found = []
    for index in range(number):
        options = draw.sample(["bad", "dull", "awful"], draw.randint(1, 3))
        label = draw.randint(0, len(options))
        options.insert(label, draw.choice(["good", "fine", "great"]))
        found.append(Choices(str(index), "the plot of a film", "the movie was", tuple(options), label))
    return found


def test_what_is_learnt_is_above_chance(tokenizer: Any, tmp_path: Path) -> None:
    model = adaptive("bert", "choice", head=None, tokenizer=tokenizer, seed=1, num_hidden_layers=2)
    settings = "joint:head=linear,epochs=3,lr=3e-3,batch_size=16"
    train(model, settings, learnable(120), learnable(60, seed=1), output=tmp_path)
    assert model.scores is not None and model.scores["metric"] == "accuracy"
    assert model.scores["per_layer"]["2"] > 0.7  # chance is about 0.36
    found = evaluate(model, learnable(60, seed=2), ["entropy", "patience"], timed_batches=(2,), resamples=50)
    assert found.rows == 60 and found.kind == "choice" and found.full["score"] > 0.7 and found.full["speedup"] == 1
    assert min(point["layers"] for point in found.curves["entropy"]) == 1


def test_digests_tell_options_apart(model: AdaptiveModel) -> None:
    changed = [dataclasses.replace(ASKED[0], options=("bad", "fine", "great", "quite awful")), *ASKED[1:]]
    one, other, same = (Data.read(model, asked, None, None, None).digest() for asked in (ASKED, changed, ASKED))
    assert one == same != other


def test_recording_in_any_batches_is_the_same(model: AdaptiveModel) -> None:
    rows = model.encode(ASKED + learnable(9))
    plan = Plan(reduce="fixed_share:0.5")
    one, all_at_once = (record(with_selectors(model), rows, batch_size=size, plan=plan) for size in (1, 64))
    assert len(one) == len(rows) and len(one.lengths) == sum(len(row.options) for row in rows)
    assert torch.equal(one.tokens, all_at_once.tokens) and torch.equal(one.answer_mask, all_at_once.answer_mask)
    for layer, logits in one.logits.items():
        assert torch.allclose(logits, all_at_once.logits[layer], atol=1e-5)
    assert torch.equal(replay(one, exits.parse("vote:2")).layers, replay(all_at_once, exits.parse("vote:2")).layers)
    lone = Encoded(label=0, options=rows[1].options)
    assert record(model, [lone]).summed(record(model, [lone]).lengths).item() == sum(map(len, lone.options))
