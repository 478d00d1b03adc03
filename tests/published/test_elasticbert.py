"""ElasticBERT checkpoints answer as the published forward does, at every depth, and go back to disk unchanged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoModelForSequenceClassification, BertConfig, BertModel

from paredown import AdaptiveModel, Plan
from paredown.errors import BadBundle, BadSetting
from paredown.published import load_elasticbert, save_elasticbert
from paredown.registry import answers, methods
from tests.families import tiny
from tests.placement import agree, close

LAYERS, WIDTH, VOCABULARY = 4, 16, 45
SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": WIDTH,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "intermediate_size": 20,
    "max_position_embeddings": 30,
    "layer_norm_eps": 1e-8,
}
EXACT = 1e-11  # in 64 bits; 1e-8 and 1e-12 in a norm differ by more
State = dict[str, Tensor]


def linear(name: str, after: int, before: int = WIDTH) -> State:
    return {f"{name}.weight": torch.randn(after, before) * before**-0.5, f"{name}.bias": torch.randn(after) * 0.3}


def state(layers: int = LAYERS, classifiers: int = 0, pretraining: bool = True) -> State:
    """The names of the published files; with as many labels as asked for, after dynamic fine-tuning."""
    torch.manual_seed(0)
    body = BertModel(
        BertConfig(**SIZES | {"num_hidden_layers": layers}, initializer_range=0.3), add_pooling_layer=False
    )
    found = {f"elasticbert.{name}": value.clone() for name, value in body.state_dict().items()}
    found["elasticbert.embeddings.position_ids"] = torch.arange(30).unsqueeze(0)
    for layer in range(layers):
        found |= linear(f"elasticbert.encoder.pooler.{layer}.dense", WIDTH)
        if classifiers:
            found |= linear(f"classifiers.{layer}", classifiers)
        if pretraining:
            found |= linear(f"predictions.transforms.{layer}.dense", WIDTH)
            found |= linear(f"sop_classifier.classifiers.{layer}", 2)
            norm = f"predictions.transforms.{layer}.LayerNorm"
            found |= {f"{norm}.weight": torch.rand(WIDTH), f"{norm}.bias": torch.randn(WIDTH)}
    if pretraining:
        found["predictions.bias"] = torch.randn(VOCABULARY)
        found["predictions.decoder.weight"] = found["elasticbert.embeddings.word_embeddings.weight"].clone()
    return found


def static_state(layers: int = 3, labels: int = 3) -> State:
    """As saved after static fine-tuning: the first layers, one pooler in its own slot, one classifier."""
    kept = [f"elasticbert.encoder.layer.{layer}." for layer in range(layers)]
    kept += ["elasticbert.embeddings.", f"elasticbert.encoder.pooler.{layers - 1}."]
    found = {name: value for name, value in state().items() if name.startswith(tuple(kept))}
    return found | linear("classifier", labels)


def folder(path: Path, tensors: State, file: str = "pytorch_model.bin", **facts: Any) -> Path:
    path.mkdir()
    known = {"model_type": "elasticbert", "architectures": ["ElasticBertForMaskedLM"], "hidden_act": "gelu"}
    counts = {"max_output_layers": LAYERS, "num_output_layers": LAYERS}
    (path / "config.json").write_text(json.dumps(SIZES | known | counts | facts))
    words = [f"word{index}" for index in range(VOCABULARY - 5)]
    (path / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]))
    (path / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    save_file(tensors, path / file) if file.endswith("safetensors") else torch.save(tensors, path / file)
    return path


def batch() -> State:
    ids = torch.randint(5, VOCABULARY, (3, 9), generator=torch.Generator().manual_seed(1))
    mask = (torch.arange(9) < torch.tensor([[9], [6], [4]])).long()
    segments = (torch.arange(9) > torch.tensor([[4], [9], [1]])).long() * mask
    return {"input_ids": ids * mask, "attention_mask": mask, "token_type_ids": segments}


def hidden_states(tensors: State, eps: float = 1e-8) -> list[Tensor]:
    """After every layer, computed by hand in 64 bits: post-norm BERT with the constant of config.json."""
    tensors = {name.removeprefix("elasticbert."): value.double() for name, value in tensors.items()}
    inputs = batch()

    def apply(name: str, x: Tensor) -> Tensor:
        return F.linear(x, tensors[f"{name}.weight"], tensors[f"{name}.bias"])

    def norm(name: str, x: Tensor) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        scaled = centred / (centred.square().mean(-1, keepdim=True) + eps).sqrt()
        return scaled * tensors[f"{name}.weight"] + tensors[f"{name}.bias"]

    hidden = tensors["embeddings.word_embeddings.weight"][inputs["input_ids"]]
    hidden = hidden + tensors["embeddings.token_type_embeddings.weight"][inputs["token_type_ids"]]
    hidden = norm("embeddings.LayerNorm", hidden + tensors["embeddings.position_embeddings.weight"][:9])
    blocked = (inputs["attention_mask"] == 0)[:, None, None, :]
    found = []
    while (at := f"encoder.layer.{len(found)}") + ".output.dense.bias" in tensors:
        parts = (apply(f"{at}.attention.self.{part}", hidden) for part in ("query", "key", "value"))
        query, key, value = (part.view(3, 9, 4, WIDTH // 4).transpose(1, 2) for part in parts)
        scores = (query @ key.transpose(-2, -1) / (WIDTH // 4) ** 0.5).masked_fill(blocked, -1e30).softmax(-1)
        attended = apply(f"{at}.attention.output.dense", (scores @ value).transpose(1, 2).reshape(3, 9, WIDTH))
        hidden = norm(f"{at}.attention.output.LayerNorm", hidden + attended)
        inner = F.gelu(apply(f"{at}.intermediate.dense", hidden))
        hidden = norm(f"{at}.output.LayerNorm", hidden + apply(f"{at}.output.dense", inner))
        found.append(hidden)
    return found


def answer(tensors: State, layer: int, hidden: Tensor, classifier: str) -> Tensor:
    pooler = f"elasticbert.encoder.pooler.{layer}.dense"
    pooled = F.linear(hidden[:, 0], *(tensors[f"{pooler}.{part}"].double() for part in ("weight", "bias"))).tanh()
    return F.linear(pooled, *(tensors[f"{classifier}.{part}"].double() for part in ("weight", "bias")))


FILES = pytest.mark.parametrize("file", ["pytorch_model.bin", "model.safetensors"])


@FILES
@pytest.mark.parametrize("layers", [LAYERS, 24], ids=["base", "large"])
def test_every_layer_answers_as_published(file: str, layers: int, tmp_path: Path) -> None:
    theirs = state(layers, classifiers=3)
    path = folder(tmp_path / "a", theirs, file, num_hidden_layers=layers, max_output_layers=layers)
    model = load_elasticbert(path, labels=["a", "b", "c"]).double()
    hidden = hidden_states(theirs)
    with torch.no_grad():
        trace = model.trace(batch())
        seen = model.stock.bert(**batch(), output_hidden_states=True).hidden_states[1:]
    assert len(hidden) == layers == model.layers
    real = batch()["attention_mask"].bool()
    for ours, published in zip(seen, hidden, strict=True):
        assert torch.allclose(ours[real], published[real], rtol=0, atol=EXACT)
    assert list(trace.logits) == list(range(layers - 1))  # the last layer answers through the stock model
    for layer, logits in {**trace.logits, layers - 1: trace.stock}.items():
        expected = answer(theirs, layer, hidden[layer], f"classifiers.{layer}")
        assert torch.allclose(logits, expected, rtol=0, atol=EXACT)
    assert model.plan == Plan(exit="entropy_nats:0.3") and model.labels == ["a", "b", "c"] and not model.training


def test_the_norm_constant_is_that_of_the_config(tmp_path: Path) -> None:
    theirs = state(classifiers=2)
    for eps in (1e-8, 1e-12, 0.5):
        model = load_elasticbert(folder(tmp_path / str(eps), theirs, layer_norm_eps=eps)).double()
        expected = answer(theirs, 1, hidden_states(theirs, eps)[1], "classifiers.1")
        with torch.no_grad():
            assert torch.allclose(model.trace(batch()).logits[1], expected, rtol=0, atol=EXACT)
    (path := tmp_path / "0.5" / "config.json").write_text("{}")
    with pytest.raises(BadBundle, match="layer_norm_eps"):
        load_elasticbert(path.parent)


@pytest.mark.parametrize("depth", [1, 2, LAYERS])
def test_the_first_layers_of_a_pre_trained_file(depth: int, tmp_path: Path) -> None:
    theirs = state()
    model = load_elasticbert(folder(tmp_path / "a", theirs), depth=depth, num_labels=3)
    classifier = {f"new.{name}": value for name, value in model.stock.classifier.state_dict().items()}
    expected = answer(theirs | classifier, depth - 1, hidden_states(theirs)[depth - 1], "new")
    outputs = model.answer(batch())
    assert torch.allclose(outputs.logits.double(), expected, atol=1e-5) and outputs.layers.tolist() == [depth] * 3
    assert model.depth == tuple(range(depth)) and model.layers == LAYERS and not model.heads


def test_a_file_of_static_fine_tuning(tmp_path: Path) -> None:
    theirs, facts = static_state(), {"num_hidden_layers": 3, "num_output_layers": 1}
    path = folder(tmp_path / "a", theirs, **facts, id2label={"0": "no", "1": "maybe", "2": "yes"})
    model = load_elasticbert(path, depth=3)
    expected = answer(theirs, 2, hidden_states(theirs)[2], "classifier")
    assert torch.allclose(model.answer(batch()).logits.double(), expected, atol=1e-5)
    assert model.labels == ["no", "maybe", "yes"]
    with pytest.raises(
        BadBundle, match=r"missing: elasticbert\.encoder\.pooler\.0\.dense, .*pooler\.1\.dense; depth=3"
    ):
        load_elasticbert(path)
    with pytest.raises(BadBundle, match=r"missing: elasticbert\.encoder\.pooler\.1\.dense\.bias"):
        load_elasticbert(path, depth=2)
    with pytest.raises(BadSetting, match="1 to 3"):
        load_elasticbert(path, depth=4)


def test_static_use_of_a_dynamic_file_takes_that_layers_classifier(tmp_path: Path) -> None:
    theirs = state(classifiers=2)
    model = load_elasticbert(folder(tmp_path / "a", theirs), depth=2)
    expected = answer(theirs, 1, hidden_states(theirs)[1], "classifiers.1")
    assert torch.allclose(model.answer(batch()).logits.double(), expected, atol=1e-5)


def test_new_classifiers_follow_the_seed(tmp_path: Path) -> None:
    path, models = folder(tmp_path / "a", state()), []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        models.append(load_elasticbert(path, num_labels=3))
    first, again, other = (dict(model.named_parameters()) for model in models)
    assert all(torch.equal(first[name], again[name]) for name in first)
    new = {name for name in first if not torch.equal(first[name], other[name])}
    assert new == {"stock.classifier.weight", *(f"heads.{layer}.out.weight" for layer in range(LAYERS - 1))}
    assert models[0].plan == Plan() and models[0].config.num_labels == 3


def test_its_method_trains_the_heads_it_came_with(tmp_path: Path) -> None:
    model = load_elasticbert(folder(tmp_path / "a", state()))
    before = {name: value.clone() for name, value in model.named_parameters()}
    methods.make("elasticbert").grow(model)
    assert all(torch.equal(value, before[name]) for name, value in model.named_parameters())


def test_the_kind_of_answer(tmp_path: Path) -> None:
    path = folder(tmp_path / "a", state())
    assert load_elasticbert(path).labels == ["LABEL_0", "LABEL_1"]
    assert load_elasticbert(path, task="rte").labels == ["entailment", "not_entailment"]
    several = load_elasticbert(path, task="multi_label", labels=["a", "b", "c"])
    assert several.kind.name == several.config.problem_type.removesuffix("_classification") == "multi_label"
    assert load_elasticbert(path, task="sts-b", labels=[]).kind.name == "regression"
    with pytest.raises(BadSetting, match="whole text"):
        load_elasticbert(path, task="token_label")
    number = load_elasticbert(folder(tmp_path / "b", state(classifiers=1)))
    assert number.kind.name == "regression" and number.plan == Plan()
    with pytest.raises(BadSetting, match="answers 1 labels"):
        load_elasticbert(tmp_path / "b", labels=["no", "yes"])


def test_plain_transformers_answers_with_the_last_pooler(tmp_path: Path) -> None:
    theirs = state(classifiers=2)
    model = load_elasticbert(folder(tmp_path / "a", theirs) / "pytorch_model.bin")
    model.save_pretrained(tmp_path / "bundle")
    stock = AutoModelForSequenceClassification.from_pretrained(tmp_path / "bundle").eval()
    expected = answer(theirs, LAYERS - 1, hidden_states(theirs)[-1], f"classifiers.{LAYERS - 1}")
    with torch.no_grad():
        assert torch.allclose(stock(**batch()).logits.double(), expected, atol=1e-5)
    texts = ["WORD0 word1", "word2"]
    assert agree(AdaptiveModel.from_pretrained(tmp_path / "bundle").predict(texts), model.predict(texts))


# Going on with pre-training


def test_heads_of_pre_training(tmp_path: Path) -> None:
    theirs = state()
    model = load_elasticbert(folder(tmp_path / "a", theirs), pretraining=True)
    hidden, wide = hidden_states(theirs), {name: value.double() for name, value in theirs.items()}
    words = wide["elasticbert.embeddings.word_embeddings.weight"]
    with torch.no_grad():
        trace = model.trace(batch())
        for layer in range(LAYERS):
            at, head = f"predictions.transforms.{layer}", model.heads[str(layer)]
            inner = F.gelu(F.linear(hidden[layer], wide[f"{at}.dense.weight"], wide[f"{at}.dense.bias"]))
            norm = (wide[f"{at}.LayerNorm.weight"], wide[f"{at}.LayerNorm.bias"])
            expected = F.linear(F.layer_norm(inner, (WIDTH,), *norm, 1e-8), words, wide["predictions.bias"])
            assert torch.allclose(head.words(hidden[layer].float(), words.float()).double(), expected, atol=1e-4)
            order = answer(theirs, layer, hidden[layer], f"sop_classifier.classifiers.{layer}")
            assert torch.allclose(trace.logits[layer].double(), order, atol=1e-5)
        assert torch.allclose(trace.stock, trace.final, atol=1e-6)
    assert model.labels == ["in order", "swapped"]
    save_elasticbert(model, tmp_path / "b")
    written = load_file(tmp_path / "b" / "model.safetensors")
    assert written.keys() == {name for name in theirs if not name.endswith(("position_ids", "decoder.weight"))}
    assert all(torch.equal(value, theirs[name]) for name, value in written.items())
    with pytest.raises(BadSetting, match="leave"):
        load_elasticbert(tmp_path / "b", pretraining=True, depth=2)
    with pytest.raises(BadBundle, match="no heads of pre-training"):
        load_elasticbert(folder(tmp_path / "c", state(pretraining=False)), pretraining=True)


# What does not fit


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda s: s.pop("classifiers.1.bias"), r"missing: classifiers\.1\.bias$"),
        (lambda s: s.pop("classifiers.3.weight"), r"missing: classifiers\.3\.weight$"),
        (
            lambda s: s.pop("elasticbert.encoder.pooler.2.dense.bias"),
            r"missing: elasticbert\.encoder\.pooler\.2\.dense",
        ),
        (lambda s: s.pop("elasticbert.encoder.pooler.3.dense.weight"), r"missing: elasticbert\.encoder\.pooler\.3"),
        (
            lambda s: s.pop("elasticbert.encoder.layer.2.output.dense.bias"),
            r"missing: elasticbert\.encoder\.layer\.2\.output\.dense\.bias$",
        ),
        (lambda s: s.pop("elasticbert.embeddings.word_embeddings.weight"), r"missing: elasticbert\.embeddings\.word"),
        (lambda s: s.update({"lte.weight": torch.ones(1)}), r"unknown: lte\.weight"),
        (lambda s: s.update({"elasticbert.encoder.pooler.7.dense.bias": torch.ones(1)}), r"unknown: .*pooler\.7"),
        (lambda s: s.update({"elasticbert.encoder.layer.0.gate": torch.ones(1)}), r"unknown: .*layer\.0\.gate"),
        (
            lambda s: s.update({"elasticbert.encoder.pooler.1.dense.bias": torch.ones(3)}),
            r"elasticbert\.encoder\.pooler\.1\.dense\.bias should be \[16\]",
        ),
        (lambda s: s.update({"classifiers.0.weight": torch.ones(5, WIDTH)}), r"classifiers\.0\.weight should be \[2"),
        (lambda s: s.update({"elasticbert.encoder.layer.9.gate": torch.ones(1)}), "holds 5 layers"),
    ],
)
def test_what_does_not_fit_is_named(change: Any, complaint: str, tmp_path: Path) -> None:
    wrong = state(classifiers=2)
    change(wrong)
    with pytest.raises(BadBundle, match=complaint):
        load_elasticbert(folder(tmp_path / "a", wrong))


def test_static_use_names_what_is_unknown_too(tmp_path: Path) -> None:
    path = folder(tmp_path / "a", state() | {"lte.weight": torch.ones(1)})
    with pytest.raises(BadBundle, match=r"unknown: lte\.weight"):
        load_elasticbert(path, depth=2)


@pytest.mark.parametrize("text", ["{", "[]", '{"layer_norm_eps": 1e-8, "hidden_act": "evil"}', "[" * 100_000])
def test_a_damaged_config_is_refused(text: str, tmp_path: Path) -> None:
    (folder(tmp_path / "a", state()) / "config.json").write_text(text)
    with pytest.raises((BadBundle, BadSetting)):
        load_elasticbert(tmp_path / "a")


# Writing


@pytest.mark.parametrize("depth", [None, 2, LAYERS])
@pytest.mark.parametrize("classifiers", [0, 3])
def test_a_round_trip_changes_nothing(depth: int | None, classifiers: int, tmp_path: Path) -> None:
    theirs = state(classifiers=classifiers)
    model = load_elasticbert(folder(tmp_path / "a", theirs), depth=depth)
    save_elasticbert(model, tmp_path / "b")
    written = load_file(tmp_path / "b" / "model.safetensors")
    assert all(torch.equal(written[name], value) for name, value in theirs.items() if name in written)
    last = (depth or LAYERS) - 1
    poolers = {name.split(".")[3] for name in written if ".pooler." in name}
    assert poolers == {str(layer) for layer in (range(LAYERS) if depth is None else [last])}
    facts = json.loads((tmp_path / "b" / "config.json").read_text())
    assert (facts["model_type"], facts["layer_norm_eps"]) == ("elasticbert", 1e-8)
    assert (facts["num_hidden_layers"], facts["max_output_layers"]) == (last + 1, LAYERS)
    assert facts["num_output_layers"] == (LAYERS if depth is None else 1)
    assert (tmp_path / "b" / "vocab.txt").read_text().split() == (tmp_path / "a" / "vocab.txt").read_text().split()
    again = load_elasticbert(tmp_path / "b", depth=depth)
    assert close(
        again.answer(batch(), Plan(model.plan.depth)).logits, model.answer(batch(), model.plan.but(exit=None)).logits
    )
    assert again.labels == model.labels and again.tokenizer("word3 word4")["input_ids"] == [2, 8, 9, 3]
    save_elasticbert(again, tmp_path / "c")
    twice = load_file(tmp_path / "c" / "model.safetensors")
    assert twice.keys() == written.keys() and all(torch.equal(twice[name], written[name]) for name in twice)


def bert(labels: int = 2) -> AdaptiveModel:
    return AdaptiveModel(tiny("bert", num_labels=labels), None, answers.make("single_label")).eval()


@pytest.mark.parametrize("head", [None, "pooler", "shared_pooler"])
def test_any_bert_can_be_written(head: str | None, tmp_path: Path) -> None:
    model = bert()
    if head is not None:
        model.grow_heads(head)
    save_elasticbert(model, tmp_path / "a")
    again = load_elasticbert(tmp_path / "a", depth=None if head else model.layers)
    inputs = {"input_ids": torch.tensor([[2, 7, 9, 3]]), "attention_mask": torch.ones(1, 4, dtype=torch.long)}
    with torch.no_grad():
        ours, theirs = model.trace(inputs), again.trace(inputs)
    assert close(ours.stock, theirs.stock) and ours.logits.keys() == theirs.logits.keys()
    assert all(close(ours.logits[layer], theirs.logits[layer]) for layer in ours.logits)


def test_a_head_after_the_last_layer_is_its_answer(tmp_path: Path) -> None:
    model = bert()
    model.grow_heads("pooler", range(model.layers))
    save_elasticbert(model, tmp_path / "a")
    again = load_elasticbert(tmp_path / "a")
    last = model.heads[str(model.layers - 1)]
    assert torch.equal(again.stock.classifier.weight, last.out.weight)
    assert torch.equal(again.stock.bert.pooler.dense.weight, last.dense.weight)


def test_what_cannot_be_written_is_refused(tmp_path: Path) -> None:
    roberta = AdaptiveModel(tiny("roberta", num_labels=2).eval(), None, answers.make("single_label"))
    with pytest.raises(BadSetting, match="RobertaForSequenceClassification"):
        save_elasticbert(roberta, tmp_path / "a")
    for head, layers, complaint in (
        ("linear", None, "linear"),
        ("pooler:mean", None, "mean"),
        ("pooler", [1], "every"),
    ):
        model = bert()
        model.grow_heads(head, layers)
        with pytest.raises(BadSetting, match=f"(?i){complaint}"):
            save_elasticbert(model, tmp_path / "a")
    skipping = bert()
    skipping.plan = Plan(depth=(0, 2))
    with pytest.raises(BadSetting, match="first layers"):
        save_elasticbert(skipping, tmp_path / "a")
    assert not (tmp_path / "a").exists()


def test_from_pretrained_knows_the_layout(tmp_path: Path) -> None:
    path = folder(tmp_path / "a", state())
    model = AdaptiveModel.from_pretrained(path, task="rte")
    assert model.labels == ["entailment", "not_entailment"] and not model.heads
    assert AdaptiveModel.from_pretrained(path, depth=2).depth == (0, 1)
    with pytest.raises(BadSetting, match="leave depth out"):
        AdaptiveModel.from_pretrained(path, depth=2, plan=Plan(depth=(0,)))


# Training from it


@FILES
@pytest.mark.parametrize("method", ["joint", "fastbert", "deebert", "theseus", "finetune", "elasticbert"])
def test_every_method_starts_from_it(file: str, method: str, tmp_path: Path) -> None:
    model = AdaptiveModel.from_pretrained(folder(tmp_path / "a", theirs := state(), file), labels=["no", "yes"])
    made = methods.make(method)
    made.check(model)
    made.grow(model)
    if model.head is not None and model.head.name == "pooler":
        for layer, head in model.heads.items():
            expected = theirs[f"elasticbert.encoder.pooler.{layer}.dense.weight"]
            assert torch.equal(head.dense.weight, expected)  # type: ignore[union-attr]
    last = theirs[f"elasticbert.encoder.pooler.{LAYERS - 1}.dense.weight"]
    assert torch.equal(model.stock.bert.pooler.dense.weight, last)


def test_any_kind_of_answer_starts_from_it(tmp_path: Path) -> None:
    path, theirs = folder(tmp_path / "a", state()), state()
    for task, names in (("token_label", ["O", "B"]), ("span", None), ("regression", None), ("choice", None)):
        model = AdaptiveModel.from_pretrained(path, task=task, labels=names)
        query = "encoder.layer.1.attention.self.query.weight"
        assert torch.equal(model.stock.base_model.get_parameter(query), theirs[f"elasticbert.{query}"])
        assert model.kind.name == task and bool(model.poolers) == (not model.kind.per_token)


def test_fine_tuned_answers_are_kept_where_they_are_wanted(tmp_path: Path, caplog: Any) -> None:
    named = {"id2label": {"0": "no", "1": "yes"}}
    path = folder(tmp_path / "a", state(classifiers=2), **named)
    for labels in (None, ["no", "yes"], ["YES", "NO"]):
        model = AdaptiveModel.from_pretrained(path, labels=labels)
        assert len(model.heads) == LAYERS - 1 and model.plan.exit is not None
    assert model.labels == ["NO", "YES"] and "encoder is kept" not in caplog.text  # in the order of the file
    other = AdaptiveModel.from_pretrained(path, labels=["a", "b", "c"])
    assert not other.heads and other.labels == ["a", "b", "c"] and "2 labels (no, yes)" in caplog.text


def test_a_file_of_static_fine_tuning_knows_its_depth(tmp_path: Path) -> None:
    path = folder(tmp_path / "a", static_state(), num_hidden_layers=3, num_output_layers=1)
    assert AdaptiveModel.from_pretrained(path).depth == (0, 1, 2)


def test_a_damaged_encoder_is_not_trained(tmp_path: Path) -> None:
    wrong = state()
    del wrong["elasticbert.encoder.layer.2.output.dense.bias"]
    with pytest.raises(BadBundle, match=r"missing: elasticbert\.encoder\.layer\.2\.output\.dense\.bias"):
        AdaptiveModel.from_pretrained(folder(tmp_path / "a", wrong), labels=["no", "yes"])


def test_a_hub_id(tmp_path: Path) -> None:
    """As the hub's client keeps it, found without a network."""
    home = tmp_path / "models--fnlp--elasticbert-base"
    (home / "refs").mkdir(parents=True)
    (home / "refs" / "main").write_text("0" * 40)
    (home / "snapshots").mkdir()
    folder(home / "snapshots" / ("0" * 40), state())
    here = {"cache_dir": tmp_path, "local_files_only": True}
    model = AdaptiveModel.from_pretrained("fnlp/elasticbert-base", labels=["no", "yes"], **here)
    assert model.layers == LAYERS and len(model.poolers) == LAYERS and model.predict(["word0"])
    with pytest.raises(BadBundle, match="fnlp/elsewhere"):
        AdaptiveModel.from_pretrained("fnlp/elsewhere", **here)
