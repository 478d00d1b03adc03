"""What an answer costs beside its layers: Python calls and time, here and at another commit; and full depth beside
transformers' own forward.

    python -m benchmarks.overhead --before /path/to/a/checkout/of/the/commit/before

One thread, process time, medians of processes that take turns, each of rounds that take turns. Models are random:
only their shapes matter.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

TURNS, ROUNDS, CALLS = 5, 9, 60


def small() -> Any:
    """Three layers of width 32 with a head after each but the last: hardly any work but the overhead."""
    return adopted(hidden_size=32, num_hidden_layers=3, num_attention_heads=2, intermediate_size=64)


def adopted(**shape: int) -> Any:
    import torch
    from transformers import BertConfig, BertForSequenceClassification

    from paredown import AdaptiveModel

    try:
        from paredown.registry import answers

        kind = answers.make("single_label")
    except ImportError:  # the commit before has its kinds elsewhere
        from paredown.kinds import KINDS

        kind = KINDS["single_label"]
    torch.manual_seed(0)
    model = AdaptiveModel(BertForSequenceClassification(BertConfig(vocab_size=1000, **shape)).eval(), None, kind)
    model.grow_heads("linear")
    return model.eval()


def row(tokens: int) -> dict[str, Any]:
    import torch

    ids = torch.randint(5, 1000, (1, tokens), generator=torch.Generator().manual_seed(0))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def python_calls(function: Callable[[], Any]) -> int:
    """Calls of Python functions, torch's included."""
    for _ in range(3):
        function()
    profile = cProfile.Profile(builtins=False)
    profile.runcall(function)
    return sum(entry.callcount for entry in profile.getstats())


def seconds(function: Callable[[], Any], calls: int = CALLS) -> float:
    start = time.process_time()
    for _ in range(calls):
        function()
    return (time.process_time() - start) / calls


def of_this_tree() -> dict[str, Any]:
    """Calls and microseconds of an answer of one row, with an exit rule and without, beside the bare model's."""
    import torch

    from paredown import Plan

    torch.set_num_threads(1)
    model, inputs = small(), row(16)

    def stock() -> None:
        with torch.inference_mode():
            model.stock(**inputs)

    plans = {"exits": Plan(exit="entropy:0.0"), "full_depth": Plan()}  # nobody leaves early
    work = {"stock": stock} | {name: partial(model.answer, inputs, plan) for name, plan in plans.items()}
    rounds = [{name: seconds(one) for name, one in work.items()} for _ in range(ROUNDS + 1)][1:]
    return {
        "python_calls": {name: python_calls(one) for name, one in work.items()},
        "microseconds": {name: round(1e6 * statistics.median(turn[name] for turn in rounds), 1) for name in work},
    }


def full_depth(tokens: int) -> dict[str, float]:
    """A row through a 12x384 encoder at full depth, ours and transformers' own."""
    import torch

    from paredown import Plan

    torch.set_num_threads(1)
    model = adopted(hidden_size=384, num_hidden_layers=12, num_attention_heads=12, intermediate_size=1536)
    inputs, plan, ratios, times = row(tokens), Plan(), [], []

    def stock() -> None:
        with torch.inference_mode():
            model.stock(**inputs)

    for turn in range(2 * ROUNDS + 1):
        ours, theirs = seconds(lambda: model.answer(inputs, plan), 10), seconds(stock, 10)
        if turn:
            ratios.append(ours / theirs)
            times.append(theirs)
    return {
        "tokens": tokens,
        "ratio": round(statistics.median(ratios), 4),
        "stock_ms": round(1e3 * statistics.median(times), 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, help="a checkout of the commit to compare with")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"))
    parser.add_argument("--one", action="store_true", help="measure this tree alone and print JSON")
    args = parser.parse_args()
    if args.one:
        print(json.dumps(of_this_tree()))
        return
    from benchmarks.commands import repeatable_command  # the commit before has not what these need
    from paredown.system.machine import machine

    trees = {"now": Path(__file__).parent.parent} | ({"before": args.before} if args.before else {})
    found: dict[str, Any] = {
        "command": repeatable_command("-m benchmarks.overhead"),
        **machine(),
    }
    turns = [{name: in_tree(tree, trees["now"]) for name, tree in trees.items()} for _ in range(TURNS)]
    for name in trees:
        found[name] = medians([turn[name] for turn in turns])
    found["full_depth"] = [full_depth(tokens) for tokens in (16, 32, 128)]
    args.out.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))


def in_tree(tree: Path, here: Path) -> dict[str, Any]:
    """What `of_this_tree` finds in a process of its own that imports another checkout."""
    code = f"import sys; sys.path[:0] = [{str(tree)!r}, {str(here)!r}]; sys.argv = ['', '--one']; "
    code += f"import runpy; runpy.run_path({str(Path(__file__))!r}, run_name='__main__')"
    shown = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd="/")
    return json.loads(shown.stdout.splitlines()[-1])


def medians(turns: list[dict[str, Any]]) -> dict[str, Any]:
    """Of the same figures, measured several times."""
    return {
        what: {name: statistics.median(turn[what][name] for turn in turns) for name in turns[0][what]}
        for what in turns[0]
    }


if __name__ == "__main__":
    main()
