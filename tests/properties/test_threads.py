"""Threads, copies and processes that share a model get the answers they would get alone."""

from __future__ import annotations

import copy
import io
import os
import pickle
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

from paredown import AdaptiveModel, Plan
from paredown.errors import BadSetting
from paredown.state import Answer
from tests.contracts.reducer_settings import with_selectors
from tests.families import adaptive

PLANS = [
    Plan(exit="entropy:0.9"),
    Plan(),
    Plan(exit="patience:1", reduce="selector:0.5"),
    Plan(reduce="attention:1"),
    Plan(exit="entropy:0.9", reduce="fixed_share:0.5,score=attention"),
]
THREADS, CALLS = 8, 60


def batches(number: int) -> list[dict[str, torch.Tensor]]:
    random = torch.Generator().manual_seed(0)
    made = []
    for _ in range(number):
        rows, tokens = torch.randint(1, 6, (2,), generator=random).tolist()
        ids = torch.randint(5, 25, (rows, tokens + 3), generator=random)
        made.append({"input_ids": ids, "attention_mask": torch.ones_like(ids)})
    return made


def same(ours: Answer, theirs: Answer) -> bool:
    pairs = ((ours.logits, theirs.logits), (ours.layers, theirs.layers), (ours.tokens, theirs.tokens))
    return all(torch.equal(one, other) for one, other in pairs)


@pytest.mark.parametrize(
    ("family", "kind"), [("bert", "single_label"), ("albert", "single_label"), ("modernbert", "span")]
)
def test_threads_do_not_see_each_other(family: str, kind: str) -> None:
    """Among them questions, and layers whose attention is watched."""
    model: AdaptiveModel = with_selectors(adaptive(family, kind))
    tasks = [(PLANS[number % len(PLANS)], inputs) for number, inputs in enumerate(batches(40))]
    wanted = [model.answer(inputs, plan) for plan, inputs in tasks]

    def call(number: int) -> bool:
        plan, inputs = tasks[number % len(tasks)]
        return same(model.answer(inputs, plan), wanted[number % len(tasks)])

    calls = THREADS * CALLS if family == "bert" else 3 * CALLS
    with ThreadPoolExecutor(THREADS) as threads:
        assert all(threads.map(call, range(calls)))
    model.train()
    with ThreadPoolExecutor(THREADS) as threads:
        failed = list(threads.map(lambda number: refuses(model, *tasks[number % len(tasks)]), range(40)))
    assert all(failed)


def refuses(model: AdaptiveModel, plan: Plan, inputs: dict[str, torch.Tensor]) -> bool:
    with pytest.raises(BadSetting, match=r"call model\.eval\(\)"):
        model.answer(inputs, plan)
    return True


def pickled(model: AdaptiveModel) -> Any:
    return pickle.load(io.BytesIO(pickle.dumps(model)))


@pytest.mark.parametrize("family", ["bert", "albert", "modernbert", "deberta-v2"])
@pytest.mark.parametrize("copied", [pickled, copy.deepcopy])
def test_copies_answer_alike_and_go_their_own_way(family: str, copied: Any, tokenizer: Any) -> None:
    model = adaptive(family, tokenizer=tokenizer, plan="entropy:0.9")
    inputs = batches(1)[0]
    wanted = model.answer(inputs)
    twin = copied(model)
    assert type(twin) is type(model) and twin.plan == model.plan
    assert same(twin.answer(inputs), wanted)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.zero_()
    assert same(model.answer(inputs), wanted) and not twin.answer(inputs).logits.any()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_process_answers_alike() -> None:
    model, inputs = adaptive("bert", plan="entropy:0.9"), batches(1)[0]
    wanted = model.answer(inputs)
    child = os.fork()
    if not child:
        os._exit(0 if same(model.answer(inputs), wanted) else 1)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("family", ["bert", "albert", "modernbert", "deberta-v2", "xlm-roberta"])
def test_hooks_of_users_fire_once(family: str) -> None:
    """As often as in the model itself; a list of layers that runs one at a time is not run as such."""
    model, fired = adaptive(family), []
    whole = (model.stock, model.stock.base_model)
    for name, module in model.stock.named_modules():
        if module in whole or not any(layer in list(module.modules())[1:] for layer in model.walk.layers):
            module.register_forward_hook(lambda *_, name=name: fired.append(name))
    model.answer(batches(1)[0], Plan())
    ours, fired[:] = sorted(fired), []
    model.stock(**batches(1)[0])
    assert ours == sorted(fired)


def test_a_model_that_moves_takes_its_shadows_along() -> None:
    model, inputs = adaptive("modernbert", plan="entropy:0.9"), batches(1)[0]
    wanted = model.answer(inputs).logits
    assert torch.allclose(model.double().answer(inputs).logits.float(), wanted, atol=1e-5)
    assert model.to(torch.bfloat16).answer(inputs).logits.dtype == torch.bfloat16
    model.float()
    model.load_state_dict({name: torch.zeros_like(value) for name, value in model.state_dict().items()}, assign=True)
    assert not model.answer(inputs).logits.any()
