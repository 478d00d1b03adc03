"""Longer texts: every family with a table of positions gets more of them, and reads short texts exactly as before."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForMaskedLM, AutoTokenizer

from paredown import AdaptiveModel, Plan
from paredown.answers._length import check_length, longest_row
from paredown.cli import main
from paredown.encoders.longer import can_read, learned_positions, lengthen, lengthened
from paredown.errors import BadBundle, BadSetting
from paredown.training import train
from tests.conftest import WORDS
from tests.contracts.reducer_settings import all_reducers, with_selectors
from tests.families import adaptive, batch, tiny, walked
from tests.placement import close

LONG = 256
COMPUTED = {  # rotary, relative or sinusoidal
    *("deberta", "deberta-v2", "esm", "esmc", "eurobert", "gte", "jina_embeddings_v3", "modernbert", "nomic_bert"),
    *("roformer", "ultrabert"),
}
SHORT = [128 - 2, 3, 40, 1]  # tokens; RoBERTa and its like keep two of their 128 positions


@pytest.mark.parametrize("family", sorted(set(walked()) - COMPUTED))
def test_every_table_grows(family: str) -> None:
    model, inputs = adaptive(family), batch(99, SHORT)
    known = learned_positions(model.stock)
    assert known is not None and known.count + known.first == 128
    before = model.answer(inputs).logits
    now = lengthen(model, LONG)
    assert (now.name, now.first, now.count) == (known.name, known.first, LONG)
    assert torch.equal(model.answer(inputs).logits, before)  # to the bit
    again = AdaptiveModel(model.stock, None, model.kind)  # it walks, as adoption checks
    assert again.walk.drops_tokens == model.walk.drops_tokens
    long = model.answer(batch(99, [LONG, 150])).logits
    assert bool(long.isfinite().all()) and not can_read(model.stock, LONG + 1)
    assert model.config.max_position_embeddings == LONG + known.first


@pytest.mark.parametrize("family", sorted(COMPUTED))
def test_what_needs_no_table_says_so(family: str) -> None:
    model = tiny(family)
    assert learned_positions(model) is None
    able = "200 are too many" if family == "roformer" else "it reads 200 tokens as it is; only give max_length"
    with pytest.raises(BadSetting, match=f"{family} has no table of positions to lengthen.*; {able}"):
        lengthen(model, 200)


def test_positions_begin_again() -> None:
    for family in ("bert", "roberta"):
        model = tiny(family)
        old = learned_positions(model).table.weight.clone()  # type: ignore[union-attr]
        now = lengthen(model, 300)
        first, count = now.first, 128 - now.first
        assert torch.equal(now.table.weight[:128], old) and now.table.num_embeddings == 300 + first
        assert torch.equal(now.table.weight[128 : 128 + count], old[first:])
        assert now.table.weight.requires_grad


def test_positions_stretched() -> None:
    model, inputs = tiny("roberta"), batch(99, [20])
    old, before = learned_positions(model).table.weight.clone(), model(**inputs).logits  # type: ignore[union-attr]
    now = lengthen(model, 251, interpolate=True).table.weight  # 126 positions and one between every two
    assert torch.equal(now[:2], old[:2]) and torch.allclose(now[2::2], old[2:], atol=1e-5)
    assert torch.allclose(now[3::2], (old[2:-1] + old[3:]) / 2, atol=1e-5)
    assert not torch.allclose(model(**inputs).logits, before)


def test_not_longer_is_refused() -> None:
    for to in (128, 5):
        with pytest.raises(BadSetting, match=f"bert reads 128 tokens already; .* not to {to}"):
            lengthen(tiny("bert"), to)
    with pytest.raises(BadSetting, match="deberta: more than its positions follows the length"):
        lengthen(tiny("deberta", position_biased_input=True), 200)


def test_a_limit_is_what_can_be_read(tokenizer: Any) -> None:
    roberta, rotary = adaptive("roberta", tokenizer=tokenizer), adaptive("modernbert", tokenizer=tokenizer)
    assert longest_row(roberta) == 64  # the tokenizer's
    tokenizer_limit, tokenizer.model_max_length = tokenizer.model_max_length, 10**30
    try:
        assert longest_row(roberta) == 126
        with pytest.raises(BadSetting, match="max_length=127 is more than this encoder can read: 126"):
            check_length(roberta, 127)
        check_length(rotary, 500)
    finally:
        tokenizer.model_max_length = tokenizer_limit


def write(folder: Path, tokenizer: Any, **settings: Any) -> Path:
    tiny("roberta", **settings).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def test_a_checkpoint_keeps_its_head(tmp_path: Path, tokenizer: Any) -> None:
    source = write(tmp_path / "old", tokenizer, auto=AutoModelForMaskedLM)
    kept = load_file(source / "model.safetensors")
    del kept["lm_head.dense.bias"]  # a part that is not there is not made up
    save_file(kept, source / "model.safetensors", metadata={"format": "pt"})
    made = lengthened(source, LONG)
    made.save(tmp_path / "new")
    assert made.before == 126 and type(made.model).__name__ == "RobertaForMaskedLM"
    old, new = (AutoModelForMaskedLM.from_pretrained(folder) for folder in (source, tmp_path / "new"))
    inputs = batch(99, [50])
    new.lm_head.dense.bias = old.lm_head.dense.bias
    assert close(old(**inputs).logits, new(**inputs).logits)
    assert new(**batch(99, [LONG])).logits.isfinite().all()
    assert load_file(tmp_path / "new" / "model.safetensors").keys() == kept.keys()
    assert AutoTokenizer.from_pretrained(tmp_path / "new").model_max_length == LONG
    assert AdaptiveModel.from_pretrained(tmp_path / "new", num_labels=2).config.max_position_embeddings == LONG + 2


def texts(number: int, words: int) -> list[dict[str, Any]]:
    """Long texts whose label stands at their end."""
    draw = torch.Generator().manual_seed(0)
    found = []
    for index in range(number):
        some = [WORDS[at] for at in torch.randint(len(WORDS), (words,), generator=draw)]
        found.append({"text": " ".join([*some, "good" if index % 2 else "bad"]), "label": index % 2})
    return found


@pytest.mark.parametrize("method", ["joint:epochs=1", "token_gate:epochs=1,gate_epochs=1"])
def test_a_long_text_trains_and_answers(method: str, tmp_path: Path, tokenizer: Any) -> None:
    adaptive("bert", head=None, tokenizer=tokenizer, num_labels=2).save_pretrained(tmp_path / "short")
    made = lengthened(tmp_path / "short", LONG)
    made.save(tmp_path / "long")
    model = AdaptiveModel.from_pretrained(tmp_path / "long")
    assert model.tokenizer.model_max_length == LONG
    rows = texts(4, LONG - 24)
    train(model, method, rows, rows, output=tmp_path / "run", batch_size=2, max_length=LONG, progress=False)
    model = with_selectors(model)
    for reducer in [None, *all_reducers()]:
        together = model.predict(rows, Plan(reduce=reducer), max_length=LONG)
        for row, found in zip(rows, together, strict=True):
            (alone,) = model.predict([row], Plan(reduce=reducer), max_length=LONG)
            assert (alone.label, alone.tokens) == (found.label, found.tokens)
            assert alone.score == pytest.approx(found.score, abs=1e-4)
        full = model.layers * (LONG - 21)
        assert all(found.tokens == full if reducer is None else found.tokens < full for found in together)


def test_the_example_of_the_documents_runs(tmp_path: Path, tokenizer: Any, monkeypatch: Any, capsys: Any) -> None:
    page = Path(__file__).parents[1] / "docs" / "longer_texts.md"
    (example,) = (block for block in page.read_text().split("```") if block.startswith("python\n"))
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "encoder", tokenizer, num_labels=2)
    exec(example.removeprefix("python\n").replace("google-bert/bert-base-uncased", "encoder"), {})
    assert int(capsys.readouterr().out) == 4 * 1002


def test_the_command(tmp_path: Path, tokenizer: Any, capsys: Any) -> None:
    source, out = write(tmp_path / "old", tokenizer), tmp_path / "new"
    words = ["lengthen", str(source), str(out), "--to", "512"]
    assert main([*words, "--dry-run", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["before"], facts["after"]) == (126, 512) and not out.exists()
    (tmp_path / "run.yaml").write_text("to: 300\n")
    assert main([*words[:3], "--config", str(tmp_path / "run.yaml")]) == 0
    assert "reads 300 tokens; it was 126" in capsys.readouterr().out
    assert main(["lengthen", str(out), str(tmp_path / "more"), "--interpolate", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["before"] == 300
    for wrong, predicted in (
        ([str(source), str(out)], "exists already"),
        ([str(source), str(tmp_path / "x"), "--to", "100"], "reads 126 tokens already"),
        ([str(tmp_path / "run.yaml"), str(tmp_path / "x")], "is a file"),
        ([str(tmp_path), str(tmp_path / "x")], "cannot be loaded"),
    ):
        assert main(["lengthen", *wrong]) == 1
        assert predicted in capsys.readouterr().err
    with pytest.raises(BadBundle, match="cannot be loaded"):
        lengthened(tmp_path, LONG)
