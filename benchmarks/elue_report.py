"""The figures of docs/elue.md and its picture, from the results beside it."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.pages import DOCS, SCRIPT, Document, bullets, committed, filled, put, spoken, table
from paredown.evaluation.elue import TASKS, Standing
from paredown.evaluation.plots import STYLE, elue

PAGE = DOCS / "elue.md"
PICTURE = PAGE.with_suffix(".png")
NAMES = {
    "entropy_nats": "entropy",
    "accuracy_and_f1": "accuracy and F1, mean",
    "correlation": "Pearson, Spearman, mean",
}


def page(text: str, results: dict) -> str:
    """The page with its slots filled."""
    standing = Standing.from_json(results)
    return put(text, answer=answer(results, standing), figures=figures(results, standing), made=made(results, standing))


def answer(results: dict, standing: Standing) -> str:
    """What a reader came for."""
    gains = spoken(
        [
            f"{100 * score.average:+.2f} points by `{use}` ({len(score.tasks)} tasks)"
            for use, score in standing.scores.items()
        ]
    )
    return filled(
        f"""With {results["encoder"]} and attention heads, exits score {gains} on average against the first layers
        alone at the same FLOPs. These are test rows, {seeds(results)}; weights were chosen on dev rows, and thresholds
        are a fixed list. The tasks are partly cut down and the baseline is our own, so they are not figures of ELUE's
        leaderboard."""
    )


def seeds(results: dict) -> str:
    return "one seed" if len(results["seeds"]) == 1 else f"mean of {len(results['seeds'])} seeds"


def figures(results: dict, standing: Standing) -> str:
    return f"""ELUE score in points: the mean, over the settings of a rule, of the score less that of the first layers
alone at the same FLOPs; {seeds(results)}, test rows.

{scores(standing)}

![score against FLOPs on ELUE's tasks]({PICTURE.name})

The baseline itself: score, and MFLOPs per row in brackets, by layers kept.

{baseline(standing)}

The rows:

{rows(results, standing)}"""


def made(results: dict, standing: Standing) -> str:
    cautions = [
        f"""**Machine**: one {results["device"] or "CPU"}, {results["precision"]}, torch {
            results["torch"]
        }, transformers {results["transformers"]}.""",
        f"**Weights**: {results['encoder']}, {seeds(results)}, trained by `{example(results)}` and the like.",
        """**Noise**: one standard error of a score is about a point on the smaller test sets, so differences below one
        point say little.""",
        """**FLOPs of heads** were counted as they were then, every token asking; since then only the first does, which
        saves 2 to 5 % of a layer at each exit, so exits would score a little higher now.""",
    ]
    return f"""## How this was made

{filled(f"`{SCRIPT}` writes the figures of this page and overwrites edits. They are read from results made by:")}

```
{results["command"]}
```

{bullets(cautions)}

Left out or doubtful:

{bullets(standing.notes)}"""


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


def documents() -> Iterator[Document]:
    results = committed("elue")
    yield PAGE, lambda text: page(text, results)


def pictures() -> None:
    import matplotlib

    with matplotlib.rc_context(STYLE):
        elue(Standing.from_json(committed("elue"))).savefig(PICTURE, dpi=160, metadata={"Software": None})
