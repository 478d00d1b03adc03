"""What a user would run instead: it answers as the model does, or says why it cannot."""

from __future__ import annotations

import logging
import warnings
from typing import Any

import pytest
import torch

from paredown.model import AdaptiveModel
from paredown.plan import Plan
from paredown.runtime.rivals import RIVALS, Rival
from paredown.runtime.rivals.ctranslate2 import save_encoder
from paredown.runtime.rivals.stock import twin
from tests.families import adaptive

CPU = torch.device("cpu")
TEXTS = [("good plot", "good"), ("a bad film with a good plot", "bad"), ("bad", "good film"), ("good", "bad")] * 4
EXACT = {"transformers sdpa", "transformers eager", "openvino fp32"}


@pytest.fixture(scope="module")
def model(tokenizer: Any) -> AdaptiveModel:
    return adaptive("bert", tokenizer=tokenizer, vocab_size=len(tokenizer))


@pytest.mark.parametrize("name", [name for name, rival in RIVALS.items() if not rival.on_request])
def test_answers_as_the_model_does(model: AdaptiveModel, name: str) -> None:
    rival = RIVALS[name]
    if reason := rival.why_not(CPU):
        pytest.skip(reason)
    rows = model.encode(TEXTS)
    answer = rival.answering(model, rows[:8])
    expected = model.answer(model.kind.collate(rows, model.tokenizer.pad_token_id), Plan()).logits
    found = torch.cat([answer(rows[:5]), answer(rows[5:6]), answer(rows[6:])])  # other shapes than it was made with
    close = 1e-5 if name in EXACT else 0.3 * expected.abs().max().item()
    torch.testing.assert_close(found, expected, atol=close, rtol=0)
    assert not any(module.training for module in model.modules())


def test_says_what_is_missing() -> None:
    absent = Rival("another", lambda model, batches: None, ("torch", "no_such_one", "nor_this"), "some")
    assert absent.why_not(CPU) == "no_such_one and nor_this not installed: pip install 'paredown[some]'"
    assert "on a CPU alone" in str(RIVALS["onnxruntime int8"].why_not(torch.device("cuda")))
    assert RIVALS["transformers sdpa"].why_not(torch.device("cuda")) is None


def test_a_rival_is_made_ready_in_silence(model: AdaptiveModel, capsys: Any, caplog: Any) -> None:
    def start(model: Any, batches: Any) -> Any:
        print("progress")
        warnings.warn("shapes", stacklevel=1)
        logging.getLogger("other").warning("look at me")
        return lambda inputs: torch.zeros(len(inputs["input_ids"]), 2).numpy()

    answer = Rival("loud", start).answering(model, rows := model.encode(TEXTS[:3]))
    assert answer(rows).tolist() == [[0, 0]] * 3 and capsys.readouterr() == ("", "") and not caplog.records
    logging.getLogger("other").warning("later")
    assert [record.message for record in caplog.records] == ["later"]


def test_a_twin_shares_weights_and_nothing_else(model: AdaptiveModel) -> None:
    before = model.config._attn_implementation
    other = twin(model.stock, "eager" if before == "sdpa" else "sdpa")
    pairs = zip(model.stock.parameters(), other.parameters(), strict=True)
    assert all(ours is theirs for ours, theirs in pairs)
    assert model.config._attn_implementation == before != other.config._attn_implementation


def test_the_encoder_is_saved_as_a_converter_wants_it(model: AdaptiveModel, tmp_path: Any) -> None:
    from transformers import AutoModel

    save_encoder(model, tmp_path)
    found = AutoModel.from_pretrained(tmp_path)
    assert found.config.position_embedding_type == "absolute"
    assert torch.equal(
        found.embeddings.word_embeddings.weight, model.stock.base_model.embeddings.word_embeddings.weight
    )
