"""From the results beside it: the figures of docs/elue.md and its picture.

python -m benchmarks.elue_report
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from benchmarks.early_exit_report import table
from paredown.evaluation.elue import TASKS, Standing
from paredown.evaluation.plots import STYLE, elue

RESULTS = Path(__file__).with_name("elue.json")
PAGE = Path(__file__).parent.parent / "docs" / "elue.md"
PICTURE = PAGE.with_suffix(".png")
PLACE = re.compile(r"(<!-- figures -->\n).*?(<!-- end -->)", re.DOTALL)
NAMES = {
    "entropy_nats": "entropy",
    "accuracy_and_f1": "accuracy and F1, mean",
    "correlation": "Pearson, Spearman, mean",
}


def figures(results: dict) -> str:
    standing = Standing.from_json(results)
    seeds = "one seed" if len(results["seeds"]) == 1 else f"mean of {len(results['seeds'])} seeds"
    return f"""Made by `python -m benchmarks.elue_report` from the results of:

```
{results["command"]}
```

{results["encoder"]} on one {results["device"]}, {results["precision"]}, torch {results["torch"]},
transformers {results["transformers"]}, {seeds}. One standard error of a score is about a point on the smaller test
sets, so differences below one point say little.

![score against FLOPs on ELUE's tasks]({PICTURE.name})

ELUE score in points: the mean, over the settings of a rule, of the score less that of the first layers alone at the
same FLOPs. Trained by `{example(results)}` and the like.
The heads were counted as they were then, every token asking; since then only the first does, which saves 2 to 5 % of a
layer at each exit, so exits would score a little higher now.

{scores(standing)}

The baseline itself: score, and MFLOPs per row in brackets, by layers kept.

{baseline(standing)}

What was left out or is doubtful:

{chr(10).join(f"* {note}" for note in standing.notes)}

The rows:

{rows(results, standing)}
"""


def scores(standing: Standing) -> str:
    lines = []
    for use, score in standing.scores.items():
        gains = [f"{100 * score.tasks[name]:+.2f}" if name in score.tasks else "–" for name in TASKS]
        lines.append([NAMES.get(use, use), *gains, f"**{100 * score.average:+.2f}**"])
    return table(["rule", *TASKS, "average"], lines)


def baseline(standing: Standing) -> str:
    lines = []
    depths = sorted({at["layers_kept"] for its in standing.baseline.tasks.values() for at in its.points})
    for name, its in standing.baseline.tasks.items():
        found = {at["layers_kept"]: f"{100 * at['score']:.1f} ({at['flops'] / 1e6:,.0f})" for at in its.points}
        lines.append([name, *(found.get(depth, "–") for depth in depths)])
    return table(["layers", *map(str, depths)], lines)


def rows(results: dict, standing: Standing) -> str:
    lines = []
    for name, facts in results["rows"].items():
        numbers = [f"{facts[split]:,}" for split in ("train", "dev", "test_full")]
        metric = standing.baseline.tasks[name].metric
        lines.append([name, *numbers, NAMES.get(metric, metric), facts["which"]])
    return table(["task", "train", "dev", "test", "metric", "which"], lines)


def example(results: dict) -> str:
    return next(run["method"] for run in results["runs"] if run["label"] == "exits")


def main() -> None:
    import matplotlib

    results = json.loads(RESULTS.read_text())
    with matplotlib.rc_context(STYLE):
        elue(Standing.from_json(results)).savefig(PICTURE, dpi=160, metadata={"Software": None})
    PAGE.write_text(PLACE.sub(lambda place: place[1] + figures(results) + place[2], PAGE.read_text()))
    print(f"written: {PAGE}, {PICTURE}")


if __name__ == "__main__":
    main()
