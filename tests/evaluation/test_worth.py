"""worth(): the figures of a plan and of full depth, as the full evaluation has them too."""

from __future__ import annotations

import dataclasses
import io
import json
from typing import Any

import pytest
from rich.console import Console

from paredown import Plan
from paredown.errors import BadInput
from paredown.evaluation import Cost, evaluate, worth
from paredown.registry import answers
from tests.evaluation.made import encoded
from tests.families import adaptive

LENGTHS = [3 + number % 20 for number in range(60)]


def test_the_figures_are_those_of_an_evaluation(tokenizer: Any) -> None:
    model, rows = adaptive("bert", tokenizer=tokenizer, plan="entropy:0.9"), encoded("single_label", LENGTHS)
    found = worth(model, rows)
    judged = evaluate(model, rows, rules=[], timed_batches=())
    own = judged.chosen[0]
    assert (found.score, found.layers, found.flops) == (own["score"], own["layers"], own["flops"])
    assert found.flops_speedup == own["flops_speedup"] and found.exits == own["histogram"]
    assert (found.full_score, found.full_layers) == (judged.full["score"], 4)
    assert found.full_flops == judged.full["flops"] and found.full_flops_speedup == 1
    assert found.metric == "accuracy" and found.rows == sum(found.exits) == 60
    assert json.loads(json.dumps(found.to_json()))["plan"] == "all layers · entropy:0.9"


def test_full_depth_keeps_all_tokens_that_the_plan_drops(tokenizer: Any) -> None:
    model, rows = adaptive("bert", tokenizer=tokenizer), encoded("single_label", LENGTHS)
    found = worth(model, rows, "accuracy", Plan(reduce="fixed_share:0.3,score=attention"))
    lengths = [len(row) for row in rows]
    assert found.full_flops == pytest.approx(sum(map(Cost.of(model).full, lengths)) / len(rows))
    assert found.flops < found.full_flops and found.layers == found.full_layers == 4


@pytest.mark.parametrize("kind", answers.names())
def test_every_kind_at_a_fixed_depth(tokenizer: Any, kind: str) -> None:
    model = adaptive("bert", kind, head=None, tokenizer=tokenizer, plan=Plan((0, 1)))
    found = worth(model, encoded(kind, LENGTHS))
    assert found.plan == "full depth" and found.exits == [0, len(LENGTHS)] and found.full_flops_speedup > 1.5
    assert (found.score, found.layers, found.flops) == (found.full_score, 2, found.full_flops)
    console = Console(file=io.StringIO(), width=120)
    console.print(found.table("test"))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert shown.count("full depth") == 1 and "test rows" in shown and f"{found.metric} (%)" in shown


def test_rows_without_labels(tokenizer: Any) -> None:
    model = adaptive("bert", tokenizer=tokenizer)
    rows = [dataclasses.replace(row, label=None) for row in encoded("single_label", LENGTHS)]
    with pytest.raises(BadInput, match="without labels"):
        worth(model, rows)
