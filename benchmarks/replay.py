"""How long it takes to replay every exit rule at 1,000 thresholds on the dev set of SST-2.

    python -m benchmarks.replay --weights gte-small --data data

Process time of one thread, with scores and mean layers, the best of three rounds; each round starts from a record of
which nothing is computed yet. Time does not depend on what the heads say, so they stay as they are born and nothing is
trained; the learned rule's estimates are made up. Beside it: one pass over the heads for each threshold, row by row as
the model would let rows leave, on a few thresholds of each rule.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from pathlib import Path
from typing import Any

from benchmarks.commands import repeatable_command
from paredown.system.machine import machine

ROUNDS, THRESHOLDS, SINGLY = 3, 1000, 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", type=Path, required=True, help="the folder of gte-small")
    parser.add_argument("--data", type=Path, required=True, help="the folder that holds SST-2")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"))
    args = parser.parse_args()

    import torch

    from paredown.evaluation import curve, metric_named
    from paredown.registry import exits

    torch.set_num_threads(1)
    seen, metric = recorded(args.weights, args.data), metric_named("accuracy")
    rules = {name: at_speeds(exits.make(name), THRESHOLDS) for name in exits.names()}
    few = {name: at_speeds(exits.make(name), SINGLY) for name in exits.names()}
    curve(seen, few["never"], metric)  # scikit-learn is imported at the first use, which is not counted

    def all_at_once() -> dict[str, float]:
        fresh = dataclasses.replace(seen)
        return {name: seconds(curve, fresh, many, metric) for name, many in rules.items()}

    def one_each() -> float:
        fresh = dataclasses.replace(seen)
        return sum(seconds(singly, fresh, rule, metric) for some in few.values() for rule in some)

    rounds = [all_at_once() for _ in range(ROUNDS)]
    best = min(rounds, key=lambda each: sum(each.values()))
    each = min(one_each() for _ in range(ROUNDS)) / (len(few) * SINGLY)
    facts = {"command": repeatable_command("-m benchmarks.replay"), "encoder": args.weights.name, **machine()}
    facts |= {"rows": len(seen), "heads": len(seen.stops), "rules": len(rules), "thresholds_of_each": THRESHOLDS}
    facts |= {
        "seconds": round(sum(best.values()), 3),
        "seconds_of_every_round": [round(sum(each.values()), 3) for each in rounds],
        "seconds_by_rule": {name: round(value, 4) for name, value in best.items()},
        "one_pass_each": {
            "points_measured": len(few) * SINGLY,
            "milliseconds_per_point": round(1000 * each, 3),
            "seconds_for_all_points": round(each * len(rules) * THRESHOLDS, 1),
        },
    }
    args.out.write_text(json.dumps(facts, indent=1) + "\n")


def recorded(weights: Path, data: Path) -> Any:
    """What 12 heads, as they are born, say of the dev rows; with made-up estimates for the learned rule."""
    import torch

    from paredown import AdaptiveModel
    from paredown.evaluation import record
    from paredown.registry import heads, tasks

    torch.manual_seed(0)
    model = AdaptiveModel.from_pretrained(weights, task="sst-2").eval()
    model.grow_heads(heads.make("linear"))
    rows = model.encode(tasks.make("sst-2").read(data, "dev").rows, 64)
    seen = record(model, rows)
    return dataclasses.replace(seen, error_probability={step: torch.rand(len(seen), 1) for step in seen.stops})


def at_speeds(rule: Any, count: int) -> list[Any]:
    return [rule.at_speed((step / count) ** 3) for step in range(1, count + 1)]


def seconds(work: Any, *given: Any) -> float:
    began = time.process_time()
    work(*given)
    return time.process_time() - began


def singly(seen: Any, rule: Any, metric: Any) -> tuple[float, float]:
    """Score and mean layers of one rule by a pass over the heads."""
    found = one_by_one(seen, rule)
    return seen.score(found.logits, metric), found.layers.double().mean().item()


def one_by_one(seen: Any, rule: Any) -> Any:
    """Rows leave head by head, as the model lets them; one pass for one rule."""
    import torch

    from paredown.evaluation.replay import Replay

    *asked, end = seen.stops
    memory, staying = {}, torch.ones(len(seen), dtype=torch.bool)
    logits, layers = torch.empty_like(seen.logits[end]), torch.full((len(seen),), end)
    for step in asked:
        evidence = seen.evidence(step)
        certainty, after = rule.certainty(evidence, memory)
        leave = staying & (certainty > rule.bounds((step,))[0])
        logits[leave], layers[leave] = rule.answer(evidence, memory)[leave], step
        staying, memory = staying & ~leave, after
    logits[staying] = rule.answer(seen.evidence(end), memory)[staying]
    return Replay(logits, layers)


if __name__ == "__main__":
    main()
