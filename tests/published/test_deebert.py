"""DeeBERT checkpoints answer as the published forward does, for BERT and RoBERTa."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import BertConfig, BertModel, RobertaConfig, RobertaModel

from paredown import AdaptiveModel, Plan
from paredown.errors import BadBundle, BadSetting
from paredown.published import load_deebert
from tests.placement import agree

LAYERS, WIDTH = 3, 16
FAMILIES = pytest.mark.parametrize("family", ["bert", "roberta"])
SIZES: dict[str, Any] = {
    "vocab_size": 45,
    "hidden_size": WIDTH,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "intermediate_size": 20,
    "max_position_embeddings": 30,
    "initializer_range": 0.3,
}
State = dict[str, Tensor]


def body(family: str) -> Any:
    torch.manual_seed(0)
    if family == "bert":
        return BertModel(BertConfig(**SIZES)).eval()
    return RobertaModel(RobertaConfig(**SIZES, layer_norm_eps=1e-5, type_vocab_size=1)).eval()


def state(family: str, labels: int = 2) -> State:
    """The names of modeling_highway_bert.py and modeling_highway_roberta.py."""
    found = {f"{family}.{name}": value.clone() for name, value in body(family).state_dict().items()}
    for layer in range(LAYERS):
        at = f"{family}.encoder.highway.{layer}"
        found |= {f"{at}.pooler.dense.weight": torch.randn(WIDTH, WIDTH), f"{at}.pooler.dense.bias": torch.randn(WIDTH)}
        found |= {f"{at}.classifier.weight": torch.randn(labels, WIDTH), f"{at}.classifier.bias": torch.randn(labels)}
    return found | {"classifier.weight": torch.randn(labels, WIDTH), "classifier.bias": torch.randn(labels)}


def folder(path: Path, family: str, state: State, file: str = "pytorch_model.bin", zipped: bool = False) -> Path:
    """As transformers 2.1.1 saved it: config.json without a model type."""
    path.mkdir(exist_ok=True)
    facts = {**SIZES, "layer_norm_eps": 1e-12 if family == "bert" else 1e-5, "hidden_act": "gelu", "pruned_heads": {}}
    facts |= {"num_labels": 2, "output_attentions": False, "torchscript": False, "finetuning_task": "sst-2"}
    (path / "config.json").write_text(json.dumps(facts))
    if file.endswith("safetensors"):
        save_file(state, path / file)
    else:
        torch.save(state, path / file, _use_new_zipfile_serialization=zipped)
    return path


def batch() -> State:
    ids = torch.randint(5, 45, (2, 9), generator=torch.Generator().manual_seed(1))
    mask = (torch.arange(9) < torch.tensor([[9], [6]])).long()
    return {"input_ids": ids.masked_fill(mask == 0, 1), "attention_mask": mask}


def published_forward(family: str, state: State, batch: State) -> tuple[list[Tensor], Tensor]:
    """Logits of every exit and of the classifier: pooler and linear map on the first token, for both families."""

    def answer(pooler: str, classifier: str, hidden: Tensor) -> Tensor:
        pooled = (hidden[:, 0] @ state[f"{pooler}.weight"].t() + state[f"{pooler}.bias"]).tanh()
        return pooled @ state[f"{classifier}.weight"].t() + state[f"{classifier}.bias"]

    with torch.no_grad():
        hidden = body(family)(**batch, output_hidden_states=True).hidden_states[1:]
    ways = [f"{family}.encoder.highway.{layer}" for layer in range(LAYERS)]
    exits = [answer(f"{way}.pooler.dense", f"{way}.classifier", hidden[layer]) for layer, way in enumerate(ways)]
    return exits, answer(f"{family}.pooler.dense", "classifier", hidden[-1])


@FAMILIES
@pytest.mark.parametrize(
    ("file", "zipped"), [("pytorch_model.bin", True), ("pytorch_model.bin", False), ("model.safetensors", False)]
)
def test_every_exit_and_the_classifier_answer_as_published(
    family: str, file: str, zipped: bool, tmp_path: Path
) -> None:
    model = load_deebert(folder(tmp_path / "a", family, state(family), file, zipped), labels=["no", "yes"])
    exits, final = published_forward(family, state(family), batch())
    with torch.no_grad():
        trace = model.trace(batch())
    assert list(trace.logits) == [0, 1]  # the untrained last exit is left out
    for layer, logits in trace.logits.items():
        assert (logits - exits[layer]).abs().max() <= 1e-5
    assert (trace.stock - final).abs().max() <= 1e-5
    assert torch.allclose(model.answer(batch(), Plan()).logits, final, atol=1e-5)
    assert model.plan == Plan(exit="entropy_nats:0.1") and model.labels == ["no", "yes"]
    assert type(model.stock).__name__ == f"{'Bert' if family == 'bert' else 'Roberta'}ForSequenceClassification"


@FAMILIES
def test_early_exit_as_in_the_script(family: str, tmp_path: Path) -> None:
    model = load_deebert(folder(tmp_path / "a", family, state(family)))
    exits, final = published_forward(family, state(family), batch())
    for threshold in (0.0, 0.01, 0.1, 0.3, 0.6, 0.7):
        answer = model.answer(batch(), Plan(exit=f"entropy_nats:{threshold}"))
        for row in range(2):
            probs = [logits[row].softmax(-1) for logits in exits[:-1]]
            uncertainty = [torch.special.entr(p).sum() for p in probs]
            left = next((layer for layer in range(LAYERS - 1) if uncertainty[layer] < threshold), None)
            expected = final[row] if left is None else exits[left][row]
            assert answer.layers[row] == (LAYERS if left is None else left + 1)
            assert torch.allclose(answer.logits[row], expected, atol=1e-5)


def test_a_bare_weights_file_and_its_vocabulary(tmp_path: Path) -> None:
    path = folder(tmp_path / "a", "bert", state("bert"))
    words = [f"word{index}" for index in range(40)]
    (path / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]))
    (path / "tokenizer_config.json").write_text('{"do_lower_case": true, "max_len": 30}')
    model = load_deebert(path / "pytorch_model.bin")
    assert model.tokenizer("WORD0")["input_ids"] == [2, 5, 3]
    model.save_pretrained(tmp_path / "bundle")
    again = AdaptiveModel.from_pretrained(tmp_path / "bundle")
    assert agree(again.predict(["word0 word1", "word2"]), model.predict(["word0 word1", "word2"]))


def test_labels_from_the_config(tmp_path: Path) -> None:
    path = folder(tmp_path / "a", "bert", state("bert"))
    facts = json.loads((path / "config.json").read_text()) | {"id2label": {"0": "no", "1": "yes"}}
    (path / "config.json").write_text(json.dumps(facts))
    assert load_deebert(path).labels == ["no", "yes"]
    with pytest.raises(BadSetting, match="2 labels"):
        load_deebert(path, labels=["one"])


def test_one_label_is_a_number_and_has_no_entropy(tmp_path: Path) -> None:
    model = load_deebert(folder(tmp_path / "a", "bert", state("bert", labels=1)))
    assert model.kind.name == "regression" and model.plan == Plan()


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda s: s.pop("bert.encoder.highway.0.classifier.bias"), r"missing: heads\.0\.out\.bias"),
        (lambda s: s.pop("bert.pooler.dense.weight"), r"missing: bert\.pooler\.dense\.weight"),
        (lambda s: s.update({"lte.weight": torch.ones(1, WIDTH)}), r"unknown: lte\.weight"),
        (lambda s: s.update({"bert.encoder.highway.9.classifier.bias": torch.ones(2)}), r"unknown: heads\.9"),
        (lambda s: s.update({"bert.pooler.dense.bias": torch.ones(3)}), r"bert\.pooler\.dense\.bias should be"),
        (lambda s: s.pop("bert.embeddings.word_embeddings.weight"), "neither"),
    ],
)
def test_what_does_not_fit_is_named(change: Any, complaint: str, tmp_path: Path) -> None:
    wrong = state("bert")
    change(wrong)
    with pytest.raises(BadBundle, match=complaint):
        load_deebert(folder(tmp_path / "a", "bert", wrong))


@pytest.mark.parametrize("text", ["{", "[]", '{"num_attention_heads": 4, "hidden_act": "evil"}'])
def test_a_damaged_config_is_refused(text: str, tmp_path: Path) -> None:
    path = folder(tmp_path / "a", "bert", state("bert"))
    (path / "config.json").write_text(text)
    with pytest.raises(BadBundle):
        load_deebert(path)


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadBundle, match="neither"):
        load_deebert(tmp_path)
