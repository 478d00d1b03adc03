"""docs/experiments.md, from the files in benchmarks/results; and figures of experiments wherever a slot asks for them.

Slots of any document, with `<!-- end -->` behind what they hold:

    <!-- experiment: NAME -->                   its table; `NAME; RECIPE; RECIPE` for some of its recipes
    <!-- layers: NAME -->                       test scores of the heads after every layer, likewise
    <!-- across: PATTERN; RECIPE; RECIPE -->    test scores at full depth in the experiments of a pattern that have all
    <!-- figure: NAME; RECIPE; PLAN -->         in a sentence: a test score, mean of the seeds, in percent
    <!-- lost: NAME; RECIPE; PLAN -->           points below the same models at full depth
    <!-- faster: NAME; RECIPE; PLAN -->         times less work, as the experiment counts it

What was not run yet is named there; what the table of experiments does not have is an error. A picture `NAME.png` in
docs/ is drawn anew where a document shows it.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.experiment import COUNTS, Experiment
from benchmarks.experiments import EXPERIMENTS, chosen
from benchmarks.experiments_picture import draw
from benchmarks.pages import DOCS, ROOT, SCRIPT, Document, filled, stacked, table
from benchmarks.result_files import (
    FULL,
    Point,
    by_seed,
    changed_since,
    committed,
    machines,
    paired,
    spoken_commits,
)
from benchmarks.rows import SETS

PAGE = DOCS / "experiments.md"
BLOCK = re.compile(r"(<!-- (experiment|layers|across): ([^;]*?)(?:; (.*?))? -->\n).*?(<!-- end -->)", re.DOTALL)
NOT_RUN = "not run yet"
INLINE = re.compile(r"(<!-- (figure|lost|faster): (.*?); (.*?); (.*?) -->).*?(<!-- end -->)", re.DOTALL)
PICTURE = re.compile(r"!\[[^]]*\]\((?:docs/)?([^)/]+)\.png\)")


def documents() -> Iterator[Document]:
    yield PAGE, lambda _: page()
    for path in with_slots():
        yield path, with_figures


def with_slots() -> list[Path]:
    """The documents that may have slots of experiments."""
    return [ROOT / "README.md", *sorted(DOCS.glob("*.md")), *sorted(ROOT.glob("paredown/methods/*/README.md"))]


def pictures() -> None:
    shown = {name for path in with_slots() for name in PICTURE.findall(path.read_text(encoding="utf-8"))}
    for name in sorted(shown & EXPERIMENTS.keys()):
        if (result := committed(name)) is not None:
            draw(result, DOCS / f"{name}.png")


def with_figures(text: str) -> str:
    """A document with the slots of experiments filled."""

    def block(found: re.Match[str]) -> str:
        begin, kind, name, listed, end = found.groups()
        made = BLOCKS[kind](name, listed.split("; ") if listed else [])
        return f"{begin}{made}\n{end}"

    def inline(found: re.Match[str]) -> str:
        begin, kind, *which, end = found.groups()
        return f"{begin}{single(kind, *which)}{end}"

    return INLINE.sub(inline, BLOCK.sub(block, text))


def waiting(names: list[str]) -> str:
    """A sentence; empty where nothing is waited for."""
    return filled(f"{NOT_RUN.capitalize()}: {', '.join(f'`{name}`' for name in names)}.") if names else ""


def _known(name: str, recipes: list[str]) -> list[str]:
    """The recipes that a slot asks for, or all, none of them misspelt."""
    labels = [recipe.label for one in chosen([name]) for recipe in one.recipes]
    if unknown := set(recipes) - set(labels):
        raise KeyError(f"a slot asks {name} for {', '.join(unknown)}, which it does not have")
    return recipes or labels


# One figure, mean over the seeds


def mean(points: Iterable[Point], key: str = "score") -> float:
    return statistics.mean(point[key] for point in points)


def single(kind: str, name: str, recipe: str, plan: str) -> str:
    """A figure for a sentence."""
    _known(name, [recipe])
    seen = by_seed(name)
    both = paired(seen, (recipe, plan), (recipe, plan if kind != "lost" else FULL))
    if not both and any(its == recipe for its, _ in seen):
        raise KeyError(f"a slot asks {name} for {recipe!r} at {plan!r}, which it does not have")
    if not both:
        return NOT_RUN
    here, there = zip(*both, strict=True)
    if kind == "lost":
        return f"{100 * (mean(there) - mean(here)):.1f}"
    return f"{mean(here, EXPERIMENTS[name].count):.1f}" if kind == "faster" else f"{100 * mean(here):.1f}"


# The page


def page() -> str:
    found = {name: result for name in EXPERIMENTS if (result := committed(name)) is not None}
    missing = waiting([name for name in EXPERIMENTS if name not in found])
    text = f"""{len(found)} of {len(EXPERIMENTS)} experiments of the table `benchmarks/experiments.py` have been run.
        Scores are of test rows, mean of the seeds, with the lowest and the highest seed in brackets; weights and
        thresholds were chosen on dev rows alone."""
    sections = [section(EXPERIMENTS[name], result) for name, result in found.items()]
    return stacked("# The experiments", filled(text), *sections, missing, made()) + "\n"


def made() -> str:
    return f"""## How this was made

{
        filled(
            f"`{SCRIPT}` writes this page and overwrites edits. Inputs are made and checked by `python -m "
            "benchmarks.inputs`; the command below each table makes its runs again and prints what differs."
        )
    }"""


def section(experiment: Experiment, result: dict[str, Any]) -> str:
    its, rows = SETS[experiment.rows], result["runs"][0]["rows"]
    places = (f"{one['device']}, torch {one['torch']}, transformers {one['transformers']}" for one in machines(result))
    where = "; ".join(dict.fromkeys(places))
    about = f"""{experiment.encoder}; {rows["train"]:,} train, {rows["dev"]:,} dev and {rows["test"]:,} test rows of at
        most {its.max_length} tokens; {its.metric}; work is counted in {COUNTS[experiment.count]}. `{
        result["command"]
    }` at {spoken_commits(result)}; {where}."""
    changed = changed_since(result)
    age = f"Changed since then: {', '.join(changed)}.\n" if changed else ""
    settings = [[run, ", then ".join(f"`{its}`" for its in methods)] for run, methods in trained(result).items()]
    return f"""## {experiment.name}

{scores(result, trained(result))}

{filled(about)}
{age}
{table(["recipe", "trained by"], settings)}"""


def trained(result: dict[str, Any]) -> dict[str, list[str]]:
    return {
        run["recipe"]: [
            *([f"start: {start}"] if (start := run["described"]["start"]) else []),
            *run["described"]["methods"],
        ]
        for run in result["runs"]
    }


def by_recipe(result: dict[str, Any], recipes: Iterable[str]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Those of the recipes that were run, and their runs."""
    for recipe in recipes:
        if runs := [run for run in result["runs"] if run["recipe"] == recipe]:
            yield recipe, runs


def of_one(make: Callable[[dict[str, Any], list[str]], str], name: str, recipes: list[str]) -> str:
    """A table of an experiment, and what of it was not run yet."""
    recipes, result = _known(name, recipes), committed(name)
    if result is None:
        return waiting([name])
    ran = [recipe for recipe, _ in by_recipe(result, recipes)]
    return stacked(make(result, ran) if ran else "", waiting([recipe for recipe in recipes if recipe not in ran]))


def layers(result: dict[str, Any], recipes: Iterable[str]) -> str:
    """A line for every recipe: what its heads score after each layer, mean of the seeds."""
    found = {recipe: [run["plans"]["none"]["per_layer"] for run in runs] for recipe, runs in by_recipe(result, recipes)}
    numbers = list(next(iter(found.values()))[0])
    lines = [
        [recipe, *(f"{100 * statistics.mean(its[number] for its in heads):.1f}" for number in numbers)]
        for recipe, heads in found.items()
    ]
    return table(["after layer", *numbers], lines)


def across(pattern: str, recipes: list[str]) -> str:
    """A line for every recipe: its score in each experiment that has all of them, their mean, and how much of the first
    recipe's mean it keeps."""
    matched = {one.name: by_seed(one.name) for one in chosen([pattern])}
    for name in matched:
        _known(name, recipes)
    seen = {name: its for name, its in matched.items() if all((recipe, FULL) in its for recipe in recipes)}
    missing = waiting([name for name in matched if name not in seen])
    if not seen:
        return missing
    means = {recipe: [100 * mean(its[recipe, FULL].values()) for its in seen.values()] for recipe in recipes}
    whole = statistics.mean(means[recipes[0]])
    lines = []
    for recipe, its in means.items():
        both = statistics.mean(its), 100 * statistics.mean(its) / whole
        lines.append([recipe, *(f"{score:.1f}" for score in (*its, *both))])
    rows = [EXPERIMENTS[name].rows for name in seen]
    made = table(["full depth", *(f"{its}, {SETS[its].metric}" for its in rows), "mean", "kept, %"], lines)
    return stacked(made, missing)


def scores(result: dict[str, Any], recipes: Iterable[str]) -> str:
    """A line for every recipe and reducer: to the end, at every target, and by rules that nobody chose."""
    facts = result["experiment"]
    targets = [f"{target:g}x" for target in facts["targets"]]
    fixed = list(dict.fromkeys(text for run in result["runs"] for text in run["described"].get("fixed", ())))
    lines = []
    for recipe, runs in by_recipe(result, recipes):
        for reducer in dict.fromkeys(name for run in runs for name in run["plans"]):
            plans = [run["plans"][reducer] for run in runs if reducer in run["plans"]]
            full = [plan["full"]["test"] for plan in plans]
            at = [cell([best(plan, target) for plan in plans], facts["count"]) for target in targets]
            by = [cell([plan.get("fixed", {}).get(text) for plan in plans], facts["count"]) for text in fixed]
            name = recipe if reducer == "none" else f"{recipe}, `{reducer}`"
            lines.append([name, str(len(plans)), spread(full, facts["count"]), f"±{half(full):.1f}", *at, *by])
    rules = ["its own plan" if text == "own" else f"`{text}`" for text in fixed]
    head = ["recipe", "seeds", "to the end", "95 % of rows", *(f"{target} on dev" for target in targets), *rules]
    keep = [number for number, _ in enumerate(head) if number < 4 or any(line[number] for line in lines)]
    return table([head[number] for number in keep], [[line[number] for number in keep] for line in lines])


BLOCKS: dict[str, Callable[[str, list[str]], str]] = {
    "experiment": partial(of_one, scores),
    "layers": partial(of_one, layers),
    "across": across,
}


def best(plan: dict[str, Any], target: str) -> dict[str, Any] | None:
    """Of the rules, the one with the best dev score at this target."""
    able = [its[target] for its in plan.get("targets", {}).values() if its[target] is not None]
    return max(able, key=lambda point: point["dev"]["score"], default=None)


def cell(points: list[dict[str, Any] | None], count: str) -> str:
    """Empty where a seed has no such plan."""
    found = [point["test"] for point in points if point is not None]
    return spread(found, count) if found and len(found) == len(points) else ""


def spread(found: list[dict[str, Any]], count: str) -> str:
    """The mean over seeds, the lowest and the highest, and how many times less work it is on test rows."""
    scores = [100 * its["score"] for its in found]
    faster = statistics.mean(its[count] for its in found)
    return f"{statistics.mean(scores):.1f} ({min(scores):.1f} to {max(scores):.1f}) at {faster:.2f}x"


def half(found: list[dict[str, Any]]) -> float:
    """Half of the interval of a score over resampled test rows, mean of the seeds, in points."""
    return 50 * statistics.mean(its["interval"][1] - its["interval"][0] for its in found)
