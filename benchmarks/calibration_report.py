"""The figures of docs/calibration.md, from benchmarks/calibration.json and calibration_tasks.json."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any

from benchmarks.pages import DOCS, Document, committed, filled, put, spoken, table

PAGE = DOCS / "calibration.md"
PROMISES = {"score": "at most {bound:.0%} of the score lost", "disagreement": "at most {bound:.0%} answered otherwise"}
TASKS = {
    "sst2": "SST-2",
    "snli": "SNLI",
    "imdb": "IMDb",
    "20news": "20 Newsgroups",
    "squad": "SQuAD (F1)",
    "imdb_tokens": "IMDb with tokens dropped",
}


def figures(risk: dict[str, Any]) -> list[str]:
    """Of one risk, in the order of the rows of the table."""
    rules = risk["every_rule_alone"].values()
    learned, apart = risk["bounds_per_layer"], risk.get("certified_dev_rows_choose")
    return [
        f"{risk['certified']['violations']:.1%}",
        f"{apart['violations']:.1%}" if apart else "",
        f"{max(rule['violations'] for rule in rules):.1%}",
        f"{risk['control_without_correction']['violations']:.0%}",
        f"{risk['certified']['mean_speedup']:.2f}",
        f"{apart['mean_speedup']:.2f}" if apart else "",
        f"{risk['certified_one_threshold']['mean_speedup']:.2f}",
        f"{risk['every_rule_alone']['entropy']['mean_speedup']:.2f}",
        f"{risk['oracle_speedup']:.2f}",
        f"{risk['certified']['share_of_oracle']:.0%}",
        f"{apart['share_of_oracle']:.0%}" if apart else "",
        f"{risk['every_rule_alone']['entropy']['share_of_oracle']:.0%}",
        by_units(risk, "variance_known", ["2000"]),
        by_units(risk, "exact", ["4000", "8000", "16000"]),
        f"{risk['oracle_units_changed']:.1%}",
        ", ".join(f"{learned[way]:.2f}" for way in ("one_threshold", "offsets", "free")),
        f"{learned['temperatures']:.2f}" if "temperatures" in learned else "",
    ]


def by_units(risk: dict[str, Any], test: str, units: list[str]) -> str:
    return ", ".join(f"{risk['entropy_alone_by_units'][many][test]:.0%}" for many in units)


NAMES = [
    "promises broken, of all draws",
    "where 1,000 dev rows choose",
    "broken by any one rule alone, at most",
    "broken by the control, which takes the cheapest plan within the bound on the draw",
    "mean speed-up that is certified",
    "where 1,000 dev rows choose",
    "with one threshold for all layers",
    "with `--rule entropy --selection 0`",
    "the oracle's, which knows the true risk of every threshold",
    "share of the oracle's",
    "where 1,000 dev rows choose",
    "with `--rule entropy --selection 0`, which all rows test",
    "so, if a test knew the variance",
    "so, of 4,000, 8,000 and 16,000 rows",
    "answers that change at the oracle's plan",
    "bounds per layer learned on a fifth of the units, at the true risk: one threshold, offsets, free search",
    "one threshold, and a temperature for every head",
]


def held(found: dict[str, Any]) -> str:
    parts = []
    for risk, promise in PROMISES.items():
        entries = {name: entry[risk] for name, entry in found.items() if risk in entry}
        columns = [figures(entry) for entry in entries.values()]
        bound = next(iter(entries.values()))["bound"]
        names = [TASKS[name] for name in entries]
        parts.append(table([promise.format(bound=bound), *names], list(zip(NAMES, *columns, strict=True))))
    made = [
        f"{name}: {entry['units_in_all']:,} rows, {entry['resamples']} draws of {entry['units_of_a_draw']:,}, "
        f"`{entry['command']}`"
        for name, entry in found.items()
    ]
    return "\n\n".join([*parts, filled(f"{'; '.join(made)}.")])


def shares(found: dict[str, Any]) -> str:
    """How near the certified plans come to the oracle's, on average over the tasks."""
    ways = {"certified": "a fifth of the units choose", "certified_dev_rows_choose": "1,000 dev rows choose"}
    parts = []
    for way, words in ways.items():
        score, other = (
            statistics.mean(entry[risk][way]["share_of_oracle"] for entry in found.values()) for risk in PROMISES
        )
        both = f"{score:.0%} for the score, {other:.0%} for answers, {(score + other) / 2:.1%} of both"
        parts.append(f"where {words} {both}")
    return filled(
        f"Of the oracle's speed-up the certified plans have, on average over these tasks, {'; '.join(parts)}."
    )


def in_order(found: dict[str, Any]) -> dict[str, Any]:
    return {name: found[name] for name in TASKS if name in found}


def points(found: dict[str, Any]) -> str:
    return f"{round(100 * found['lost'], 2) + 0.0:.2f} ± {100 * found['error']:.2f}"


def tasks(found: dict[str, Any]) -> str:
    """What is certified on some rows, on others."""
    head = [
        "at most a point lost",
        "rows: certify, judge",
        "fewer FLOPs",
        "points lost",
        "one threshold",
        "points lost",
    ]
    lines = []
    for name, entry in found.items():
        ours, one = entry["certified"], entry["one_threshold"]
        rows = f"{entry['calibrating']:,}, {entry['judging']:,}"
        speedups = [f"{ours['flops_speedup']:.2f}×", points(ours), f"{one['flops_speedup']:.2f}×", points(one)]
        lines.append([TASKS[name], rows, *speedups])
    return table(head, lines)


def times(found: dict[str, Any]) -> str:
    """Of the plans that were certified where time was measured."""
    head = ["times faster than transformers", "fewer FLOPs", "points lost", "a row alone", "a batch"]
    head += ["GPU, 32 bits (times full depth)", "16 bits (times full depth)"]
    lines = []
    for name, entry in found.items():
        if (its := entry.get("timed")) is None:
            continue
        cpu, gpu = its.get("cpu", {}), its.get("gpu", {})
        batches = {int(key.split()[1]): value["transformers"] for key, value in cpu.items() if key.startswith("batch")}
        alone = f"{batches.pop(1):.2f}×" if 1 in batches else "-"
        batch = "".join(f"{value:.2f}× (of {size})" for size, value in batches.items()) or "-"
        streamed = [
            f"{gpu[bits]['transformers']:.2f}× ({gpu[bits]['full_depth']:.2f}×)" if bits in gpu else "-"
            for bits in ("float32", "bfloat16")
        ]
        lines.append([TASKS[name], f"{its['flops_speedup']:.2f}×", points(its), alone, batch, *streamed])
    return table(head, lines)


def wins(drawn: dict[str, Any], single: dict[str, Any]) -> str:
    """Where bounds per layer are faster than one threshold: on average over draws, and once on other rows."""

    def on_average(entry: dict[str, Any]) -> bool:
        its = entry["score"]
        return its["certified"]["mean_speedup"] > its["certified_one_threshold"]["mean_speedup"]

    def once(entry: dict[str, Any]) -> bool:
        return entry["certified"]["flops_speedup"] > entry["one_threshold"]["flops_speedup"]

    faster = [TASKS[name] for name, entry in drawn.items() if on_average(entry)]
    there = [TASKS[name] for name, entry in single.items() if once(entry)]
    return filled(
        f"Bounds for every layer are faster than one threshold, where at most a point may be lost, on {len(faster)} of "
        f"{len(drawn)} tasks on average over the draws below ({spoken(faster)}), and on {len(there)} of {len(single)} "
        f"in the table ({spoken(there)})."
    )


def documents() -> Iterator[Document]:
    drawn, single = in_order(committed("calibration")), in_order(committed("calibration_tasks"))
    parts = {
        "held": held(drawn),
        "shares": shares(drawn),
        "tasks": tasks(single),
        "times": times(single),
        "wins": wins(drawn, single),
    }
    yield PAGE, lambda text: put(text, **parts)
