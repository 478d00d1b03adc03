"""The figures of docs/calibration.md, from benchmarks/calibration.json."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.pages import DOCS, Document, committed, filled, put, table

PAGE = DOCS / "calibration.md"
PROMISES = {"score": "at most {bound:.0%} of the score lost", "disagreement": "at most {bound:.0%} answered otherwise"}


def figures(risk: dict[str, Any]) -> list[str]:
    """Of one risk, in the order of the rows of the table."""
    rules = risk["every_rule_alone"].values()
    learned = risk["bounds_per_layer"]
    return [
        f"{risk['certified']['violations']:.1%}",
        f"{max(rule['violations'] for rule in rules):.1%}",
        f"{risk['control_without_correction']['violations']:.0%}",
        f"{risk['certified']['mean_speedup']:.2f}",
        f"{risk['certified_one_threshold']['mean_speedup']:.2f}",
        f"{max(rule['mean_speedup'] for rule in rules):.2f}",
        f"{risk['oracle_speedup']:.2f}",
        f"{risk['certified']['share_of_oracle']:.0%}",
        f"{risk['oracle_units_changed']:.1%}",
        ", ".join(f"{learned[way]:.2f}" for way in ("one_threshold", "offsets", "free")),
    ]


NAMES = [
    "promises broken, of all draws",
    "broken by any one rule alone, at most",
    "broken by the control, which takes the cheapest plan within the bound on the draw",
    "mean speed-up that is certified",
    "with one threshold for all layers",
    "by the best rule alone, as is known only afterwards",
    "the oracle's, which knows the true risk of every threshold",
    "share of the oracle's",
    "answers that change at the oracle's plan",
    "bounds per layer learned on some units, judged by the true risk: one threshold, offsets, free search",
]


def held(found: dict[str, Any]) -> str:
    parts = []
    for risk, promise in PROMISES.items():
        entries = {name: entry[risk] for name, entry in found.items() if risk in entry}
        columns = [figures(entry) for entry in entries.values()]
        bound = next(iter(entries.values()))["bound"]
        parts.append(table([promise.format(bound=bound), *entries], list(zip(NAMES, *columns, strict=True))))
    made = [
        f"{name}: {entry['units_in_all']:,} rows, {entry['resamples']} draws of {entry['units_of_a_draw']:,}, "
        f"`{entry['command']}`"
        for name, entry in found.items()
    ]
    return "\n\n".join([*parts, filled(f"{'; '.join(made)}.")])


def documents() -> Iterator[Document]:
    found = committed("calibration")
    yield PAGE, lambda text: put(text, held=held(found))
