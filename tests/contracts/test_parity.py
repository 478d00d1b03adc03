"""A full plan equals transformers bit for bit, for every family the survey says can be walked (promises 1 and 8)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from transformers import AutoModelForQuestionAnswering, AutoModelForTokenClassification

from paredown import AdaptiveModel, Plan
from paredown.answers import RULED_OUT
from paredown.encoders import probing
from paredown.encoders.walk import Walk
from paredown.errors import BadSetting, CannotWalk
from paredown.registry import answers
from tests.families import adaptive, batch, committed, survey, tiny, version, walked
from tests.placement import close, unaligned
from tests.walking import through

LENGTHS = ([9, 9, 9], [14, 3, 1, 8], [1])  # nothing padded, much padded, the shortest text


def kernels(family: str) -> list[str]:
    """The attention kernels that a family offers on a CPU."""
    return [kernel for kernel in ("eager", "sdpa") if kernel == "eager" or type(tiny(family))._supports_sdpa]


def test_the_committed_survey_is_true() -> None:
    assert len(walked()) >= 15
    if (then := committed()["transformers"]) != version():
        pytest.skip(f"the survey was made with transformers {then}, not {version()}; see `make families`")
    assert survey() == committed()["families"]


@pytest.mark.parametrize("family", walked())
def test_full_plan_equals_stock(family: str) -> None:
    for kernel in kernels(family):
        stock = tiny(family, attn_implementation=kernel)
        model = AdaptiveModel(stock, None, answers.make("single_label"))
        for lengths in LENGTHS:
            inputs = batch(99, lengths)
            with torch.no_grad():
                expected = stock(**inputs).logits
            assert torch.equal(model.answer(inputs).logits, expected), (kernel, lengths)
            assert torch.equal(model.answer(inputs).logits, expected), "the same call gives the same bits"


@pytest.mark.parametrize("family", ["bert", "modernbert"])
def test_full_plan_equals_stock_wherever_weights_lie(family: str) -> None:
    stock = unaligned(tiny(family))
    assert all(parameter.data_ptr() % 64 for parameter in stock.parameters())
    inputs = batch(99, [14, 3, 8])
    with torch.no_grad():
        expected = stock(**inputs).logits
    assert torch.equal(AdaptiveModel(stock, None, answers.make("single_label")).answer(inputs).logits, expected)
    assert close(expected, tiny(family)(**inputs).logits)


@pytest.mark.parametrize("family", walked())
@torch.no_grad()
def test_hidden_states_equal_stock(family: str) -> None:
    stock = tiny(family)
    walk = Walk(stock)
    inputs = batch(99, [14, 3, 8])
    expected = stock.base_model(**inputs, output_hidden_states=True).hidden_states
    assert len(expected) == len(walk.layers) + 1
    state = walk.embed(inputs)
    seen = [state.hidden]
    for layer in range(len(walk.layers)):
        state = through(walk, state, [layer])
        seen.append(state.hidden)
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(seen[:-1], expected[:-1], strict=True))
    # Families differ in whether the last of them is shown before or after the final norm.
    assert any(torch.equal(last, expected[-1]) for last in (seen[-1], walk.finish(seen[-1])))


@pytest.mark.parametrize("family", walked())
@torch.no_grad()
def test_trace_equals_answer(family: str) -> None:
    model = adaptive(family)
    inputs = batch(99, [14, 3, 8])
    trace = model.trace(inputs)
    assert torch.equal(trace.final, model.answer(inputs).logits)
    assert list(trace.exits) == list(range(model.layers - 1))
    at_once = model.answer(inputs, Plan(exit="entropy:1.1"))
    assert torch.equal(trace.logits[0], at_once.logits) and at_once.layers.tolist() == [1, 1, 1]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("family", ["bert", "albert", "mpnet", "modernbert"])
def test_sixteen_bits_are_walked_too(family: str, dtype: torch.dtype) -> None:
    stock = tiny(family).to(dtype)
    model = AdaptiveModel(stock, None, answers.make("single_label"))
    with torch.no_grad():
        expected = stock(**batch(99, [14, 3, 8])).logits
    assert torch.equal(model.answer(batch(99, [14, 3, 8])).logits, expected)


@pytest.mark.parametrize("family", ["bert", "deberta-v2", "modernbert"])
def test_token_labels_equal_stock(family: str) -> None:
    stock = tiny(family, AutoModelForTokenClassification)
    model = AdaptiveModel(stock, None, answers.make("token_label"))
    for lengths in LENGTHS:
        inputs = batch(99, lengths)
        with torch.no_grad():
            assert torch.equal(model.answer(inputs).logits, stock(**inputs).logits)


@pytest.mark.parametrize("family", ["bert", "distilbert", "deberta-v2", "modernbert", "mpnet"])
def test_spans_equal_stock(family: str) -> None:
    """Where an answer may be; the other positions are ruled out."""
    stock = tiny(family, AutoModelForQuestionAnswering, num_labels=2)
    model = AdaptiveModel(stock, None, answers.make("span"))
    for lengths in LENGTHS:
        inputs = batch(99, lengths)
        real = inputs["attention_mask"].bool()
        with torch.no_grad():
            expected = stock(**inputs)
        outputs = model.answer(inputs).logits
        assert torch.equal(outputs[..., 0][real], expected.start_logits[real])
        assert torch.equal(outputs[..., 1][real], expected.end_logits[real])
        assert bool((outputs[~real] == RULED_OUT).all())


def test_what_cannot_be_walked_is_refused() -> None:
    with pytest.raises(CannotWalk, match="does not give its own hidden states"):
        Walk(tiny("deberta-v2", conv_kernel_size=3, conv_act="gelu"))
    with pytest.raises(CannotWalk, match="depend on earlier ones"):
        Walk(tiny("big_bird"))  # its first short text turns sparse attention into full attention
    for decoder in ("gpt2", "llama"):
        with pytest.raises(CannotWalk, match="classifier reads more"):
            Walk(tiny(decoder))


@pytest.mark.parametrize("family", ["bert", "albert", "deberta-v2", "modernbert"])
def test_reported_cost_is_what_the_layers_ran(family: str) -> None:
    model = adaptive(family)
    calls: list[tuple[int, int]] = []  # rows and tokens of every call of a layer

    def note(module: nn.Module, args: tuple, kwargs: dict, output: object) -> None:
        if "forward" not in module.__dict__:  # while recording, a layer only hands its input on
            calls.append(tuple((args[0] if args else kwargs["hidden_states"]).shape[:2]))

    for layer in set(model.walk.layers):
        layer.register_forward_hook(note, with_kwargs=True)
    depths = set()
    for seed in range(20):
        lengths = torch.randint(1, 20, (6,), generator=torch.Generator().manual_seed(seed)).tolist()
        inputs = batch(99, lengths, seed=seed)
        plan = Plan(exit=f"entropy:{0.02 + 0.02 * seed}")
        calls.clear()
        answer = model.answer(inputs, plan)
        alive = [int((answer.layers > done).sum()) for done in range(model.layers)]
        assert [rows for rows, _ in calls] == [rows for rows in alive if rows]
        assert answer.tokens.tolist() == [run * length for run, length in zip(answer.layers.tolist(), lengths)]
        depths |= set(answer.layers.tolist())

        calls.clear()  # alone, a row has no padding, so every token that a layer sees is its own
        alone = model.answer({name: value[:1, : lengths[0]] for name, value in inputs.items()}, plan)
        assert (alone.layers.item(), alone.tokens.item()) == (len(calls), sum(tokens for _, tokens in calls))
    assert len(depths) >= 3


@pytest.mark.parametrize("family", ["bert", "albert", "deberta-v2", "modernbert"])
def test_walking_leaves_the_model_as_it_was(family: str) -> None:
    stock = tiny(family)
    stock.train()
    next(iter(stock.base_model.children())).eval()
    before = snapshot(stock)
    model = AdaptiveModel(stock, None, answers.make("single_label"))
    assert snapshot(stock) == before
    with pytest.raises(BadSetting, match=r"call model\.eval\(\)"):
        model.answer(batch(99, [5, 2]))
    before = snapshot(model.eval().stock)
    model.answer(batch(99, [5, 2]))
    assert snapshot(stock) == before
    for failing in (stock.base_model.get_input_embeddings(), model.walk.layers[-1]):
        assert fails(failing, lambda: model.answer(batch(99, [5, 2])))
        assert fails(failing, lambda: AdaptiveModel(stock, None, answers.make("single_label")))
        assert snapshot(stock) == before


def snapshot(model: nn.Module) -> list[tuple]:
    """All that a walk could leave behind in a module."""
    return [(module.training, "forward" in module.__dict__, len(module._forward_hooks)) for module in model.modules()]


def fails(module: nn.Module, call: Callable[[], object]) -> bool:
    """True when the call fails, as it should, because this module raises."""

    def refuse(*_: object) -> None:
        raise ZeroDivisionError("on purpose")

    hook = module.register_forward_pre_hook(refuse)
    try:
        call()
    except (ZeroDivisionError, CannotWalk):
        return True
    finally:
        hook.remove()
    return False


def test_adoption_looks_in_full_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounding to TF32, which a program may have allowed, would be taken for a leak of padding."""
    seen: list[str] = []
    real = probing._check_encoder

    def look(*args: Any) -> None:
        seen.append(torch.get_float32_matmul_precision())
        real(*args)

    monkeypatch.setattr(probing, "_check_encoder", look)
    torch.set_float32_matmul_precision("high")
    try:
        AdaptiveModel(tiny("bert"), None, answers.make("single_label"))
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision("highest")
    assert set(seen) == {"highest"}
