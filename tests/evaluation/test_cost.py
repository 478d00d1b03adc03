"""FLOPs are counted exactly: as the papers did, and as torch does."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode
from transformers import BertConfig, BertForSequenceClassification

from paredown import AdaptiveModel
from paredown.answers import Encoded, collate
from paredown.engine import Recording, run_steps
from paredown.errors import BadSetting, CannotWalk
from paredown.evaluation import Bill, Cost, Record, Work, record, replay
from paredown.plan import Plan
from paredown.registry import answers, exits, heads, reducers
from tests.contracts.reducer_settings import all_reducers, with_selectors
from tests.evaluation.made import encoded, sst2
from tests.families import adaptive, tiny, walked
from tests.grids import combinations
from tests.properties.test_tokens import Sieve


def one_row(tokens: int) -> dict[str, Tensor]:
    return {"input_ids": torch.full((1, tokens), 7), "attention_mask": torch.ones(1, tokens, dtype=torch.long)}


def counted(call: Any) -> int:
    with FlopCounterMode(display=False) as counter:
        call()
    return counter.get_total_flops()


def test_fastbert_counts_to_the_digit() -> None:
    cost = Cost.of_paper("fastbert", BertConfig())
    assert cost.full(128) == cost.full(5) == 21_785_247_744  # every row is padded
    assert cost.layers[0](128) + cost.heads[0](128) == 1_853_915_136
    never = cost.start(128) + sum(work(128) for work in (*cost.layers, *cost.heads.values()))
    assert never == 22_246_981_632


def test_a_replay_in_fastbert_counting_is_layers_run() -> None:
    seen = sst2()
    done = replay(seen, exits.parse("entropy:0.3"))
    bill = Bill(seen, Cost.of_paper("fastbert", BertConfig()))
    assert torch.equal(bill.of_rows(done.layers), done.layers * 1_853_915_136)
    assert bill.mean(done.layers)["flops_speedup"] == pytest.approx(
        21_785_247_744 / 1_853_915_136 / done.layers.double().mean().item()
    )


def test_elasticbert_counts_to_the_digit() -> None:
    cost = Cost.of_paper("elasticbert", BertConfig(), padded_to=None)
    assert cost.layers[0](128) == 2 * 931_921_920
    assert f"{cost.layers[0](128) / 1e6:.2f}" == "1863.84"
    published = [1865.4, 3729.3, 5593.1, 7457.0, 9320.8, 11184.6, 13048.5, 14912.3, 16776.2, 18640.0, 20503.9, 22367.7]
    for depth, mflops in enumerate(published, 1):
        config = BertConfig(num_hidden_layers=depth)
        assert round(Cost.of_paper("elasticbert", config).full(128) / 1e6, 1) == mflops


def test_an_unknown_paper_is_an_error() -> None:
    with pytest.raises(BadSetting, match="fastbert"):
        Cost.of_paper("bert", BertConfig())  # type: ignore[arg-type]


@pytest.mark.parametrize("family", walked())
def test_the_stock_model_costs_what_torch_counts(family: str) -> None:
    cost = Cost.of(adaptive(family))
    eager = tiny(family, attn_implementation="eager")
    for tokens in (1, 37):
        assert cost.full(tokens) == counted(lambda: eager(**one_row(tokens)))  # noqa: B023


FAMILIES = ("bert", "roberta", "distilbert", "electra", "albert", "modernbert", "mpnet", "deberta-v2")


@pytest.mark.parametrize("family, kind", combinations(FAMILIES, ("single_label", "token_label")))
def test_leaving_early_costs_what_torch_counts(family: str, kind: str) -> None:
    """Every layer and every head on the way, counted by torch while a row of a length never measured walks there."""
    for head in heads.names() if family == "bert" else ["attention"]:
        model = adaptive(family, kind, head, attn_implementation="eager")
        cost, tokens = Cost.of(model), 29
        row = Record(model.kind, {1: torch.zeros(1, 3), 2: torch.zeros(1, 3)}, {}, None, torch.tensor([tokens]))

        def walk() -> None:
            seen = Recording(model)  # noqa: B023
            run_steps(model.walk, model.route(Plan((0, 1))).steps, model.embed(one_row(tokens)), seen)  # noqa: B023

        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):  # the attention head's, on the CPU
            seen, twice = counted(walk), counted(lambda: model.embed(one_row(tokens)))  # noqa: B023
        assert cost.by_exit(row)[0, 1].item() == seen - twice + cost.start(tokens)


def test_a_layer_of_bert_base() -> None:
    config = BertConfig(num_hidden_layers=1, vocab_size=99, num_labels=2)
    model = AdaptiveModel(BertForSequenceClassification(config).eval(), None, answers.make("single_label"))
    cost = Cost.of(model)
    assert cost.layers[0] == Work(4 * 768, 2 * (4 * 768**2 + 2 * 768 * 3072), 0)
    assert cost.layers[0](128) == 1_811_939_328 + 50_331_648
    assert cost.classifier == Work(0, 0, 2 * (768 * 768 + 768 * 2))
    assert cost.start == Work()


def test_counting_leaves_the_model_as_it_was() -> None:
    for attention in ("eager", "sdpa"):
        model = adaptive("bert", attn_implementation=attention).train()
        Cost.of(model)
        assert model.config._attn_implementation == attention
    assert all(module.training for module in model.modules())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_inference_mode_hides_no_work() -> None:
    model = adaptive("bert")
    usual = Cost.of(model)
    with torch.inference_mode():
        assert Cost.of(model) == usual


def test_work_that_is_no_quadratic_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = iter([8, 16, 24, 41])
    monkeypatch.setattr("paredown.evaluation.cost._count", lambda *_: {("layer", 0): next(numbers)})
    with pytest.raises(CannotWalk, match="layer is not a quadratic"):
        Cost.of(adaptive("bert"))


def test_rows_pay_for_their_own_tokens(tokenizer: Any) -> None:
    model = adaptive("bert", tokenizer=tokenizer, head="attention")
    seen, cost = record(model, encoded("single_label", [4, 11, 30])), Cost.of(model)
    table = cost.by_exit(seen)
    for row, tokens in enumerate([4, 11, 30]):
        total = 0
        for layer in range(4):
            total += cost.layers[layer](tokens)
            total += cost.heads[layer](tokens) if layer < 3 else cost.classifier(tokens)
            assert table[row, layer].item() == total
    bill = Bill(seen, cost)
    full = bill.mean(torch.tensor([4, 4, 4]), exits=False)
    assert full["flops_speedup"] == 1 and full["token_layers"] == 4 * 15 and full["speedup"] == 1
    assert bill.mean(torch.tensor([4, 4, 4]))["flops_speedup"] < 1  # the heads on the way were asked


def test_dropped_tokens_are_not_paid_for(tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sieve, "name", "sieve", raising=False)
    monkeypatch.setitem(reducers._classes, "sieve", Sieve)
    plan = Plan(depth=(0, 1, 3), exit="patience:1", reduce="sieve")
    model = adaptive("bert", tokenizer=tokenizer)
    rows = encoded("single_label", [4, 11, 30, 17])
    seen, cost = record(model, rows, plan=plan), Cost.of(model, plan)
    done = replay(seen, plan.exit)
    for index, row in enumerate(rows):
        answer = model.answer({"input_ids": torch.tensor([row.ids["input_ids"]]), **_mask(len(row))}, plan)
        assert answer.layers.item() == done.layers[index].item()
        assert answer.tokens.item() == seen.tokens[index, : answer.layers.item()].sum().item()
        assert torch.allclose(answer.logits, done.logits[index : index + 1], atol=1e-5)
    left = int(seen.tokens[2, 1])
    assert left < 30
    table = cost.by_exit(seen)
    assert table[2, 0] == cost.layers[0](30) + cost.heads[0](30)
    assert table[2, 1] - table[2, 0] == cost.layers[1](left) + cost.heads[1](left)


def _mask(length: int) -> dict[str, Tensor]:
    return {"attention_mask": torch.ones(1, length, dtype=torch.long)}


def test_selectors_are_counted_on_all_the_tokens_they_see(tokenizer: Any) -> None:
    model = with_selectors(adaptive("bert", tokenizer=tokenizer))
    plan = Plan(reduce="selector:0.5")
    cost, seen = Cost.of(model, plan), record(model, encoded("single_label", [30]), plan=plan)
    assert cost.selectors == dict.fromkeys((1, 2), Work(0, 2 * (32 * 32 + 32), 0))
    with_it, without = cost.by_exit(seen)[0], Cost.of(model).by_exit(seen)[0]
    first, second = 2 * (32 * 32 + 32) * 30, 2 * (32 * 32 + 32) * int(seen.tokens[0, 1])
    assert (with_it - without).tolist() == [0, first, first + second, first + second] and second < first


def test_watching_attention_is_counted_where_it_is_work() -> None:
    plan = Plan(depth=(0, 2, 3), reduce="attention:1")
    fused, plain = (adaptive("bert", attn_implementation=name) for name in ("sdpa", "eager"))
    assert Cost.of(fused, plan).watching == {0: Work(2 * 32)}  # queries times keys once more
    assert Cost.of(plain, plan).watching == {0: Work()}  # it tells its probabilities itself
    assert Cost.of(fused, plan).selectors == {2: Work()} and Cost.of(fused).watching == {}


READ = [("bert", "eager"), ("bert", "sdpa"), ("modernbert", "sdpa"), ("distilbert", "eager"), ("roberta", "sdpa")]


@pytest.mark.parametrize("reducer, read", combinations(all_reducers(), READ, times=2))
def test_a_row_costs_what_torch_counts_while_its_tokens_go(reducer: Any, read: tuple[str, str]) -> None:
    family, attention = read
    model = with_selectors(adaptive(family, tokenizer=Padding(), attn_implementation=attention))
    plan, tokens = Plan(exit="at_layer:3", reduce=reducer), 29
    model.route(plan)  # looks at the attention of a first row
    cost, seen = Cost.of(model, plan), record(model, encoded("single_label", [tokens]), plan=plan)
    inputs = {"input_ids": torch.tensor([encoded("single_label", [tokens])[0].ids["input_ids"]]), **_mask(tokens)}
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        done = counted(lambda: model.answer(inputs, plan)) - counted(lambda: model.embed(inputs, joinable=True))
    assert cost.by_exit(seen)[0, 2].item() == done + cost.start(tokens)
    assert int(seen.tokens[0, 2]) < tokens


@pytest.mark.parametrize(
    "family, reducer", combinations(("bert", "distilbert", "modernbert"), (None, "selector:0.5", "attention:1"))
)
def test_a_question_costs_what_torch_counts_for_its_options(family: str, reducer: str | None) -> None:
    """One by one, because padding is not counted and work grows with the square of the length."""
    model = with_selectors(adaptive(family, "choice", tokenizer=Padding(), attn_implementation="eager"))
    plan, questions = Plan(exit="at_layer:3", reduce=reducer), encoded("choice", [29, 3, 14])
    model.route(plan)
    cost, seen = Cost.of(model, plan), record(model, questions, batch_size=2, plan=plan)
    bill = Bill(seen, cost)
    table = bill.of_rows(torch.full((3,), 3))
    for index, question in enumerate(questions):
        total = tokens = 0
        for option in question.options:
            alone = collate([Encoded(options=(option,))], 1)
            start = counted(lambda: model.embed(alone, joinable=reducer is not None))  # noqa: B023
            total += counted(lambda: model.answer(alone, plan)) - start + cost.start(len(option))  # noqa: B023
            tokens += model.answer(alone, plan).tokens.item()
        assert table[index].item() == total and bill.token_layers[index, 2].item() == tokens
    lengths = [len(option) for question in questions for option in question.options]
    assert bill.flops[2] == pytest.approx(sum(cost.full(length) for length in lengths) / 3)
    assert bill.mean(torch.full((3,), 3))["speedup"] == 4 / 3


class Padding:
    """All that a record asks of a tokenizer."""

    pad_token_id = 1


def test_an_encoder_of_few_positions_is_counted_as_any_other() -> None:
    few, many = (Cost.of(adaptive("bert", max_position_embeddings=positions)) for positions in (20, 128))
    assert few == many
