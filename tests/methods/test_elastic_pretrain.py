"""Pre-training with exits: what is hidden, what the loss is, which exits learn when, and that all of them learn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import AutoModelForMaskedLM, AutoModelForSequenceClassification, BertTokenizer

from paredown import AdaptiveModel
from paredown.engine import Observer
from paredown.errors import BadSetting
from paredown.methods import ElasticPretrain
from paredown.methods._stage import Progress
from paredown.methods.elastic_pretrain import _Seen, exit_losses
from paredown.methods.elastic_pretrain.masking import Masking, begins
from paredown.methods.elastic_pretrain.words import start_words
from paredown.registry import answers, methods
from paredown.tasks import Corpus
from paredown.training import train
from tests.families import tiny as family
from tests.training.tiny import VOCABULARY, WORDS, bits, tiny

PIECES = ["##s", "##ly", "##ish"]
SPECIAL = 5


def tokenizer() -> BertTokenizer:
    return BertTokenizer(
        vocab={token: index for index, token in enumerate([*VOCABULARY, *PIECES])}, model_max_length=64
    )


def masking(share: float = 0.15, whole_words: bool = False) -> Masking:
    return Masking.of(tokenizer(), torch.zeros(40, 8), share, whole_words)


def batch(rows: int = 64, tokens: int = 60, most: int = len(VOCABULARY)) -> dict[str, Tensor]:
    """Random words between [CLS] and [SEP], the second half of the rows padded."""
    ids = torch.randint(SPECIAL, most, (rows, tokens), generator=torch.Generator().manual_seed(1))
    ids[:, 0], ids[:, -1], ids[rows // 2 :, -20] = 1, 2, 2
    mask = torch.ones_like(ids)
    mask[rows // 2 :, -19:] = 0
    labels = torch.arange(rows) % 2
    return {"input_ids": ids.masked_fill(mask == 0, 0), "attention_mask": mask, "labels": labels}


# What is hidden


def test_15_in_100_tokens_are_hidden_80_10_10_and_never_a_special_one() -> None:
    torch.manual_seed(0)
    data = batch(rows=2000)
    ids = data["input_ids"]
    shown, chosen = masking().draw(data)
    usual = (ids >= SPECIAL) & data["attention_mask"].bool()
    assert not (chosen & ~usual).any() and torch.equal(shown[~chosen], ids[~chosen])
    assert chosen.sum() / usual.sum() == pytest.approx(0.15, abs=0.005)
    masked, same = (shown == 4)[chosen].float().mean().item(), (shown == ids)[chosen].float().mean().item()
    other = shown[chosen & (shown != 4) & (shown != ids)]
    assert masked == pytest.approx(0.8, abs=0.01)
    assert same == pytest.approx(0.1 + 0.1 / (len(WORDS) + len(PIECES)), abs=0.01)
    assert other.min() >= SPECIAL and other.max() < SPECIAL + len(WORDS) + len(PIECES)  # not a row without a token


def test_every_row_has_something_to_guess() -> None:
    torch.manual_seed(0)
    _, chosen = masking(share=1e-6).draw(batch())
    assert chosen.sum(1).tolist() == [1] * 64


def test_whole_words_are_hidden_whole() -> None:
    torch.manual_seed(0)
    data = batch(rows=1000, most=SPECIAL + len(WORDS) + len(PIECES))
    goes_on = data["input_ids"] >= len(VOCABULARY)
    goes_on[:, 1] = False  # a piece after [CLS] is a word of its own
    _, chosen = masking(whole_words=True).draw(data)
    both = goes_on[:, 2:] & (data["input_ids"][:, 1:-1] >= SPECIAL) & data["attention_mask"][:, 2:].bool()
    assert both.any() and torch.equal(chosen[:, 2:][both], chosen[:, 1:-1][both])
    usual = (data["input_ids"] >= SPECIAL) & data["attention_mask"].bool()
    assert chosen.sum() / usual.sum() == pytest.approx(0.15, abs=0.01)


@pytest.mark.parametrize(
    "spelled, expected",
    [
        (["[CLS]", "film", "##s", "#"], [True, True, False, True]),
        (["<s>", "Ġfilm", "s", "Ġ"], [True, True, False, False]),
        (["<s>", "▁film", "s", "▁"], [True, True, False, False]),
    ],
)
def test_what_begins_a_word(spelled: list[str], expected: list[bool]) -> None:
    special = torch.tensor([True, False, False, False, False])  # one row more than there are tokens
    assert begins(spelled, special).tolist() == [*expected, False]


def test_tokenizers_that_will_not_do_are_refused() -> None:
    with pytest.raises(BadSetting, match="marks them"):
        begins(["[CLS]", "a", "b"], torch.tensor([True, False, False]))
    model = tiny()
    model.tokenizer.mask_token = None
    with pytest.raises(BadSetting, match="mask token"):
        ElasticPretrain().check(model)


# The loss


def grown(layers: int = 3, **settings: Any) -> tuple[AdaptiveModel, ElasticPretrain]:
    model, method = tiny(layers=layers, dropout=0.0), ElasticPretrain(**settings)
    method.grow(model)
    method.grow(model)  # changes nothing
    return model, method


def loss_of(model: AdaptiveModel, method: ElasticPretrain, data: dict[str, Tensor], step: int = 0) -> Tensor:
    torch.manual_seed(7)
    (stage,) = method.stages(model)
    return stage.loss(model, data, Progress(step, 10))


def each_loss(model: AdaptiveModel, data: dict[str, Tensor]) -> list[tuple[Tensor, Tensor]]:
    """By layer: cross entropy at the hidden positions and of the order, from the stock model's own hidden states."""
    torch.manual_seed(7)
    shown, chosen = Masking.of(model.tokenizer, embeddings(model), 0.15, False).draw(data)
    hidden = model.stock.bert(shown, data["attention_mask"], output_hidden_states=True).hidden_states
    found = []
    for layer, state in enumerate(hidden[1:]):
        head: Any = model.heads[str(layer)]
        words = head.norm(F.gelu(head.transform(state))) @ embeddings(model).T + head.bias
        order = head.out(head.dense(state[:, 0]).tanh())
        found.append(
            (F.cross_entropy(words[chosen], data["input_ids"][chosen]), F.cross_entropy(order, data["labels"]))
        )
    return found


def embeddings(model: AdaptiveModel) -> Tensor:
    return model.stock.get_input_embeddings().weight


def gradients(model: AdaptiveModel, loss: Tensor) -> dict[str, Tensor]:
    model.zero_grad()
    loss.backward()
    return {name: value.grad.clone() for name, value in model.named_parameters() if value.grad is not None}


@pytest.mark.parametrize("sop", [1.0, 0.5, 0.0])
def test_the_loss_is_the_sum_over_the_exits(sop: float) -> None:
    model, method = grown(groups="all", sop=sop)
    data = batch(rows=6, tokens=30)
    expected = sum(words + sop * order for words, order in each_loss(model, data))
    torch.testing.assert_close(loss_of(model, method, data), expected, rtol=1e-5, atol=1e-5)
    (stage,) = method.stages(model)
    assert stage.unlabelled == (sop == 0)


def test_exits_learn_in_turn() -> None:
    model, method = grown(layers=4)
    data = batch(rows=6, tokens=30)
    each = [(words + order).item() for words, order in each_loss(model, data)]
    assert loss_of(model, method, data).item() == pytest.approx(each[0] + each[2] + each[3], rel=1e-5)
    assert loss_of(model, method, data, step=1).item() == pytest.approx(each[1] + each[3], rel=1e-5)
    assert loss_of(model, method, data, step=2).item() == loss_of(model, method, data).item()
    own = ElasticPretrain(groups=((0, 3), (1,), (2,)))
    assert loss_of(model, own, data, step=1).item() == pytest.approx(each[1], rel=1e-5)
    for wrong in (((0, 4),), ((),), ()):
        with pytest.raises(BadSetting, match="a group names layers with a head"):
            ElasticPretrain(groups=wrong).stages(model)


def test_elasticberts_groups_of_12_layers() -> None:
    model, method = grown(layers=12)
    numbered = [[run for run in turn.values()] for turn in method.turns(model)]
    assert numbered == [[1, 3, 5, 7, 9, 11, 12], [2, 4, 6, 8, 10, 12]]


def test_each_layer_receives_the_mean_of_the_exits_above() -> None:
    model, method = grown(groups="all")
    data = batch(rows=6, tokens=30)
    balanced = gradients(model, loss_of(model, method, data))
    plain = gradients(model, loss_of(model, ElasticPretrain(groups="all", equilibrium=False), data))
    for name, gradient in plain.items():
        above = 1  # heads and the shared decoder are untouched
        if name.startswith("stock.bert.encoder.layer."):
            above = 3 - int(name.split(".")[4])
        elif name.startswith("stock.bert.embeddings"):
            if "word" in name:
                continue  # it is the decoder too
            above = 3
        torch.testing.assert_close(balanced[name] * above, gradient, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("name", ["albert", "modernbert", "rembert", "distilbert"])
def test_families_that_embed_otherwise_or_norm_at_the_end(name: str) -> None:
    """ALBERT and RemBERT have narrower or wider embeddings, ModernBERT normalises after its last layer."""
    changes = {"embedding_size": 16} if name == "albert" else {}
    words = {token: index for index, token in enumerate(VOCABULARY)}
    stock = family(name, num_labels=2, pad_token_id=0, **changes)
    model = AdaptiveModel(stock, BertTokenizer(vocab=words), answers.make("single_label"))
    method = ElasticPretrain(groups="all")
    method.grow(model)
    data = batch(rows=6, tokens=30)
    found = gradients(model, loss_of(model, method, data))
    touched = {name.split(".")[1] for name in found if name.startswith("heads.")}
    assert touched == {"0", "1", "2", "3"} and all(value.isfinite().all() for value in found.values())


def test_other_heads_cannot_guess_words() -> None:
    with pytest.raises(BadSetting, match="`pretraining` heads"):
        ElasticPretrain(head="pooler").grow(tiny())


@pytest.mark.parametrize("settings", [{"mask_share": 0.0}, {"mask_share": 1.0}, {"sop": -1.0}, {"groups": "odd"}])
def test_settings_that_make_no_sense(settings: dict[str, Any]) -> None:
    with pytest.raises(BadSetting):
        methods.make("elastic_pretrain", **settings)


# Where it starts


@pytest.mark.parametrize("name", ["bert", "roberta", "distilbert", "modernbert", "albert", "electra"])
def test_heads_begin_with_the_checkpoints_own(name: str, tmp_path: Path) -> None:
    """The last head then guesses what transformers' own model for masked words guesses."""
    theirs = family(name, AutoModelForMaskedLM)
    theirs.save_pretrained(tmp_path)
    stock = AutoModelForSequenceClassification.from_pretrained(tmp_path, num_labels=2)
    model = AdaptiveModel(stock, None, answers.make("single_label"))
    model.grow_heads("pretraining", model.depth)
    assert start_words(model, tmp_path)
    data = {name: value for name, value in batch(rows=2, tokens=30).items() if name != "labels"}
    seen = _Seen(Observer())
    with torch.no_grad():
        model.eval().trace(data, observer=seen)
        ours = model.heads["3"].words(model.walk.finish(seen.hidden[4]), embeddings(model))  # type: ignore[operator]
        real = data["attention_mask"].bool()
        torch.testing.assert_close(ours[real], theirs(**data).logits[real], rtol=1e-3, atol=1e-3)
    assert torch.equal(model.heads["0"].transform.weight, model.heads["3"].transform.weight)


def test_without_a_head_for_words_they_begin_anew(tmp_path: Path) -> None:
    model, _ = grown()
    before = bits(model)
    model.stock.save_pretrained(tmp_path)
    assert not start_words(model, tmp_path) and not start_words(tiny(), tmp_path) and bits(model) == before


# Learning


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    """Documents of a few sentences that can be learned by heart."""
    remarks = ["the movie was great and the cast was good", "but the plot is awful and very dull", "a really fine film"]
    text = "\n\n".join("\n".join(remarks[index % 3 :] + remarks) for index in range(60))
    (tmp_path / "text.txt").write_text(text)
    return Corpus.read([tmp_path / "text.txt"], tiny().tokenizer, 40, cache=tmp_path / "cache")


def test_every_exit_learns_and_the_bundle_comes_back(corpus: Corpus, tmp_path: Path) -> None:
    model = tiny(dropout=0.0)
    method = ElasticPretrain(epochs=8, batch_size=8, lr=1e-2)
    method.grow(model)
    before = exit_losses(model, corpus)
    report = train(model, method, corpus, output=tmp_path / "run", progress=False)
    after = exit_losses(model, corpus)
    assert report.stages[0].steps == 64 and list(after) == [1, 2, 3]
    assert all(after[layer]["mlm"] < 0.75 * before[layer]["mlm"] for layer in after)
    again = AdaptiveModel.from_pretrained(tmp_path / "run" / "model")
    assert bits(again) == bits(model) and len({id(head.bias) for head in again.heads.values()}) == 1
    assert exit_losses(again, corpus) == after == exit_losses(model, corpus, batch_size=64)


def test_words_alone_need_no_labels(corpus: Corpus, tmp_path: Path) -> None:
    model = tiny()
    method = ElasticPretrain(sop=0.0, epochs=0.1, batch_size=8)
    report = train(
        model, method, corpus, unlabelled=["the movie was great"] * 8, output=tmp_path / "run", progress=False
    )
    assert report.stages[0].losses


def test_the_same_words_are_hidden_at_every_look(corpus: Corpus) -> None:
    model, _ = grown()
    torch.manual_seed(1)
    state = torch.get_rng_state()
    assert exit_losses(model, corpus[:20]) == exit_losses(model, corpus[:20])
    assert torch.equal(state, torch.get_rng_state())
    assert exit_losses(model, corpus[:20], seed=1) != exit_losses(model, corpus[:20])
