"""What dropped tokens save on a CPU: the same reviews with some share of the tokens left at both choices.

    python -m benchmarks.token_time --weights gte-small --data data

Process time of one thread, the best of three rounds that take turns. Time depends on how many tokens go, not on which,
so selectors stay as they are born and nothing is trained.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from pathlib import Path

from benchmarks.commands import repeatable_command
from paredown.system.machine import machine

ROWS, ROUNDS, SIZES = 64, 3, (1, 16)
PLANS = [None, *(f"fixed_share:{share}" for share in (0.7, 0.5, 0.3))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"))
    args = parser.parse_args()

    import torch

    from paredown import AdaptiveModel, Plan
    from paredown.answers import collate
    from paredown.evaluation import Bill, Cost, record
    from paredown.registry import tasks

    torch.set_num_threads(1)
    model = AdaptiveModel.from_pretrained(args.weights, task="imdb").eval()
    model.grow_selectors()
    reviews = random.Random(0).sample(tasks.make("imdb").read(args.data, "test").rows, ROWS)
    rows = sorted(model.encode(reviews, 512), key=len)
    plans = {reducer: Plan(reduce=reducer) for reducer in PLANS}

    def seconds(plan: Plan, size: int) -> float:
        pieces = [collate(rows[at : at + size], model.tokenizer.pad_token_id) for at in range(0, ROWS, size)]
        began = time.process_time()
        for piece in pieces:
            model.answer(piece, plan)
        return time.process_time() - began

    times = {}
    for size in SIZES:
        rounds = [[seconds(plan, size) for plan in plans.values()] for _ in range(ROUNDS)]
        times[size] = dict(zip(plans, map(min, zip(*rounds))))
    end = torch.full((ROWS,), len(model.depth))
    points = []
    for reducer, plan in plans.items():
        flops = Bill(record(model, rows, 16, plan), Cost.of(model, plan)).mean(end, False)["flops_speedup"]
        spent = {size: round(1000 * times[size][reducer] / ROWS, 2) for size in SIZES}
        points.append({"reduce": reducer or "none", "flops_speedup": round(flops, 3), "milliseconds": spent})
    facts = {"command": repeatable_command("-m benchmarks.token_time"), "encoder": args.weights.name, **machine()}
    facts |= {"rows": ROWS, "tokens": sum(map(len, rows)) / ROWS}
    args.out.write_text(json.dumps({**facts, "points": points}, indent=1) + "\n")


if __name__ == "__main__":
    main()
