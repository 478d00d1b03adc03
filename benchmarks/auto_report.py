"""From the results beside it: the figures of docs/auto.md and of the method's card.

python -m benchmarks.auto_report
"""

from __future__ import annotations

import json
import re
import statistics
from pathlib import Path

from benchmarks.auto import RECIPES, TARGETS
from benchmarks.auto_inputs import SETS
from benchmarks.early_exit_report import table

RESULTS = Path(__file__).with_name("auto.json")
ROOT = Path(__file__).parent.parent
PAGE, CARD = ROOT / "docs" / "auto.md", ROOT / "paredown" / "methods" / "auto" / "README.md"
PLACE = re.compile(r"(<!-- figures -->\n).*?(<!-- end -->)", re.DOTALL)
SPEEDS = ("1", *map(str, TARGETS))


def mean(runs: list[dict], name: str, recipe: str, speed: str) -> float:
    """In percent, over the seeds."""
    return 100 * statistics.mean(run["scores"][speed] for run in runs if (run["set"], run["recipe"]) == (name, recipe))


def scores(runs: list[dict]) -> str:
    """A line for each set: auto, and how far it is above the independent recipe."""
    lines, gains = [], {speed: [] for speed in SPEEDS}
    for name, chosen in SETS.items():
        cells = []
        for speed in SPEEDS:
            ours, theirs = (mean(runs, name, recipe, speed) for recipe in ("auto", "independent"))
            gains[speed].append(ours - theirs)
            cells.append(f"{ours:.1f} ({ours - theirs:+.1f})")
        lines.append([name, chosen.encoder, chosen.metric, *cells])
    lines.append(["mean gain", "", "", *(f"{statistics.mean(gains[speed]):+.1f}" for speed in SPEEDS)])
    return table(["set", "encoder", "metric", "full depth", *(f"{target}× fewer layers" for target in TARGETS)], lines)


def spread(runs: list[dict]) -> str:
    """How far the seeds of auto lie apart."""
    lines = []
    for name in SETS:
        found = [
            [100 * run["scores"][at] for at in SPEEDS] for run in runs if (run["set"], run["recipe"]) == (name, "auto")
        ]
        lines.append([name, *(f"{min(its):.1f} to {max(its):.1f}" for its in zip(*found, strict=True))])
    return table(["auto, lowest to highest seed", "full depth", *(f"{target}×" for target in TARGETS)], lines)


def figures(results: dict) -> str:
    runs, seeds = results["runs"], sorted({run["seed"] for run in results["runs"]})
    rows = [[name, *(f"{its[split]:,}" for split in ("train", "dev", "test"))] for name, its in _rows(runs).items()]
    return f"""Made by `python -m benchmarks.auto_report` from the results of:

```
{results["command"]}
```

One {results["device"]}, torch {results["torch"]}, transformers {results["transformers"]}, seeds {seeds}. Test scores in
percent, mean of the seeds; in brackets how far `auto` is above the independent recipe, `{RECIPES["independent"]}`.

{scores(runs)}

{spread(runs)}

{table(["rows", "train", "dev", "test"], rows)}
"""


def _rows(runs: list[dict]) -> dict[str, dict[str, int]]:
    return {name: next(run["rows"] for run in runs if run["set"] == name) for name in SETS}


def put(path: Path, text: str) -> None:
    page = path.read_text(encoding="utf-8")
    path.write_text(PLACE.sub(lambda found: f"{found[1]}{text}{found[2]}", page), encoding="utf-8")


def main() -> None:
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    put(PAGE, figures(results))
    put(CARD, f"{scores(results['runs'])}\n")
    print(figures(results))


if __name__ == "__main__":
    main()
